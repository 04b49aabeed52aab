"""Makes a plan of a program from a `Plan`, from offsets by buffer, or from a plan of an equal
program.

What this module does not see: whether the plan is right (`allocsim.judge`).
"""

from dataclasses import replace
from typing import Any

from allocsim.errors import ModelError
from allocsim.model import Plan, Program
from allocsim.programs.builder import Offsets, plan_of
from allocsim.programs.networkx_graph import as_program

Slots = Plan | Offsets
"""A plan, or offsets by buffer index or name, "own" for own memory, None for no slot."""


def placed(program: Program | Any, plan: Slots) -> Plan:
    """Return a plan of `program`, which may be a networkx DiGraph.

    Raises ModelError if `plan` is of another program.
    """
    program = as_program(program)
    if not isinstance(plan, Plan):
        return plan_of(program, plan)
    made: Plan = part_of(program, plan, problem=None if plan.problem is None else part_of(program, plan.problem))
    return made


def part_of(program: Program, part: Any, **columns: Any) -> Any:
    """Return a plan or problem with `program` as its program.

    Raise ModelError if it was made for another number of buffers.
    """
    if part.program is program:
        return part
    if len(part.program.buffers) != len(program.buffers):
        rule = f"was made for a program with {len(part.program.buffers)} buffers; this one has {len(program.buffers)}"
        raise ModelError(type(part).__name__.lower(), rule)
    return replace(part, program=program, **columns)
