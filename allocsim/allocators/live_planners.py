"""Planners of other systems, live: `allocsim fuzz tinygrad`, in the interpreter that has them.

    ALLOCSIM_PEERS=peers/bin/python allocsim fuzz tinygrad

`ALLOCSIM_PEERS` is that interpreter, by default the one that runs this; it need not have this
project. Each script lies in the room of its system (`allocsim.systems`) and imports nothing of this
project but `asking`, which runs it and speaks the protocol of `allocsim.allocators.by_command`. The
rooms stand above this module, so it knows a script by its path and imports none.

Raises PlannerError where the system cannot be imported there, with the interpreter's last line.
What this module does not see: what they are told beyond lives, sizes, arenas and alignments.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from allocsim.allocators.by_command import CommandPlanner

VARIABLE: Final = "ALLOCSIM_PEERS"

ROOMS: Final = Path(__file__).parents[1] / "systems"
"""Where each system has its folder."""

ASKING: Final = Path(__file__).with_name("asking.py")
"""What runs a script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlanner:
    """A planner of another system."""

    what: str
    """What is called, for people."""
    script: str
    """Its path under `ROOMS`."""


LIVE_PLANNERS: Final[dict[str, LivePlanner]] = {
    "tinygrad": LivePlanner(
        what="tinygrad.schedule.memory.memory_plan_rewrite, on the device NULL", script="tinygrad/ask_tinygrad.py"
    ),
    "executorch": LivePlanner(what="executorch.exir.memory_planning.greedy", script="executorch/ask_executorch.py"),
    "inductor": LivePlanner(
        what="torch._inductor.codegen.memory_planning.AllocationPools", script="torch/ask_inductor.py"
    ),
    "litert": LivePlanner(
        what="the interpreter's arena planner, by a model of FILLs and SLICEs", script="litert/ask_litert.py"
    ),
    "xla": LivePlanner(what="XLA's buffer assignment for the CPU, by a function of sorts", script="xla/ask_xla.py"),
}
"""The planners that can be asked, by name."""


def find_live(name: str) -> CommandPlanner:
    """Return the planner of `LIVE_PLANNERS` called `name`; it is started when it is first asked."""
    interpreter = os.environ.get(VARIABLE) or sys.executable  # taken from the folder that the planner is named in
    return CommandPlanner(name=name, arguments=[interpreter, str(ASKING), str(ROOMS / LIVE_PLANNERS[name].script)])


__all__ = ["ASKING", "LIVE_PLANNERS", "ROOMS", "VARIABLE", "LivePlanner", "find_live"]
