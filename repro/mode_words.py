"""The modes of a scenario: words that say how a program is planned and executed.

A mode is one word, or several words joined by `+`.

    default                       the plan of the planner under test; what the host reads is pinned
    pinned                        the plan of the same planner with every node pinned
    reference                     a plan in which every tensor has memory of its own
    float64                       the program in float64 with every buffer apart: the truth from which rounding errors are measured
    greedy_by_size                the plan of another planner: the name of an allocator, or package.module:function
    pin:backward                  partial pins: a stage, a policy (reads, nodes, all, none), a kind of op, layer.N, or a tensor's name
    deny, deny:mul, deny:mul/1    no in-place pair; none for that kind of op; none over operand 1 of that kind of op
    calls, tape                   an executor (`engine.d_differential.side_comparison.EXECUTORS`)

Words apply from left to right, and a later word overrides an earlier one. `pinned+deny` is the
pinned plan without any in-place pair, and `float64+ggml` runs in float64 on ggml's plan.

What this module does not see: how modes are compared (`engine.d_differential.side_comparison`) and
how they are printed (`repro.commands.mode_tables`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

import numpy as np

from allocsim.allocators import ALLOCATORS, PINS, Constraints, Pins, Planner, find, pin_reads
from allocsim.allocators.planner import Allocator
from allocsim.cure.pairs import Position, without_positions
from allocsim.errors import ModelError, PlannerError, UnknownNameError
from allocsim.model import VIEW, Bools, Plan, Program
from engine.d_differential.side_comparison import EXECUTORS, Progress, Side, SideRecord, compare, silent
from engine.graph.lowering import Lowered
from engine.graph.widening import in_float64, widened
from repro.pipeline import Experiment
from repro.workload import host_runs

TRUTH: Final = "float64"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The planner, pins, dtype and executor that the words of a mode choose."""

    planner: Planner
    pins: Pins = pin_reads
    denied: tuple[str, ...] | None = None
    """The in-place pairs left out of the belief, as `kind` or `kind/operand`. An empty tuple leaves
    out all pairs, and None leaves out no pair."""
    wide: bool = False
    """Whether the program runs in float64."""
    executor: str = next(iter(EXECUTORS))


Word = Callable[[Choice, str, Experiment], Choice]
"""A function from (the choice so far, the text after the colon, the experiment) to the choice that
the word makes of it."""


def _deny(choice: Choice, what: str, _experiment: Experiment) -> Choice:
    return replace(choice, denied=(*(choice.denied or ()), *([what] if what else [])))


def _executed_by(name: str) -> Word:
    return lambda choice, _what, _experiment: replace(choice, executor=name)


WORDS: Final[Mapping[str, Word]] = {
    "default": lambda choice, _what, experiment: replace(choice, planner=experiment.planner, pins=pin_reads),
    "pinned": lambda choice, _what, experiment: replace(choice, planner=experiment.planner, pins=experiment.pins),
    "reference": lambda choice, _what, _experiment: replace(choice, planner=find("reference")),
    TRUTH: lambda choice, _what, _experiment: replace(choice, planner=find("reference"), wide=True),
    "pin": lambda choice, what, experiment: replace(choice, pins=pins_of(experiment.workload.program, what)),
    "deny": _deny,
    **{name: _executed_by(name) for name in EXECUTORS},
}  # fmt: skip
"""Word -> the function that applies it; the names of planners are words too but not listed."""

_PLAIN: Final = frozenset(WORDS) - {"pin", "deny"}
"""The words that take no text after a colon."""


def side_of(experiment: Experiment, name: str) -> Side:
    """Return the mode called `name` as a side to execute: a program, a plan and an executor.

    Raises UnknownNameError for a word that is neither in `WORDS` nor the name of an allocator,
    ModelError for a kind, stage or tensor that the program does not have, and PlannerError if the
    planner cannot plan the program or has no belief for `deny`.
    """
    choice = Choice(planner=experiment.planner)
    for word in name.split("+"):
        head, colon, what = word.partition(":")
        if head in WORDS and not (colon and head in _PLAIN):
            choice = WORDS[head](choice, what, experiment)
            continue
        try:
            choice = replace(choice, planner=find(word))
        except UnknownNameError as error:
            raise UnknownNameError("mode or allocator", word, {*WORDS, *ALLOCATORS}) from error
    workload = experiment.workload
    lowered = in_float64(workload.lowered) if choice.wide else workload.lowered
    parameters = widened(workload.parameters) if choice.wide else workload.parameters
    return Side(
        name=name, lowered=lowered, plan=plan_of(choice, lowered), parameters=parameters, executor=choice.executor
    )


def plan_of(choice: Choice, lowered: Lowered) -> Plan:
    """Return the plan of a program that the choice's planner makes with its pins and denied pairs.

    Raises PlannerError if pairs are denied and the planner has no belief.
    """
    program, planner = lowered.program, choice.planner
    constraints = Constraints.of(program, pins=choice.pins)
    if choice.denied is None:
        return planner.plan(program, constraints)
    if not isinstance(planner, Allocator):
        raise PlannerError(f"allocator {planner.name!r} has no belief; `deny` needs a planner with a belief")
    problem = planner.believe(program, constraints)
    if not choice.denied:
        return planner.place(replace(problem, may_share=problem.may_share[:0]))
    return planner.place(without_positions(problem, denials(program, choice.denied)))


def denials(program: Program, words: Sequence[str]) -> tuple[Position, ...]:
    """Return the (kind, operand, result) of the pairs that words such as `mul/1` name; ModelError
    for a kind or an operand that no op of the program has.
    """
    ops = program.ops
    widths = np.diff(ops.operand_starts), np.diff(ops.result_starts)
    found: list[Position] = []
    for word in words:
        kind, slash, position = word.partition("/")
        if kind not in ops.kinds:
            raise ModelError("deny", f"no op is a {kind!r}; there are {', '.join(sorted(ops.kinds))}")
        operands, results = (int(width[ops.is_kind(kind)].max()) for width in widths)
        if slash and not (position.isdecimal() and int(position) < operands):
            there = f"operands 0 to {operands - 1}" if operands else "no operand"
            raise ModelError("deny", f"{kind} has {there}, and {position!r} is none of them")
        chosen = [int(position)] if slash else range(operands)
        found += [(kind, operand, result) for operand in chosen for result in range(results)]
    return tuple(found)


def pins_of(program: Program, what: str) -> Bools:
    """Return the mask of the buffers that `pin:` followed by `what` pins.

    Unless `what` is a policy of `PINS`, buffers that the host reads are pinned too. Raises
    ModelError if `what` names nothing in the program.
    """
    if what in PINS:
        return PINS[what](program)
    ops, values = program.ops, program.values
    steps = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    kinds = np.array(ops.kinds, dtype=object)[ops.kind] if len(ops) else np.empty(0, dtype=object)
    layer = what.removeprefix("layer.")
    tests: tuple[Callable[[int, int], bool], ...] = (
        lambda step, _value: ops.meta.get(step, {}).get("stage") == what,
        lambda step, _value: kinds[step] == what,
        lambda step, _value: what != layer and layer.isdecimal() and ops.meta.get(step, {}).get("layer") == int(layer),
        lambda _step, value: values.names[value] == what,
    )
    pairs = [
        (step, value) for step, value in zip(steps.tolist(), ops.results.tolist(), strict=True) if kinds[step] != VIEW
    ]
    for test in tests:
        chosen = [value for step, value in pairs if test(step, value)]
        if chosen:
            mask = pin_reads(program).copy()
            mask[values.buffer[chosen]] = True
            return mask
    raise ModelError("pin", f"{what!r} is no policy, stage, kind of op, layer.N or tensor of {program!r}")


def sides_of(experiment: Experiment, names: Sequence[str]) -> tuple[Side, ...]:
    """Return one side for each distinct name; raises the errors of `side_of`."""
    return tuple(side_of(experiment, name) for name in dict.fromkeys(names))


def courses(
    experiment: Experiment, sides: Sequence[Side], *, lockstep: int, progress: Progress = silent
) -> tuple[SideRecord, ...]:
    """Train the sides and compare each with the reference, and with the truth if a side is in
    float64.

    A scenario on several streams is compared in the order in which it trains.

    O(training steps * sides).
    """
    by_name = {side.name: side for side in sides}
    reference = by_name.get("reference") or side_of(experiment, "reference")
    truth = by_name.get(TRUTH)
    if truth is None and any(side.wide for side in sides):
        truth = side_of(experiment, TRUTH)
    return compare(
        sides,
        reference=reference,
        truth=truth,
        runs=host_runs(experiment.workload, experiment.steps),
        lockstep=min(lockstep, experiment.steps),
        order=experiment.workload.order,
        threads=experiment.workload.threads,
        progress=progress,
    )


def record(course: SideRecord, lowered: Lowered, loss: str) -> dict[str, Any]:
    """Return a side as an entry of `differential` in `repro run --json`; a loss that is not finite
    becomes null.
    """
    values = lowered.program.values
    rows = [
        {
            "step": row.step,
            "layer": row.layer,
            "stage": row.stage,
            "tensors": row.tensors,
            "differing": row.differing,
            "ulp": row.ulp,
            "relative": row.relative,
            "op": row.op,
            "tensor": None if row.op is None else lowered.tensors[row.op].name,
            "error": row.error,
            "reference_error": row.reference_error,
            "bound": row.bound,
            "nature": row.nature,
        }
        for row in course.rows
    ]
    first = _first(course, lowered)
    if first is not None and first["value"] is not None:
        first["tensor"] = values.names[first["value"]]
    return {
        "mode": course.name,
        "dtype": "f64" if course.wide else "f32",
        "executor": course.executor,
        "planner": course.plan.source,
        "arena_bytes": course.plan.peak_bytes,
        "nature": course.nature,
        "first_step": course.first_step,
        "first": first,
        "loss": [_finite(float(array.reshape(-1)[0])) for array in course.outputs[loss]],
        "rows": rows,
    }


def _first(course: SideRecord, lowered: Lowered) -> dict[str, Any] | None:
    """Return the first wrong tensor of a side: its first origin, or else the first result that
    differs.

    Return None if nothing differs, and for a float64 side that differs only by rounding.
    """
    origin = course.origins[0] if course.origins else None
    step = origin.op if origin is not None else course.first_op
    if step is None or course.first_step is None or (course.wide and course.nature == "rounding"):
        return None
    op, tensor = lowered.program.ops[step], lowered.tensors[step]
    return {
        "step": course.first_step if origin is None else origin.run + 1,
        "op": step,
        "name": op.name,
        "kind": op.kind,
        "layer": tensor.layer,
        "stage": tensor.stage,
        "tensor": None,
        "value": op.results[0] if origin is None else origin.value,
        "what": None if origin is None else origin.what,
        "inputs_equal": None if origin is None else origin.what == "result",
        "ulp": None if origin is None else origin.ulp,
        "relative": None if origin is None else origin.max_error,
        "nature": course.nature if origin is None else origin.nature,
    }


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None
