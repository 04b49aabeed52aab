"""The sizes of the LoRA step that `lora_systems.py` runs through several systems, and how a step is timed there."""

import time
from collections.abc import Callable
from statistics import median

BATCH, T, D, FF, VOCAB, RANK = 2, 64, 128, 512, 512, 8
SCALE, RATE = 2.0, 0.01
FROZEN = {"qkv": (D, 3 * D), "o": (D, D), "w1": (D, FF), "w2": (FF, D)}
ADAPTERS = {"qkv_a": (D, RANK), "qkv_b": (RANK, 3 * D), "o_a": (D, RANK), "o_b": (RANK, D)}
"""Of each layer."""


def timed(step: Callable[[], object]) -> None:
    """Print the median milliseconds of seven steps."""
    seconds = []
    for _ in range(7):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    print(f"{1000 * median(seconds):.2f}")
