"""Planners, by name: each a belief `(Program, Constraints) -> Problem` and a placement `(Problem) -> Plan`, kept apart.

    allocator = find("ggml")                      # a name of the table, or "package.module:function"
    plan = allocator.plan(program)                # pins what host.read reads, keeps persistent buffers apart
    plan = allocator.plan(program, Constraints.of(program, pins="nodes"))
    problem = allocator.believe(program)          # the halves alone
    plan = plan_program(allocator, program, believed=problem)   # a document's program, told what its problem tells
    plan = allocator.place(edited(problem))       # a cure: deny pairs, pin, extend lifetimes, place again

`plan.problem` is the belief the plan was made from, `plan.source` the allocator's name. A plan that is not sound is returned, not
refused: judging it is the business of `allocsim.checks`. `PlannerError` means that there is no plan, `CapacityError` that it does
not fit.
"""

from typing import Final

from allocsim.allocators import exact, ggml, ggml_belief, greedy, reference
from allocsim.allocators.constraints import (
    PINS,
    Constraints,
    Pins,
    pin_all,
    pin_nodes,
    pin_none,
    pin_reads,
    pin_values,
    resolve_pins,
)
from allocsim.allocators.planner import GUARANTEES, Allocator, Belief, Placement, Planner, plan_program
from allocsim.errors import UnknownNameError

ALLOCATORS: Final[dict[str, Allocator]] = {
    row.name: row
    for row in (
        Allocator(
            name="ggml",
            belief=ggml_belief.believe,
            placement=ggml.place,
            guarantees=("at_most_reference",),
            source="ggml src/ggml-alloc.c (d99724f2), in-place list of 0.26.0",
        ),
        Allocator(
            name="reference",
            belief=exact.believe,
            placement=reference.place,
            guarantees=("sound", "no_reuse"),
            source="no reuse: every buffer in bytes of its own",
        ),
        Allocator(
            name="greedy_by_size",
            belief=exact.believe,
            placement=greedy.place,
            guarantees=("sound", "at_most_reference"),
            source="Pisarchyk and Lee, arXiv:2001.03288, without sharing in place",
        ),
    )
}
"""The planners of this project by name."""


def find(name: str) -> Planner:
    """Return the planner called `name`: a row of `ALLOCATORS`, or a stranger's `package.module:function`.

    Raises UnknownNameError where there is none, PlannerError where a stranger's module cannot be imported or is no planner.
    """
    if name in ALLOCATORS:
        return ALLOCATORS[name]
    if ":" not in name:
        raise UnknownNameError("allocator", name, ALLOCATORS)
    from allocsim.allocators.strangers import find_stranger  # noqa: PLC0415 - a stranger's import may be anything

    return find_stranger(name)


__all__ = [
    "ALLOCATORS",
    "GUARANTEES",
    "PINS",
    "Allocator",
    "Belief",
    "Constraints",
    "Pins",
    "Placement",
    "Planner",
    "find",
    "pin_all",
    "pin_nodes",
    "pin_none",
    "pin_reads",
    "pin_values",
    "plan_program",
    "resolve_pins",
]
