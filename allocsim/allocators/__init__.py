"""Planners, by name: each a belief `(Program, Constraints) -> Problem` and a placement
`(Problem) -> Plan`, kept apart.

    allocator = find("ggml")                      # a name of the table, or "package.module:function"
    plan = allocator.plan(program)                # pins what host.read reads, keeps persistent buffers apart
    plan = allocator.plan(program, Constraints.of(program, pins="nodes"))
    problem = allocator.believe(program)          # the halves alone
    plan = plan_program(allocator, program, believed=problem)   # a document's program, told what its problem tells
    plan = allocator.place(edited(problem))       # a cure: deny pairs, pin, extend lifetimes, place again

`plan.problem` is the belief the plan was made from, `plan.source` the allocator's name. A plan that
is not sound is returned, not refused: judging it is the business of `allocsim.judge`.
`PlannerError` means that there is no plan, `CapacityError` that it does not fit.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from allocsim.allocators import (
    best,
    best_fit,
    branch_and_bound,
    buddy,
    caching,
    exact,
    ggml,
    ggml_belief,
    greedy,
    greedy_by_breadth,
    linear_scan,
    reference,
    skyline,
    slot_sharing,
    tlsf,
    xla,
)
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
from allocsim.allocators.live_planners import LIVE_PLANNERS, find_live
from allocsim.allocators.planner import GUARANTEES, Allocator, Belief, Placement, Planner, plan_program
from allocsim.errors import PlannerError, UnknownNameError

SOUND: Final = ("sound", "deterministic", "rename", "split_arena")

BOUNDED: Final = (*SOUND, "at_most_reference")

SEARCHED: Final = ("sound", "deterministic", "rename", "at_most_reference")
"""Of a search that all arenas share, which spends in one what it saves in another."""

MORE: Final = ("permute", "add_pin", "enlarge", "monotone")
"""What holds of buffers side by side alone."""

ALLOCATORS: Final[dict[str, Allocator]] = {
    row.name: row
    for row in (
        Allocator(
            name="ggml",
            belief=ggml_belief.believe,
            placement=ggml.place,
            guarantees=("deterministic", "rename", "split_arena", "at_most_reference"),
            source="ggml src/ggml-alloc.c (d99724f2), in-place list of 0.26.0",
        ),
        Allocator(
            name="reference",
            belief=exact.believe,
            placement=reference.place,
            guarantees=(*SOUND, *MORE, "no_reuse", "streams"),
            source="no reuse: every buffer in bytes of its own",
        ),
        *(
            Allocator(name=name, belief=exact.believe, placement=placement, guarantees=guarantees, source=source)
            for name, placement, guarantees, source in (
                ("linear_scan", linear_scan.place, BOUNDED, "first fit in order of birth; Poletto and Sarkar 1999"),
                ("best_fit", best_fit.place, BOUNDED, "best fit in order of birth; Knuth, TAOCP 1, 2.5"),
                ("greedy_by_size", greedy.place, BOUNDED, "Pisarchyk and Lee, arXiv:2001.03288; TFLite, ExecuTorch"),
                ("greedy_by_breadth", greedy_by_breadth.place, BOUNDED, "Pisarchyk and Lee, arXiv:2001.03288"),
                ("skyline_by_lifetime", skyline.place_by_lifetime, BOUNDED, "Sekiyama et al., arXiv:1804.10001"),
                ("skyline_by_area", skyline.place_by_area, BOUNDED, "Sekiyama et al., arXiv:1804.10001, by area"),
                ("xla_best_fit", xla.place, BOUNDED, "XLA heap_simulator.cc, GlobalDecreasingSizeBestFitHeap"),
                ("buddy", buddy.place, SOUND, "Knowlton, CACM 8(10), 1965"),
                ("tlsf", tlsf.place, SOUND, "Masmano et al., ECRTS 2004; tinygrad"),
                ("slot_sharing", slot_sharing.place, BOUNDED, "TVM graph_plan_memory.cc; ExecuTorch mem_obj_id"),
                ("caching", caching.place, SOUND, "PyTorch CUDACachingAllocator.cpp"),
                ("best", best.place, SEARCHED, "the best of the fast ones, then a bounded exact search"),
                ("exact", branch_and_bound.place, SEARCHED, "branch and bound after Moffitt, MiniMalloc, ASPLOS 2023"),
            )
        ),
    )
}
"""The planners of this project by name."""


def find(name: str) -> Planner:
    """Return the planner called `name`: a row of `ALLOCATORS`, an installed entry point, a
    stranger's `package.module:function`, a planner of another system (`live_planners`), a command,
    `cmd:./planner --flag` (`by_command`), or a shared library, `lib:./planner.so` (`by_library`).

    An entry point of the group `allocsim.allocators` is such a function, or an `Allocator`, under a
    name of its own; names of the table cannot be taken. Raises UnknownNameError where there is
    none, PlannerError where a stranger's module cannot be imported or is no planner, or where two
    packages offer one name.
    """
    if name in ALLOCATORS:
        return ALLOCATORS[name]
    if name.startswith("cmd:"):
        from allocsim.allocators.by_command import find_command  # noqa: PLC0415 - rarely asked for

        return find_command(name)
    if name in LIVE_PLANNERS:
        return find_live(name)
    if name.startswith("lib:"):
        from allocsim.allocators.by_library import find_library  # noqa: PLC0415 - rarely asked for

        return find_library(name)
    if ":" not in name:
        from allocsim.allocators.strangers import entry_points, find_entry_point, meant  # noqa: PLC0415 - as below

        if name not in entry_points():
            known = meant(name) or {*ALLOCATORS, *LIVE_PLANNERS, *entry_points()}
            raise UnknownNameError("allocator", name, known)
        return find_entry_point(name)
    from allocsim.allocators.strangers import find_stranger  # noqa: PLC0415 - a stranger's import may be anything

    return find_stranger(name)


def find_installed(name: str) -> Planner:
    """Return the planner that data name, say a configuration or a plan's `source`: one of the table
    or of an installed entry point.

    Data never name code: PlannerError for `package.module:function` and for live planners, which
    only a person (or a program of theirs) may ask for; UnknownNameError where there is none of that
    name.
    """
    if ":" in name or name in LIVE_PLANNERS:
        raise PlannerError(
            f"allocator {name!r} names code, which a file may not; the command line may: --allocator {name}"
        )
    return find(name)


def limited(name: str, seconds: float) -> Allocator:
    """Return the planner called `name` with a limit to its search in seconds of processor time.

    Raises PlannerError where it does not search.
    """
    if name != branch_and_bound.NAME:
        raise PlannerError(
            f"allocator {name!r} has no time limit; {branch_and_bound.NAME!r} has, which searches for the least peak"
        )
    return replace(ALLOCATORS[name], placement=partial(branch_and_bound.place, seconds=seconds))


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
    "find_installed",
    "limited",
    "pin_all",
    "pin_nodes",
    "pin_none",
    "pin_reads",
    "pin_values",
    "plan_program",
    "resolve_pins",
]
