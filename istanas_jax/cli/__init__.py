"""The command line: it parses and dispatches, nothing else.

Start with `main`; each of the other modules holds the commands of one kind.
"""
