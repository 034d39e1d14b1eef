"""The command line: it parses and dispatches, nothing else.

Start with `main`. `runs` has the commands that work in a run's folder, `look` those that only read
one, `bench` the benchmarks and `study` the studies; `arguments` is what they share.
"""
