"""Where programs run: CPUs and accelerators, several devices, several hosts.

`parallel` holds the only `jax.pmap`; `platforms` picks the form of a function that suits the
platform; `hosts` finds the other processes of a run. Imports nothing of this package.
"""
