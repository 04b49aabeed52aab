"""What every side of the step benchmark has in common: the job it is given, the protocol it speaks, and where its rows differ from the engine's.

A side is started as `python step_X.py JOB.json`. It prints one JSON line when it is ready (losses of the first steps, peak memory, versions), then one for each line
it is sent: {"cpu": seconds, "wall": seconds, "loss": x}. CPU time is the process's, all threads together. Needs numpy, nothing of this project.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def job() -> dict[str, Any]:
    """Return the job of this process."""
    found: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return found


def serve(warmup: int, step: Callable[[], float], about: Callable[[], dict[str, Any]]) -> None:
    """Warm up, say so with what `about` tells, then do a step for each line of standard input until it ends."""
    losses = [step() for _ in range(warmup)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _say({"losses": losses, "peak_kib": peak, **about()})
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        loss = step()
        _say({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "loss": loss})


def halves(name: str, data: Any, size: int) -> Any:
    """Return a weight for code that pairs elements (i, i + half) of a head of `size`; the engine pairs (2i, 2i + 1), so rows of q and k are reordered."""
    if ("attn_q" not in name or "lora_a" in name) and "attn_k" not in name:
        return data
    pairs = [*range(0, size, 2), *range(1, size, 2)]
    return np.array(data).reshape(-1, size, data.shape[-1])[:, pairs].reshape(data.shape)


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)
