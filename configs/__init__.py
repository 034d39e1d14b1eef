"""The configs that come with the project; a file here is found by its name, `--config digits`.

A config starts from the blocks of `paper`, which give every number its source, and changes what it
needs; `methods` has the search methods' own hyper-parameters. A config file of yours, wherever it
lies, may do the same: `from configs import paper`.
"""
