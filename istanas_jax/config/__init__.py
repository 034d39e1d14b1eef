"""Config files: running them, the range of every value, and which values go together.

Imports the names of `methods`. Start with `files`.
"""
