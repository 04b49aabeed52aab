"""The loop of a script that asks another system's planner: questions in, slots out, a line of JSON
each (docs/fuzzing.md, "A planner in any language").

    python allocsim/allocators/asking.py allocsim/systems/tinygrad/ask_tinygrad.py

runs such a script, which says `from asking import serve`, in an interpreter that need not have this
project: standard library only. Neither this folder nor the script's is searched for modules, since
both have names of other packages.

Time: a buffer lives in the half-open steps `[start, stop)`, a pinned one to the end. Steps are
renumbered so that none is left out between two that matter; their order stays.

What this module does not see: in-place pairs and gaps, which the planners here are not told.
"""

import json
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AskedBuffer:
    """A buffer that is to be placed: what every planner here is told."""

    index: int
    nbytes: int
    start: int
    stop: int
    """Half-open; `start < stop`."""
    arena: int
    alignment: int
    pinned: bool


class RefusedError(Exception):
    """The planner cannot be asked this; the message says why."""


Planner = Callable[[Sequence[AskedBuffer], int], Sequence[int]]
"""Buffers and the number of steps to an offset for each buffer."""


def arena_by_arena(plan: Planner, buffers: Sequence[AskedBuffer], steps: int) -> list[int]:
    """Return the offsets of a planner that knows one arena, each arena's planned alone."""
    offsets = [0] * len(buffers)
    for arena in {row.arena for row in buffers}:
        chosen = [place for place, row in enumerate(buffers) if row.arena == arena]
        for place, offset in zip(chosen, plan([buffers[place] for place in chosen], steps), strict=True):
            offsets[place] = offset
    return offsets


def serve(plan: Planner, *, alignment: int) -> None:
    """Answer questions from standard input until it ends; `alignment` is the largest that the
    planner keeps.
    """
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"slots": _slots(json.loads(line), plan, alignment)}
        except RefusedError as why:
            answer = {"refused": str(why)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _slots(asked: dict[str, Any], plan: Planner, alignment: int) -> list[int | str]:
    problem, program = asked["problems"][0], asked["programs"][0]
    if problem["fixed"]:
        raise RefusedError("it takes no offsets that are already decided")
    rows = program["buffers"]
    own, pinned = set(problem["own"]), set(problem["pinned"])
    end = max([len(program["ops"]), *problem["stop"]], default=0)
    stops = [end if index in pinned else stop for index, stop in enumerate(problem["stop"])]
    lives = list(zip(problem["start"], stops, strict=True))
    chosen = [
        index
        for index, (start, stop) in enumerate(lives)
        if index not in own and start < stop and problem["nbytes"][index] > 0
    ]
    for index in chosen:
        if rows[index]["alignment"] > alignment:
            raise RefusedError(f"it aligns to {alignment} bytes, buffer {index} wants {rows[index]['alignment']}")
    number = {step: place for place, step in enumerate(sorted({step for index in chosen for step in lives[index]}))}
    buffers = [
        AskedBuffer(
            index, problem["nbytes"][index], number[lives[index][0]], number[lives[index][1]],
            rows[index]["arena"], rows[index]["alignment"], index in pinned,
        )
        for index in chosen
    ]  # fmt: skip
    found = dict(zip(chosen, plan(buffers, len(number)) if buffers else (), strict=True))
    for index, offset in found.items():
        capacity = asked["arenas"][rows[index]["arena"]]["capacity"]
        if capacity is not None and offset + problem["nbytes"][index] > capacity:
            raise RefusedError(f"buffer {index} would end beyond the {capacity} bytes of its arena")
    return ["own" if index in own else int(found.get(index, 0)) for index in range(len(rows))]


if __name__ == "__main__":
    del sys.path[0]
    sys.modules["asking"] = sys.modules["__main__"]
    runpy.run_path(sys.argv[1], run_name="__main__")
