# %% [markdown]
# # A search on digits, from a notebook
# Runs as a script too: `python examples/digits.py`, about two minutes on a CPU.

# %%
import sys

import numpy as np

import istanas_jax as ista

spec, folder, *_ = [*sys.argv[1:], "digits", "runs/digits"]

# %% [markdown]
# Any key of a config may be changed before it is run. A run that was begun in the folder goes on.

# %%
config = ista.load_config(spec)
config.seed = 0
run = ista.run_schedule(config, folder)
print(f"{100 * run.result['test_accuracy']:.2f} % of the test images are classified correctly")

# %% [markdown]
# The cells that were found; a notebook shows the drawing.

# %%
print(run.genotype)
drawing = ista.draw_cell(run.genotype, "normal", run.coefficients)
print(f"the drawing has {drawing.count('operation')} operations")

# %% [markdown]
# How the search came to them: the replay has a row per recovery. A node's b is 7 numbers; the LASSO
# makes the sparse z of them whose two largest entries are the node's connections.

# %%
for row in run.replay():
    nodes = np.sum(row["changed"])
    print(f"epoch {row['epoch']}: {nodes} nodes changed their connections")

rng = np.random.default_rng(0)
node = ista.recover_z(b=1e-3 * rng.standard_normal(7), A=rng.uniform(size=(7, 14)))
print(f"z has {np.count_nonzero(node.z)} of {len(node.z)} entries, certified: {node.certified}")
print(f"connections {node.support} with coefficients {node.coefficients}")
