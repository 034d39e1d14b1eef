"""The search space of tiny runs: each operation less is compiled some dozen times less.

One without weights, the identity, and one with two batch norms. What concerns the operations
themselves is tested with all of them, outside of runs.
"""

OPERATIONS = ("max_pool_3x3", "skip_connect", "sep_conv_3x3")
TINY_SPACE = ("space.nodes=2", f"space.operations={OPERATIONS}".replace(" ", ""))
TINY_SPACE_FLAGS = tuple(f"--config.{override}" for override in TINY_SPACE)
