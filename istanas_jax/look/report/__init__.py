"""Pages about runs: each is one HTML file that opens from a disk and needs nothing else.

`facts` reads a run's folder. `run_page` writes the page of one run (with `series`, `replay` and
`folds`), `compare` a page over several, `index` one over a folder of runs; `html` writes the tags.
`serving` shows the pages of runs under way.
"""
