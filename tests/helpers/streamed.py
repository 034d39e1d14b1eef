"""What streamed images give, and whether the processes that decode them have ended."""

import multiprocessing
import time

import numpy as np


def collect(images, order, seed=(0, 1)):
    """Images and labels of all batches."""
    return [np.concatenate(part) for part in zip(*images.batches(order, seed=seed), strict=True)]


def no_children() -> bool:
    """Within a few seconds; a process that was just begun has to come up before it can end."""
    for _ in range(100):
        if not multiprocessing.active_children():
            return True
        time.sleep(0.1)
    return False
