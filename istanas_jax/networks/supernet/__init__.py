"""The super-net: all candidate connections have variables, and a support says which of them run.

Start with `net` (`SuperNet`). `cell_variables` describes a cell and makes the variables of all its
candidates. A cell runs in one of three ways: `dynamic` (the support is data), `static` (Python
knows the support) and `dense` (every candidate runs). Imports the modules of `networks` that a
network is made of (not `absorption`, `counting` or `description`), `space` and `devices`.
"""
