"""Hypothesis strategies for programs, problems, plans and sessions.

    from allocsim.fuzzing.strategies import programs

    @given(programs())
    def test_my_planner(program):
        assert allocsim.verify_program(program, my_plan(program)).clean

| strategy | draws |
|---|---|
| `programs()` | programs without defects of their own: views of views, strided and broadcast layouts, mutation, chains of in-place pairs, ops with several results, workspaces, unread results, zero bytes, pins, parameters and states, several arenas and streams |
| `problems()` | what a planner believes of such a program: exactly right, or with `mistakes` planted |
| `plans()` | a sound plan of such a program, or one with `faults` planted |
| `sessions()` | several runs over the same memory as a document, with uploads left out, and with stale plans if asked to |
| `engine.autodiff.training_graphs.training_graphs()` | real graphs of the engine, with backward and optimizer |

Small parts are drawn and nothing is filtered: a program is a list of small recipes
(`program_recipes`), so a failing one shrinks to the few ops that matter. A recipe, with the fault
it may bring, is four draws: Hypothesis deletes up to five in a row, and a list takes one for each
element, so whole recipes go. What is drawn is measured by the tests.

A test that fails is shown, beside its arguments, the Python that builds what was drawn.

What this module does not see: the planner under test. Sound plans come from the shelf, and those of
programs from recipes only.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np
from hypothesis import note
from hypothesis import strategies as st

from allocsim.allocators import ALLOCATORS
from allocsim.fuzzing.batch import changed
from allocsim.fuzzing.planting import FAULTS, MISTAKES, ONTO, Fault, faulty, mistaken
from allocsim.fuzzing.program_recipes import ACTIONS, WIDE, Recipe, assemble
from allocsim.fuzzing.program_tables import CODES, WEIGHTS
from allocsim.fuzzing.scaling import grown, in_list_order, of_arenas
from allocsim.fuzzing.sketch import Choices, Sketch
from allocsim.model import HOST_WRITE, OWN, VIEW, Arena, Document, Plan, Problem, Program, Run

Strategy = st.SearchStrategy

SMALL: Final = st.integers(0, 7)
BOOLEANS: Final = st.booleans()

TRIPLES: Final = sorted(product(range(8), range(8), range(4)), key=lambda three: (sum(three), three))
"""Three small numbers in one draw, the smallest first."""

REST: Final = st.integers(0, 255)
"""As many choices as Hypothesis draws evenly from one range of numbers; of larger ranges it draws
small numbers most of the time.
"""

GROWTH: Final = st.one_of(st.just(0), st.integers(1, 1 << 16))
EMPTY: Final = 8
"""What `scaling.grown` is given; those from 1 to below `EMPTY` stand for a program of nothing."""

CAPACITIES: Final = (None, None, None, 256, 64)
"""Of arenas in bytes, None is unbounded."""

PLANNERS: Final = ("greedy_by_size", "reference", "linear_scan", "best_fit")
"""Shelf planners whose plans `plans` starts from: all promise soundness, ggml does not."""


@cache
def recipes(*, min_size: int = 1, max_size: int = 12, wide: bool = False) -> Strategy[list[Recipe]]:
    """Draw recipes for a program without defects of its own. `wide`: with the ops of `WIDE`."""
    return st.lists(recipe(wide=wide), min_size=min_size, max_size=max_size)


@cache
def recipe(*, wide: bool = False, rest: bool = True) -> Strategy[Recipe]:
    """Draw one recipe, the commonest action first, so that it is what others shrink to.

    Without the `rest` of its choices where it brings a fault, which is a draw more.
    """
    return st.builds(_recipe, st.sampled_from(_actions(wide=wide)), *NUMBERS[: 2 + rest])


NUMBERS: Final = (st.sampled_from(TRIPLES), st.sampled_from(TRIPLES), REST)
"""Of a recipe: i, j and two bits of `how`; k, into and two more; the rest of `how`."""


def _recipe(action: str, reads: tuple[int, int, int], others: tuple[int, int, int], rest: int = 0) -> Recipe:
    return (action, *reads[:2], *others[:2], reads[2] + 4 * others[2] + 16 * rest)


def _actions(*, wide: bool = False) -> list[str]:
    return (
        ["compute"] * 14
        + [*ACTIONS] * 2
        + ["look"] * 12
        + ["download", "mutate"] * 3
        + ["gather"] * 8 * wide
        + [*WIDE] * 3 * wide
    )


@cache
def several(streams: int) -> Strategy[int]:
    """Draw how many streams a program has: mostly one."""
    return st.sampled_from((*(1,) * 4, *range(2, streams + 1)))


@cache
def arenas(*, capacities: tuple[int | None, ...] = CAPACITIES) -> Strategy[list[Arena]]:
    """Draw one to three arenas; capacities are bytes, None is unbounded."""
    arena = st.builds(
        lambda alignment, capacity: Arena(name="a", alignment=alignment, capacity=capacity),
        st.sampled_from((1, 4, 8, 32)),
        st.sampled_from(capacities),
    )
    return st.lists(arena, min_size=1, max_size=3)


@st.composite
def programs(
    draw: Any,
    *,
    max_ops: int = 12,
    capacities: Sequence[int | None] = CAPACITIES,
    streams: int = 3,
    free: bool = False,
    real: bool = False,
) -> Program:
    """Draw a program that is clean with every buffer apart.

    Args:
        draw: Hypothesis's.
        max_ops: recipes at most; one makes an op or two.
        capacities: of arenas, to draw from.
        streams: how many at most.
        free: streams wait only for what they read and write, so that reuse across streams races;
            otherwise every op waits for the one before it, and the order of the list is the only
            one.
        real: half of the programs have more bytes, other alignments, or are many copies in turn
            (`scaling`), a few are empty, and ops have up to twelve operands and eight results.
    """
    drawn = draw(recipes(max_size=max_ops, wide=real))
    program = _assembled(draw, drawn, capacities=capacities, streams=streams, free=free)
    number = draw(GROWTH) if real and not free else 0
    return _shown(assemble((), arenas=program.arenas) if 0 < number < EMPTY else grown(program, number))


class _Script:
    """The Python that builds something, made where a failing test shows it."""

    def __init__(self, document: Callable[[], Document]) -> None:
        self.document = document

    def __repr__(self) -> str:
        from allocsim.reduction.reproducer import builder_script  # noqa: PLC0415 - where a test fails

        return f"# what was drawn is built by\n{builder_script(self.document())}"


def _shown(program: Program) -> Program:
    """Have a failing test show the program as the Python that builds it; return it."""
    note(_Script(lambda: Document(programs=(program,))))
    return program


def _assembled(
    draw: Any,
    chosen: list[Recipe],
    *,
    capacities: Sequence[int | None],
    streams: int = 3,
    free: bool = False,
    after: Callable[[Sketch], object] = lambda _: None,
) -> Program:
    """Draw what is left to choose, and carry out recipes."""
    spaces = draw(arenas(capacities=tuple(capacities)))
    count = draw(several(streams))
    program = assemble(chosen, arenas=spaces, streams=count, after=after)
    if draw(BOOLEANS):
        program = with_uniform_alignments(program)
    if count == 1:
        return program
    if free:
        from allocsim.programs.streams import on_streams  # noqa: PLC0415 - rarely asked for

        return on_streams(program, program.ops.stream.tolist())
    return in_list_order(program)


def runnable_programs(*, max_ops: int = 12) -> Strategy[Program]:
    """Draw programs that the engine has kernels for, element by element, of bulk mode's codes."""
    from allocsim.fuzzing.bulk import assembled  # noqa: PLC0415 - numba

    actions = [action for action, weight in enumerate(WEIGHTS.values()) for _ in range(weight)]
    code = st.builds(_code, st.sampled_from(actions), *NUMBERS)
    spaces = st.lists(st.sampled_from((4, 8, 32)), min_size=1, max_size=2)  # the engine's items are of 4 bytes
    codes = st.lists(code, min_size=1, max_size=max_ops)
    return st.builds(
        lambda drawn, alignments, uniform: assembled([drawn], alignments, uniform=uniform, runnable=True)[0],
        codes,
        spaces,
        st.booleans(),
    )


def _code(action: int, reads: tuple[int, int, int], others: tuple[int, int, int], rest: int) -> tuple[int, ...]:
    """Return a code (`program_tables.CODES`)."""
    choices = Choices(reads[2] + 4 * others[2] + 16 * rest)
    return (action, *reads[:2], others[0], *(choices.draw(ways) for ways in [*CODES.values()][4:]))


@st.composite
def problems(draw: Any, /, *, mistakes: bool = False, **options: Any) -> Problem:
    """Draw what a planner believes of a program as `programs(**options)` draws it: what is so, or
    with mistakes planted if asked for.
    """
    program, planted = _with_faults(draw, MISTAKES if mistakes else (), **options)
    believed = ALLOCATORS["reference"].believe(program)
    made = mistaken(believed, [(name, at, other - at - 1 if name == "shares" else j) for name, at, j, other in planted])
    note(_Script(lambda: Document(programs=(program,), problems=(made,))))
    return made


@st.composite
def plans(draw: Any, /, *, faults: bool = True, **options: Any) -> Plan:
    """Draw a plan of a program as `programs(**options)` draws it: sound as drawn, or with faults
    planted if asked for.
    """
    options.setdefault("capacities", (None,))
    program, planted = _with_faults(draw, FAULTS if faults else (), **options)
    plan = ALLOCATORS[draw(st.sampled_from(PLANNERS))].plan(program)
    made = faulty(
        replace(plan, problem=None), [(name, at, other if name in ONTO else j) for name, at, j, other in planted]
    )
    note(_Script(lambda: Document.of(made)))
    return made


def _with_faults(
    draw: Any,
    names: tuple[str, ...],
    *,
    max_ops: int = 12,
    capacities: Sequence[int | None] = CAPACITIES,
    **options: Any,
) -> tuple[Program, list[tuple[str, int, int, int]]]:
    """Draw a program and faults for it: name, buffer, choice, and another buffer.

    A recipe brings its fault with it, or none, as every second does. The fault befalls the newest
    buffer there is after the recipe, and the other one is named by register, as operands are. So a
    fault goes when its recipe goes, and stays what it is when others go.
    """
    drawn = draw(_recipes_with_faults(names, max_ops))
    places: list[tuple[int, dict[int, int]]] = []

    def after(sketch: Sketch) -> None:
        places.append((len(sketch.sizes) - 1, {place: row.buffer for place, row in sketch.registers.items()}))

    program = _assembled(draw, [made for made, _ in drawn], capacities=capacities, after=after, **options)
    planted = [
        (fault[0], buffer, fault[1], other if (other := held.get(fault[1], buffer)) != buffer else buffer - 1)
        for (_, fault), (buffer, held) in zip(drawn, places, strict=True)
        if fault is not None and buffer >= 0
    ]
    return program, planted


@cache
def _recipes_with_faults(
    names: tuple[str, ...], max_size: int
) -> Strategy[list[tuple[Recipe, tuple[str, int] | None]]]:
    faults = [(name, j) for j in range(8) for name in names]
    made = st.tuples(recipe(rest=False), st.sampled_from([None] * (len(faults) or 1) + faults))
    return st.lists(made, min_size=1, max_size=max_size)


@st.composite
def sessions(draw: Any, /, *, stale: bool = False, max_runs: int = 4, **options: Any) -> Document:
    """Draw a document of one or two planned programs and a session of runs over the same memory.

    A run may leave out uploads, where a run before it made them and their bytes are nobody else's.
    With `stale`, a run may use the plan of another program with as many buffers, and may leave out
    any upload; otherwise the session is clean.
    """
    options.setdefault("capacities", (None,))
    first = draw(programs(**options))
    made = [first]
    if draw(st.booleans()):
        other = assemble(draw(recipes(max_size=8)), arenas=first.arenas, streams=len(first.streams), name="q")
        made.append(in_list_order(other) if len(first.streams) > 1 else other)
    allocator = ALLOCATORS[draw(st.sampled_from(PLANNERS))]
    planned = [replace(allocator.plan(program), problem=None) for program in made]
    runs: list[Run] = []
    drawn = st.tuples(SMALL, SMALL, st.lists(SMALL, max_size=2))
    for choice, other_choice, leave_out in draw(st.lists(drawn, min_size=1, max_size=max_runs)):
        plan = planned[choice % len(planned)]
        program = made[other_choice % len(made)] if stale else plan.program
        if len(program.buffers) != len(plan.program.buffers):
            program = plan.program
        uploads = [op.step for op in program.ops if op.kind == HOST_WRITE]
        if not stale:
            before = any(run.program is program for run in runs)
            uploads = [step for step in uploads if before and lasting(plan, step)]
        skip = tuple(sorted({uploads[number % len(uploads)] for number in leave_out if uploads}))
        runs.append(Run.of(plan, program=program, skip=skip))
    return Document.of(*runs)


@cache
def faults_of(names: Sequence[str], *, min_size: int = 0, max_size: int = 2) -> Strategy[list[Fault]]:
    """Draw faults by name, each with a buffer and a choice."""
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 15), SMALL), min_size=min_size, max_size=max_size)


def with_uniform_alignments(program: Program) -> Program:
    """Return the program with every buffer aligned as its arena is."""
    return changed(program, buffers=changed(program.buffers, alignment=of_arenas(program)))


def lasting(plan: Plan, step: int) -> bool:
    """Return whether what an upload wrote is still there in the next run: in memory of its own, and
    written by no other op.
    """
    program = plan.program
    ops, of_value = program.ops, program.values.buffer
    mine = of_value[ops.results[ops.result_starts[step] : ops.result_starts[step + 1]]]
    writer = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    others = of_value[ops.results[(writer != step) & ~ops.is_kind(VIEW)[writer]]]
    alone = (plan.arena[mine] == OWN) & ~program.buffers.persistent[mine]
    return bool(alone.all()) and not np.isin(mine, others).any()


__all__ = ["arenas", "faults_of", "plans", "problems", "programs", "recipes", "runnable_programs", "sessions"]
