"""Sound documents by seed, and single faults planted in them over every kind of mend, each with the party and class that it must get.

A document is a program, an honest belief (`allocsim.allocators.exact`), the plan a placement makes of it, and often a second run. A fault changes one thing, as
whoever makes it would: a wrong belief is placed again by the same placement, a wrong slot is one moved slot, a wait is left out of waits that suffice. What is planted is
known by construction, so the party asked for is not read off the judge; only that there is something to see is (`check`), for many a fault does no harm.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from allocsim.allocators import Constraints, exact, find
from allocsim.cure.pairs import used_pairs
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, OWN, VIEW, Document, Plan, Problem, Program, Role, Run
from allocsim.p_sanitizer.incidents import Incident
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.streams import branches, on_streams, without_wait
from allocsim.verdict.evidence import Evidence, KernelRow

SIZES = (32, 64, 96, 128, 256)
PLACEMENTS = ("greedy_by_size", "best_fit", "linear_scan", "ggml")


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """A planted fault."""

    name: str
    evidence: Evidence
    party: str
    classes: frozenset[str]
    """Classes that are right for it."""
    sound: Evidence
    """Its twin without the fault."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A sound document to plant in."""

    program: Program
    problem: Problem
    plan: Plan
    placement: str
    runs: tuple[tuple[int, ...], ...]
    """Uploads left out, run by run."""
    rng: Random

    def document(self, **changed: Any) -> Document:
        """Return the document, with a program, problem, plan or runs changed."""
        plan = changed.get("plan", self.plan)
        return Document.of(*(Run.of(plan, skip=skip) for skip in changed.get("runs", self.runs)))

    def placed(self, problem: Problem) -> Plan:
        """Return the plan that the placement makes of a belief."""
        return find(self.placement).place(problem)


def program_of(rng: Random, ops: int) -> Program:
    """Draw a program: inputs, ops with views, mutations, pairs in place, several results, and what the host reads."""
    b = ProgramBuilder("p")
    alive: list[tuple[int, int]] = []
    """Values that may be read, with their elements."""
    for n in range(rng.randint(1, 3)):
        count = rng.choice(SIZES) // 4
        alive.append((b.tensor(f"x{n}", "f32", (count,), role=Role.INPUT), count))
        b.op(HOST_WRITE, (), (alive[-1][0],), name=f"up{n}")
    if rng.random() < 0.3:
        count = rng.choice(SIZES) // 4
        alive.append((b.tensor("w", "f32", (count,), role=Role.PARAMETER), count))
    for n in range(ops):
        operands = rng.sample(alive, min(len(alive), rng.choice((1, 1, 2, 2, 3))))
        roll = rng.random()
        if roll < 0.12:
            value, count = operands[0]
            alive.append((b.view(value, f"v{n}", (count,)), count))
            continue
        count = rng.choice(SIZES) // 4 if rng.random() < 0.5 else operands[0][1]
        results = [(b.tensor(f"t{n}", "f32", (count,)), count)]
        if roll > 0.9:
            other = rng.choice(SIZES) // 4
            results.append((b.tensor(f"u{n}", "f32", (other,)), other))
        pairs = [(0, 0)] if operands[0][1] == count and rng.random() < 0.5 else []
        b.op(
            rng.choice(("add", "mul", "exp", "dot")),
            [v for v, _ in operands],
            [v for v, _ in results],
            in_place=pairs,
            name=f"op{n}",
        )
        alive += results
        while len(alive) > 6:
            alive.pop(rng.randrange(len(alive)))
    chosen = {alive[-1], *rng.sample(alive, min(len(alive), rng.randint(1, 2)))}
    for value, _ in sorted(chosen):
        b.op(HOST_READ, (value,), (), name="down")
    return b.build()


def ground(seed: int, *, streams: int = 1, ops: int | None = None) -> Ground:
    """Return a sound document by seed."""
    rng = Random(seed)
    program = program_of(rng, ops or rng.randint(4, 12))
    placement = rng.choice(PLACEMENTS)
    problem = exact.believe(program, Constraints.of(program))
    plan = find(placement).place(problem)
    if streams > 1:
        spread = on_streams(program, branches(program, streams), plan=plan)
        problem = replace(problem, program=spread)
        plan = replace(plan, program=spread, problem=problem)
        program = spread
    runs = ((),) * rng.choice((1, 1, 2))
    return Ground(program=program, problem=problem, plan=plan, placement=placement, runs=runs, rng=rng)


# what is planted ----------------------------------------------------------------------------------------------------------------

Planted = tuple[Document | Evidence, str, frozenset[str]]
"""The document, or what was measured of it, the party and the classes."""


def _reads(program: Program, buffer: int) -> list[tuple[int, bool, bool]]:
    """Return (step, by the host, through a view) of each op that reads a buffer."""
    made = program.producer.tolist()
    ops = program.ops
    written = {int(program.values.buffer[v]) for op in ops if op.kind != VIEW for v in op.results}
    found = []
    for op in ops:
        if op.kind == VIEW:
            continue
        mine = [v for v in op.operands if program.values.buffer[v] == buffer]
        if mine:
            own = any(buffer not in written if made[v] < 0 else ops.kinds[ops.kind[made[v]]] != VIEW for v in mine)
            found.append((op.step, op.kind == HOST_READ, not own))
    return found


def _class_of_missed(program: Program, buffer: int, start: int, stop: int) -> frozenset[str]:
    missed = [read for read in _reads(program, buffer) if not start <= read[0] < stop]
    if missed and all(host for _, host, _ in missed):
        return frozenset({"C05"})
    if missed and missed[-1][2]:
        return frozenset({"C02", "C06"} if program.buffers.role[buffer] == Role.INPUT else {"C02"})
    return frozenset({"C01", "C06"} if program.buffers.role[buffer] == Role.INPUT else {"C01"})


def ends_early(g: Ground) -> Planted | None:
    """A believed life ends before its last readers."""
    buffer = g.rng.randrange(len(g.program.buffers))
    steps = [step for step, *_ in _reads(g.program, buffer)]
    if not steps or g.program.buffers.persistent[buffer]:
        return None
    stop = g.problem.stop.copy()
    stop[buffer] = max(g.rng.choice(steps), int(g.problem.start[buffer]) + 1)
    problem = replace(g.problem, stop=stop, may_share=_kept(g.problem, buffer))
    classes = _class_of_missed(g.program, buffer, int(problem.start[buffer]), int(stop[buffer]))
    return g.document(plan=g.placed(problem)), "plan", classes


def _kept(problem: Problem, buffer: int) -> Any:
    """Pairs without those of one buffer: with a wrong life they would be wrong as well."""
    pairs = problem.may_share
    return pairs[(pairs != buffer).all(axis=1)] if len(pairs) else pairs


def made_safe(g: Ground) -> Planted | None:
    """A believed life ends before its last readers, at an op that then takes its place: the first wrong belief makes the second."""
    for op in g.rng.sample(list(g.program.ops), len(g.program.ops)):
        if not op.in_place or op.kind == VIEW:
            continue
        donor, recipient = (
            int(g.program.values.buffer[v]) for v in (op.operands[op.in_place[0][0]], op.results[op.in_place[0][1]])
        )
        later = [step for step, *_ in _reads(g.program, donor) if step > op.step]
        if (
            not later
            or g.program.buffers.persistent[donor]
            or donor == recipient
            or g.problem.start[recipient] != op.step
        ):
            continue
        if sum(g.program.values.buffer[v] == donor for v in op.operands) > 1:
            continue
        stop = g.problem.stop.copy()
        stop[donor] = op.step + 1
        pairs = np.concatenate([_kept(g.problem, donor).reshape(-1, 2), [[donor, recipient]]]).astype(np.int32)
        problem = replace(g.problem, stop=stop, may_share=pairs)
        plan = g.placed(problem)
        return g.document(plan=plan), "plan", _class_of_missed(g.program, donor, int(problem.start[donor]), op.step + 1)
    return None


def born_late(g: Ground) -> Planted | None:
    """A believed life begins after its first write."""
    buffer = g.rng.randrange(len(g.program.buffers))
    first, stop = int(g.problem.start[buffer]), int(g.problem.stop[buffer])
    if stop - first < 2 or g.program.buffers.persistent[buffer]:
        return None
    start = g.problem.start.copy()
    start[buffer] = g.rng.randint(first + 1, stop - 1)
    problem = replace(g.problem, start=start, may_share=_kept(g.problem, buffer))
    classes = _class_of_missed(g.program, buffer, int(start[buffer]), stop) | {"C01"}
    return g.document(plan=g.placed(problem)), "plan", classes


def gap(g: Ground) -> Planted | None:
    """A gap is believed in which the bytes are needed, and a buffer that lives in it lies there, where one does."""
    start, stop, last = g.problem.start, g.problem.stop, g.program.buffers.persistent
    chosen = [b for b in range(len(g.program.buffers)) if stop[b] - start[b] >= 3 and not last[b]]
    classes = frozenset({"C01", "C02", "C05", "C06"})
    for buffer in g.rng.sample(chosen, len(chosen)):
        guests = [b for b in range(len(start)) if start[buffer] < start[b] < stop[b] < stop[buffer] and not last[b]]
        for guest in g.rng.sample(guests, len(guests)):
            problem = replace(
                g.problem, gaps={buffer: ((int(start[guest]), int(stop[guest])),)}, may_share=_kept(g.problem, buffer)
            )
            moved = _moved_onto(g, problem, guest, buffer)
            in_use = _in_use(g, guest) or _in_use(g, buffer)
            if moved is not None and g.plan.arena[guest] == g.plan.arena[buffer] >= 0 and not in_use:
                return g.document(plan=moved), "plan", classes
    if not chosen:
        return None
    buffer = g.rng.choice(chosen)
    low = g.rng.randint(int(start[buffer]) + 1, int(stop[buffer]) - 2)
    problem = replace(g.problem, gaps={buffer: ((low, int(stop[buffer]) - 1),)}, may_share=_kept(g.problem, buffer))
    return g.document(plan=g.placed(problem)), "plan", classes


def _in_use(g: Ground, buffer: int) -> bool:
    """Whether a plan made use of a pair of this buffer: moved, it would break that as well."""
    return any(buffer in pair for pair in used_pairs(g.plan))


def bad_pair(g: Ground) -> Planted | None:
    """A pair is believed and used that may not share: not declared, not exact, or the donor is read later."""
    for op in g.rng.sample(list(g.program.ops), len(g.program.ops)):
        if op.kind in {VIEW, HOST_READ, HOST_WRITE} or not op.results:
            continue
        donor, recipient = int(g.program.values.buffer[op.operands[-1]]), int(g.program.values.buffer[op.results[0]])
        last = g.program.buffers.persistent
        if (
            last[donor]
            or last[recipient]
            or g.problem.start[recipient] != op.step
            or [donor, recipient] in g.problem.may_share.tolist()
        ):
            continue
        if donor == recipient or g.plan.arena[donor] < 0 or g.plan.arena[recipient] < 0:
            continue
        pairs = np.concatenate([g.problem.may_share.reshape(-1, 2), [[donor, recipient]]]).astype(np.int32)
        problem = replace(g.problem, may_share=pairs)
        moved = _moved_onto(g, problem, recipient, donor)
        if moved is not None:
            return g.document(plan=moved), "plan", frozenset({"C03", "C11"})
    return None


def _moved_onto(g: Ground, problem: Problem, buffer: int, other: int) -> Plan | None:
    """Return the plan with one slot exactly over another, where it meets nobody else by belief."""
    plan = replace(g.plan, problem=problem)
    offset = plan.offset.copy()
    offset[buffer] = offset[other]
    low, high = int(offset[buffer]), int(offset[buffer]) + int(plan.nbytes[buffer])
    for third in range(len(offset)):
        if third in {buffer, other} or plan.arena[third] != plan.arena[buffer]:
            continue
        meets = low < offset[third] + plan.nbytes[third] and offset[third] < high
        alive = problem.start[third] < problem.stop[buffer] and problem.start[buffer] < problem.stop[third]
        if meets and alive:
            return None
    return replace(plan, offset=offset)


def untold(g: Ground) -> Planted | None:
    """The host reads what nobody told the planner it would, and the belief ends before."""
    read = [b for b in np.flatnonzero(g.problem.pinned).tolist() if not g.program.buffers.persistent[b]]
    if not read:
        return None
    buffer = g.rng.choice(read)
    pinned, stop = g.problem.pinned.copy(), g.problem.stop.copy()
    pinned[buffer] = False
    steps = [step for step, host, _ in _reads(g.program, buffer) if not host]
    stop[buffer] = max([int(g.problem.start[buffer]), *steps]) + 1
    if not any(step >= stop[buffer] for step, host, _ in _reads(g.program, buffer) if host):
        return None
    problem = replace(g.problem, pinned=pinned, stop=stop, may_share=_kept(g.problem, buffer))
    return g.document(plan=g.placed(problem)), "caller", frozenset({"C05"})


def small(g: Ground) -> Planted | None:
    """A believed size is too small, and the plan is packed by it."""
    movable = [b for b in range(len(g.program.buffers)) if not g.program.buffers.persistent[b]]
    buffer = g.rng.choice(movable)
    nbytes = g.problem.nbytes.copy()
    nbytes[buffer] = max(int(nbytes[buffer]) // 2, 4)
    problem = replace(g.problem, nbytes=nbytes, may_share=_kept(g.problem, buffer))
    return g.document(plan=g.placed(problem)), "plan", frozenset({"C12"})


def shifted(g: Ground) -> Planted | None:
    """One slot lies elsewhere than the placement put it."""
    placed = np.flatnonzero(g.plan.placed).tolist()
    if len(placed) < 2:
        return None
    buffer, offset = g.rng.choice(placed), g.plan.offset.copy()
    other = g.rng.choice([b for b in placed if b != buffer])
    offset[buffer] = max(int(offset[other]) + g.rng.choice((0, 32, -32, 64, 16)), 0)
    classes = {"C12"}
    both = [b for b in placed if b != buffer and offset[b] == offset[buffer]]
    if any(_twins(g.program, buffer, b) for b in both):
        classes.add("C11")  # one slot for two results, or for two inputs, is that
    return g.document(plan=replace(g.plan, offset=offset)), "plan", frozenset(classes)


def _twins(program: Program, one: int, other: int) -> bool:
    made = [
        {step for op in program.ops for step in [op.step] for v in op.results if program.values.buffer[v] == b}
        for b in (one, other)
    ]
    return bool(made[0] & made[1]) or all(program.buffers.role[b] != Role.TEMPORARY for b in (one, other))


def misfit(g: Ground) -> Planted | None:
    """One slot does not fit: too small, between two multiples, or none at all."""
    placed = np.flatnonzero(g.plan.placed).tolist()
    if not placed:
        return None
    buffer = g.rng.choice(placed)
    how = g.rng.choice(("small", "odd", "none"))
    arena, offset, nbytes = g.plan.arena.copy(), g.plan.offset.copy(), g.plan.nbytes.copy()
    if how == "small":
        nbytes[buffer] -= 4
    elif how == "odd":
        offset[buffer] += 4
    else:
        arena[buffer], offset[buffer], nbytes[buffer] = -2, 0, 0
    return g.document(plan=replace(g.plan, arena=arena, offset=offset, nbytes=nbytes)), "plan", frozenset({"C12"})


def left_out(g: Ground) -> Planted | None:
    """The host leaves out an upload of the second run, and something else has taken the bytes, or of the first."""
    uploads = np.flatnonzero(g.program.ops.is_kind(HOST_WRITE)).tolist()
    step = g.rng.choice(uploads)
    if g.rng.random() < 0.25:
        return g.document(runs=_skipping(g, 0, step)), "caller", frozenset({"C14"})
    return g.document(runs=_skipping(g, 1, step)), "caller", frozenset({"C06", "C14"})


def _skipping(g: Ground, run: int, step: int) -> tuple[tuple[int, ...], ...]:
    """Return the runs up to one that leaves out an upload; those that leave out others already stay."""
    last = max([run, *(n for n, skip in enumerate(g.runs) if skip)])
    runs = [g.runs[n] if n < len(g.runs) else () for n in range(last + 1)]
    runs[run] = tuple(sorted({*runs[run], step}))
    return tuple(runs)


def no_wait(g: Ground) -> Planted | None:
    """An op does not wait for another."""
    waits = [(op.step, after) for op in g.program.ops for after in op.after]
    if not waits:
        return None
    op, after = g.rng.choice(waits)
    program = without_wait(g.program, op, after)
    problem = replace(g.problem, program=program)
    plan = replace(g.plan, program=program, problem=problem)
    own = replace(plan, problem=None, arena=np.full(len(plan.arena), OWN, dtype=np.int32))
    apart = check(g.document(plan=own)).of_kind("Race")
    if apart and all(v.op != op for v in apart):
        return None  # it was reuse's at this op, and the program's at a later one: two promises in one wait
    changed = replace(g, program=program, problem=problem, plan=plan)
    return changed.document(), "schedule" if apart else "plan", frozenset({"C09"})


def unwritten(g: Ground) -> Planted | None:
    """The program reads a buffer that nobody wrote."""
    b = _rebuilt(g.program, extra_read=True)
    return _replanned(g, b), "caller", frozenset({"C14"})


def undeclared(g: Ground) -> Planted | None:
    """The program mutates through a kernel that does not declare it."""
    return _replanned(g, _rebuilt(g.program, mutates="undeclared")), "caller", frozenset({"C03"})


def overwritten(g: Ground) -> Planted | None:
    """The program reads a value after a declared mutation of its buffer."""
    return _replanned(g, _rebuilt(g.program, mutates="late")), "caller", frozenset({"program"})


def results(g: Ground) -> Planted | None:
    """The program gives two results of one op the same bytes."""
    return _replanned(g, _rebuilt(g.program, adds="results")), "caller", frozenset({"program"})


def read_only(g: Ground) -> Planted | None:
    """The program writes into a buffer that nobody may write."""
    return _replanned(g, _rebuilt(g.program, adds="read only")), "caller", frozenset({"C11"})


def bounds(g: Ground) -> Planted | None:
    """A value of the program reaches outside its buffer."""
    return _replanned(g, _rebuilt(g.program, adds="bounds")), "caller", frozenset({"C12"})


def state(g: Ground) -> Planted | None:
    """The program counts on what it made in the run before, in a buffer that something else may take: the first run alone lays it."""
    program = _rebuilt(g.program, adds="state")
    problem = exact.believe(program, Constraints.of(program))
    plan = find(g.placement).place(problem)
    laid = next(op.step for op in program.ops if op.name == "lay")
    return Document.of(Run.of(plan), Run.of(plan, skip=(laid,))), "caller", frozenset({"C07"})


def moved_content(g: Ground) -> Planted | None:
    """A second plan of the same program keeps a parameter elsewhere than the first, at a free place."""
    lasting = np.flatnonzero(g.program.buffers.persistent).tolist()
    if not lasting:
        return None
    buffer = g.rng.choice(lasting)
    own, arena, offset, nbytes = (np.copy(row) for row in (g.problem.own, g.plan.arena, g.plan.offset, g.plan.nbytes))
    own[buffer], arena[buffer], nbytes[buffer] = False, 0, g.program.buffers.nbytes[buffer]
    offset[buffer] = -(-int((g.plan.offset + g.plan.nbytes).max()) // 64) * 64
    problem = replace(g.problem, own=own)
    first = replace(g.plan, problem=problem, arena=arena, offset=offset, nbytes=nbytes)
    second = replace(first, offset=np.where(np.arange(len(offset)) == buffer, offset + 256, offset))
    return Document.of(Run.of(first), Run.of(second)), "plan", frozenset({"C07"})


def kernel(g: Ground) -> Planted | None:
    """A kernel is measured unsafe under a declared pair that a legal plan uses."""
    found = _used(g)
    if not found:
        return None
    op, o, r = g.rng.choice(found)
    row = KernelRow(kind=op.kind, operand=o, result=r, declared=True, measured="unsafe", max_error=1.0, cases=1)
    return Evidence(document=g.document(), audit=(row,)), "kernel", frozenset({"C04"})


def promise(g: Ground) -> Planted | None:
    """The plan takes a kernel to be safe in place that nobody vouches for, and it is measured not to be."""
    found = _used(g)
    if not found:
        return None
    op, o, r = g.rng.choice(found)
    ops = g.program.ops
    known = ops.in_place_known & (ops.kind != ops.kind[op.step])
    pairs = np.repeat(known, np.diff(ops.in_place_starts))
    starts = np.concatenate([[0], np.cumsum(np.where(known, np.diff(ops.in_place_starts), 0))])
    program = replace(
        g.program,
        ops=replace(
            ops,
            in_place=ops.in_place[pairs],
            in_place_strength=ops.in_place_strength[pairs],
            in_place_starts=starts,
            in_place_known=known,
        ),
    )
    problem = replace(g.problem, program=program)
    plan = replace(g.plan, program=program, problem=problem)
    row = KernelRow(kind=op.kind, operand=o, result=r, declared=False, measured="unsafe", max_error=1.0, cases=1)
    return (
        Evidence(document=replace(g, plan=plan).document(plan=plan), audit=(row,)),
        "plan",
        frozenset({"C03"}),
    )


def twice(g: Ground) -> Planted | None:
    """A kernel is measured wrong where two operands are one buffer, and the program gives it one twice."""
    program = _rebuilt(g.program, adds="twice")
    row = KernelRow(
        kind="pairwise",
        operand=1,
        result=0,
        layout="duplicate",
        declared=True,
        measured="unsafe",
        max_error=1.0,
        cases=1,
    )
    return Evidence(document=_replanned(g, program), audit=(row,)), "kernel", frozenset({"C04"})


def misdeed(g: Ground) -> Planted | None:
    """A kernel writes or reads what it may not, as the guarded run saw."""
    op = g.rng.choice([op for op in g.program.ops if op.results and op.kind not in {VIEW, HOST_READ, HOST_WRITE}])
    kind, class_ = g.rng.choice(sorted(MISDEEDS.items()))
    incident = Incident(kind=kind, run=0, op=op.step, value=op.results[0], message="m")
    return Evidence(document=g.document(), sanitizer=(incident,)), "kernel", frozenset({class_})


MISDEEDS = {
    "Overrun": "C12",
    "PoisonRead": "C12",
    "OperandWritten": "C03",
    "ReadOnlyWritten": "C03",
    "ResultUnwritten": "C14",
}
"""Kind of incident -> its class."""


def _used(g: Ground) -> list[tuple[Any, int, int]]:
    """Return (op, operand, result) of each declared pair that the plan makes use of."""
    home, used = g.program.values.buffer, set(used_pairs(g.plan))
    return [
        (op, o, r)
        for op in g.program.ops
        for o, r in op.in_place or ()
        if (int(home[op.operands[o]]), int(home[op.results[r]])) in used
    ]


def _add(b: ProgramBuilder, what: str, source: int) -> list[int]:
    """Add a fault of the program's own at its end; return what the host reads of it."""
    if what == "results":
        home = b.buffer("home", 48)
        one, other = (b.value(name, home, "f32", (8,), offset=at) for name, at in (("one", 0), ("other", 16)))
        b.op("split", (source,), (one, other), name="split")
        return [other]
    if what == "read only":
        table = b.buffer("table", 32, role=Role.PARAMETER, read_only=True)
        row = b.value("row", table, "f32", (8,))
        b.op("exp", (source,), (row,), name="spoil")
        return []
    if what == "bounds":
        home = b.buffer("home", 32)
        b.op("exp", (source,), (b.value("long", home, "f32", (12,)),), name="long")
        return []
    if what == "state":
        home = b.buffer("carry", 256)
        first, before, after = (b.value(name, home, "f32", (64,)) for name in ("first", "before", "after"))
        seen, last = b.tensor("seen", "f32", (8,)), b.tensor("last", "f32", (64,))
        b.op(HOST_WRITE, (), (first,), name="lay")
        b.op("use", (before, source), (seen,), name="use")
        b.op("step", (seen,), (after,), name="step")
        b.op("exp", (seen,), (last,), name="last")
        return [last]
    if what == "twice":
        seen = b.tensor("seen", "f32", (8,))
        b.op("pairwise", (source, source), (seen,), name="pairwise")
        return [seen]
    raise KeyError(what)


def _rebuilt(program: Program, *, extra_read: bool = False, mutates: str = "", adds: str = "") -> Program:
    """Return the program with a few more ops at its end, before the host reads."""
    b = ProgramBuilder("p", arenas=program.arenas)
    rows = program.buffers
    for n, name in enumerate(rows.names):
        b.buffer(name, int(rows.nbytes[n]), role=Role(int(rows.role[n])), read_only=bool(rows.read_only[n]))
    for value in program.values:
        b.value(value.name, value.buffer, value.dtype, value.shape, strides=value.strides, offset=value.offset)
    new_result: list[int] = []
    reads = [op for op in program.ops if op.kind == HOST_READ]
    for op in program.ops:
        if op.kind != HOST_READ:
            b.op(op.kind, op.operands, op.results, name=op.name, in_place=op.in_place)
    if adds:
        source = next(op for op in program.ops if op.kind == HOST_WRITE).results[0]
        new_result += _add(b, adds, source)
    if extra_read:
        ghost, seen = b.tensor("ghost", "f32", (8,)), b.tensor("seen", "f32", (8,))
        b.op("probe", (ghost,), (seen,), name="probe")
        new_result.append(seen)
    if mutates:
        home = b.buffer("fresh", 32)
        fresh = b.value("fresh", home, "f32", (8,))
        source = program.values[next(op for op in program.ops if op.kind == HOST_WRITE).results[0]]
        b.op("exp", (source.index,), (fresh,), name="fresh")
        changed = b.value("changed", home, "f32", (8,))
        b.op("step", (fresh,), (changed,), name="step", in_place=[(0, 0)] if mutates == "late" else [])
        seen = b.tensor("seen", "f32", (8,))
        b.op("use", (fresh if mutates == "late" else changed,), (seen,), name="use")
        new_result.append(seen)
    for op in reads:
        b.op(HOST_READ, op.operands, (), name=op.name)
    for value in new_result:
        b.op(HOST_READ, (value,), (), name="more")
    return b.build()


def _replanned(g: Ground, program: Program) -> Document:
    problem = exact.believe(program, Constraints.of(program))
    plan = find(g.placement).place(problem)
    return Document.of(*(Run.of(plan, skip=skip) for skip in g.runs))


def stale(g: Ground) -> Planted | None:
    """The program that runs is another one than the plan was made for: two ops have exchanged what they read."""
    ops = g.program.ops
    rows = [op for op in ops if op.kind not in {VIEW, HOST_READ, HOST_WRITE}]
    if len(rows) < 3:
        return None
    first = g.rng.choice(rows[:-1])
    later = g.rng.choice([op for op in rows if op.step > first.step])
    operands = ops.operands.copy()
    operands[ops.operand_starts[later.step]] = first.operands[0]
    other = replace(g.program, name="q", ops=replace(ops, operands=operands))
    if np.array_equal(operands, ops.operands):
        return None
    return Document.of(Run.of(g.plan), Run.of(g.plan, program=other)), "plan", frozenset({"C08"})


def booked(g: Ground) -> Planted | None:
    """The planner's book gives a buffer back twice."""
    placed = np.flatnonzero(g.plan.placed & (g.problem.stop > g.problem.start)).tolist()
    rows = sorted(
        [(int(g.problem.start[b]), 0, b) for b in placed]
        + [(int(g.problem.stop[b]) - 1, 1, b) for b in placed if not len(used_pairs(g.plan))]
    )
    if len(used_pairs(g.plan)) or not placed:
        return None
    events = sorted(rows, key=lambda row: (row[0], row[1]))
    again = g.rng.choice([row for row in events if row[1] == 1])
    plan = replace(
        g.plan,
        events=np.array([*events, again], dtype=np.int64)[
            np.argsort([*(r[0] for r in events), len(g.program.ops)], kind="stable")
        ],
    )
    return g.document(plan=plan), "plan", frozenset({"C13"})


PLANTS: dict[str, Callable[[Ground], Planted | None]] = {
    f.__name__: f
    for f in (
        ends_early, made_safe, born_late, gap, bad_pair, untold, small, shifted, misfit, left_out, no_wait, unwritten, undeclared,
        overwritten, stale, booked, results, read_only, bounds, state, moved_content, kernel, promise, twice, misdeed,
    )
}  # fmt: skip
"""What can be planted, by name."""

SILENT = frozenset({"HistoryRead", "AssumedInPlace", "LifetimeTooLong"})


def harmful(document: Document) -> bool:
    """Whether the judge sees anything."""
    return not check(document, limit=1).clean


def culprits(seeds: range, names: tuple[str, ...] = tuple(PLANTS)) -> Iterator[Culprit]:
    """Yield a planted fault for each seed where one of these names plants one that shows."""
    for seed in seeds:
        name = names[seed % len(names)]
        g = ground(seed, streams=2 + seed % 2 if name == "no_wait" else 1)
        sound = Evidence(document=g.document())
        planted = PLANTS[name](g)
        if planted is None:
            continue
        what, party, classes = planted
        evidence = what if isinstance(what, Evidence) else Evidence(document=what)
        if isinstance(what, Document) and not harmful(what):
            continue
        yield Culprit(name=f"{name} {seed}", evidence=evidence, party=party, classes=classes, sound=sound)


def unsafe_kernel(seed: int) -> Culprit | None:
    """A kernel that is unsafe under a pair that a legal plan uses, as K measures it."""
    g = ground(seed)
    sound = Evidence(document=g.document(), audit=())
    planted = kernel(g)
    if planted is None or not isinstance(planted[0], Evidence):
        return None
    return Culprit(name=f"unsafe_kernel {seed}", evidence=planted[0], party=planted[1], classes=planted[2], sound=sound)
