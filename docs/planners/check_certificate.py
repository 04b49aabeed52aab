"""Checks a certificate that a plan of one arena cannot be smaller, with nothing but Python.

    python check_certificate.py < certificate.json

A certificate is {"peak": P, "step": T, "buffers": [...]}, of each buffer `start`, `stop`, `nbytes`,
`alignment`, `offset` and `gaps`, ranges of steps in which its bytes need not survive. All ranges
are half-open. It is accepted where

* every offset is a multiple of the alignment and not negative;
* no two buffers share a byte at a step at which both live;
* no buffer ends above P: so the plan needs P bytes at most;
* the buffers that live at T have P bytes together: so no plan needs fewer.

The exit status is 0 where it is accepted and 1 where it is not, with the reason.
"""

# ruff: noqa: INP001 - a file of its own, no package
import json
import sys
from typing import Any

Ranges = list[tuple[int, int]]


def lives(buffer: dict[str, Any]) -> Ranges:
    """Return the ranges of steps in which a buffer lives: its life less its gaps."""
    found, low = [], int(buffer["start"])
    for begin, end in sorted(buffer["gaps"]):
        found.append((low, int(begin)))
        low = max(low, int(end))
    found.append((low, int(buffer["stop"])))
    return [(begin, end) for begin, end in found if begin < end]


def meet(one: Ranges, other: Ranges) -> bool:
    """Return whether two sets of ranges have a step in common."""
    return any(a < d and c < b for a, b in one for c, d in other)


def fault(certificate: dict[str, Any]) -> str:
    """Return why a certificate is not accepted, nothing where it is. O(buffers^2)."""
    buffers, peak, step = certificate["buffers"], certificate["peak"], certificate["step"]
    times = [lives(buffer) for buffer in buffers]
    for place, buffer in enumerate(buffers):
        offset, end = buffer["offset"], buffer["offset"] + buffer["nbytes"]
        if buffer["nbytes"] < 0 or offset < 0 or offset % buffer["alignment"]:
            return f"buffer {place} cannot lie at {offset}"
        if end > peak:
            return f"buffer {place} ends at {end}, above the peak"
        for before in range(place):
            other = buffers[before]
            apart = end <= other["offset"] or other["offset"] + other["nbytes"] <= offset
            if buffer["nbytes"] and other["nbytes"] and not apart and meet(times[place], times[before]):
                return f"buffers {before} and {place} share bytes while both live"
    alive = sum(b["nbytes"] for b, time in zip(buffers, times, strict=True) if meet(time, [(step, step + 1)]))
    return "" if alive >= peak else f"at step {step} only {alive} bytes live, {peak} are claimed to be needed"


if __name__ == "__main__":
    why = fault(json.load(sys.stdin))
    sys.stdout.write((why or "accepted") + "\n")
    sys.exit(bool(why))
