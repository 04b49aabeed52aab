"""Plans of real systems with one thing edited: is every edit that changes what an op reads convicted, and whom is it charged to?

    python benchmarks/edited_plans.py [--edits 1000] [--more FOLDER] [--out FILE] [SYSTEM...]

Documents are the samples of `tests/data/plans` that are clean, and those of FOLDER/SYSTEM beside them. `EDITS` are drawn in turn. What an edit changes is
told by a run with opaque kernels (`allocsim.opaque`), which does not know the judge: for a wait that is left out, a run in which the later op goes first. An
edit that changes what is read, or breaks a rule by what it is, must be convicted; exit status 1 where one is not. `parties` and `classes` are of the causes of
those edits, where a document has at most `CAUSES` ops.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from harness import DATA, Found, kept, run

import numpy as np
from retelling import with_programs
from test_cheapest import with_plans

from allocsim import systems
from allocsim.errors import AllocsimError, ModelError
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, Document, Plan, Program
from allocsim.opaque.memories import differences, exchanged
from allocsim.opaque.replay_answers import replays_of
from allocsim.programs.streams import without_wait
from allocsim.verdict import causes_of

OPS = 3000
"""Of a document that is taken, at most."""
CAUSES = 500
TURNS = 20
"""Tries for each edit, at most: many a document has no wait to leave out, or nothing that is in place."""

Given = list[tuple[str, Document]]
Edited = tuple[Document, tuple[int, int, int] | None]
"""A document with one thing edited; of a wait the run, the op and what it no longer waits for."""
Edit = Callable[[Document, random.Random], Edited | None]


def slot(document: Document, plan: Plan, buffer: int, **columns: int) -> Edited:
    """Return a document with one slot of one plan changed."""
    changed = {}
    for name, number in columns.items():
        changed[name] = getattr(plan, name).copy()
        changed[name][buffer] = number
    return with_plans(document, {id(plan): replace(plan, **changed)}), None


def programmed(document: Document, old: Program, new: Program) -> Document:
    """Return a document with one program changed."""
    made = with_programs(document, {id(one): new if one is old else one for one in document.programs})
    return replace(made, session=made.session if document.session is not None else None)


def placed(document: Document, rng: random.Random) -> tuple[Plan, list[int]]:
    """Return a plan and its buffers that have bytes and a slot."""
    plan = rng.choice(document.plans)
    return plan, np.flatnonzero(plan.placed & (plan.program.buffers.nbytes > 0)).tolist()


def offset(document: Document, rng: random.Random) -> Edited | None:
    """Put a slot anywhere among the others."""
    plan, buffers = placed(document, rng)
    if len(buffers) < 2:
        return None
    buffer = rng.choice(buffers)
    step = max(int(plan.program.buffers.alignment[buffer]), 1)
    ends = (plan.offset + plan.nbytes)[plan.arena == plan.arena[buffer]]
    return slot(document, plan, buffer, offset=rng.randrange(0, int(ends.max()), step))


def over(document: Document, plan: Plan, one: int, other: int) -> Edited:
    """Return a document with a slot where another begins."""
    return slot(document, plan, one, arena=int(plan.arena[other]), offset=int(plan.offset[other]))


def onto(document: Document, rng: random.Random) -> Edited | None:
    """Put a slot where another begins."""
    plan, buffers = placed(document, rng)
    return over(document, plan, *rng.sample(buffers, 2)) if len(buffers) > 1 else None


def in_place(document: Document, rng: random.Random) -> Edited | None:
    """Put a result over an operand of the same op."""
    plan, buffers = placed(document, rng)
    having, where = set(buffers), plan.program.values.buffer
    for op in rng.sample(list(plan.program.ops), len(plan.program.ops)):
        pairs = [(int(where[r]), int(where[o])) for r in op.results for o in op.operands]
        pairs = [(one, other) for one, other in pairs if one != other and {one, other} <= having]
        if pairs and op.kind != VIEW:
            return over(document, plan, *rng.choice(pairs))
    return None


def donated(document: Document, rng: random.Random) -> Edited | None:
    """Put a temporary over what the host wrote, or what it is to read."""
    plan, buffers = placed(document, rng)
    ops, where = plan.program.ops, plan.program.values.buffer
    host = {int(where[v]) for op in ops if op.kind in {HOST_READ, HOST_WRITE} for v in (*op.operands, *op.results)}
    kept, rest = [b for b in buffers if b in host], [b for b in buffers if b not in host]
    if not kept or not rest:
        return None
    other = rng.choice(kept)
    return over(document, plan, rng.choice(rest), other)


def small(document: Document, rng: random.Random) -> Edited | None:
    """Make a slot one byte too small."""
    plan, buffers = placed(document, rng)
    if not buffers:
        return None
    buffer = rng.choice(buffers)
    return slot(document, plan, buffer, nbytes=int(plan.program.buffers.nbytes[buffer]) - 1)


def odd(document: Document, rng: random.Random) -> Edited | None:
    """Put a slot between two multiples of its alignment."""
    plan, buffers = placed(document, rng)
    buffers = [buffer for buffer in buffers if plan.program.buffers.alignment[buffer] > 1]
    if not buffers:
        return None
    buffer = rng.choice(buffers)
    step = rng.randrange(1, int(plan.program.buffers.alignment[buffer]))
    return slot(document, plan, buffer, offset=int(plan.offset[buffer]) + step)


def layout(document: Document, rng: random.Random) -> Edited | None:
    """Let an op no longer promise that it works in place, as one that gives its elements another layout."""
    program = rng.choice(document.programs)
    ops = program.ops
    where = program.values.buffer
    within = [[where[op.operands[o]] == where[op.results[r]] for o, r in op.in_place or ()] for op in ops]
    chosen = [op for op, pairs in enumerate(within) if pairs and not any(pairs)]  # in one buffer it is the program's
    if not chosen:
        return None
    op = rng.choice(chosen)
    low, high = int(ops.in_place_starts[op]), int(ops.in_place_starts[op + 1])
    starts = ops.in_place_starts.copy()
    starts[op + 1 :] -= high - low
    row = slice(low, high)
    columns = {"in_place": np.delete(ops.in_place, row, axis=0)}
    columns |= {"in_place_strength": np.delete(ops.in_place_strength, row)}
    less = replace(ops, in_place_starts=starts, **columns)
    return programmed(document, program, replace(program, ops=less)), None


def wait(document: Document, rng: random.Random) -> Edited | None:
    """Leave a wait out."""
    run_ = rng.randrange(len(document.runs))
    program = document.runs[run_].program
    waits = [(op.step, after) for op in program.ops for after in op.after]
    if not waits:
        return None
    op, after = rng.choice(waits)
    return programmed(document, program, without_wait(program, op, after)), (run_, op, after)


EDITS: dict[str, tuple[Edit, bool, str]] = {
    "offset": (offset, False, ""), "onto": (onto, False, ""), "in place": (in_place, False, ""),
    "donation": (donated, False, ""), "layout": (layout, False, "C03 C12"), "wait": (wait, False, "C09"),
    "size": (small, True, "C12"), "alignment": (odd, True, "C12"),
}  # fmt: skip
"""By name: the edit, whether it breaks a rule whatever is read, and its classes where they do not hang on who is met."""


def changes(document: Document, turned: tuple[int, int, int] | None) -> bool:
    """Return whether some op reads something else than it would have with memory of its own for each value."""
    for replay in replays_of(document):
        if turned is None and replay.seen.differences:
            return True
        if turned is not None and turned[0] in replay.group.numbers:
            place = replay.group.numbers.index(turned[0])
            order = exchanged(replay.group, (place, turned[2]), (place, turned[1]))
            if order is not None and differences(replay.group, replay.apart, order).differences:
                return True
    return False


def documents(system: str, more: Path | None) -> Iterator[tuple[str, Document]]:
    """Yield the clean documents of a system, small enough."""
    for folder in filter(None, (DATA / "plans" / system, more / system if more else None)):
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            try:
                document = systems.load(path)
            except (AllocsimError, OSError):
                continue
            ops = sum(len(one.program.ops) for one in document.runs)
            if 0 < ops <= OPS and document.plans and check(document).clean:
                yield path.name, document


def drawn(given: Given, turns: int, rng: random.Random) -> Iterator[tuple[str, Document, str, Edited]]:
    """Yield documents, the edits that are tried in turn, and what they make where they find something to edit."""
    for turn in range(turns if given else 0):
        name, document = given[turn % len(given)]
        kind = list(EDITS)[turn // len(given) % len(EDITS)]
        if (made := EDITS[kind][0](document, rng)) is not None:
            yield name, document, kind, made


def edited(system: str, edits: int, more: Path | None) -> Found:
    """Return what became of the edits of one system's documents."""
    rng, given = random.Random(system), list(documents(system, more))  # noqa: S311 - edits, no secrets
    counts: dict[str, Counter[str]] = {name: Counter() for name in EDITS}
    parties, classes, missed, charged = Counter[str](), Counter[str](), [], []
    for number, (name, document, kind, made) in enumerate(islice(drawn(given, TURNS * edits, rng), edits)):
        _, rule, asked = EDITS[kind]
        try:
            matters = rule or changes(*made)
        except ModelError:
            counts[kind]["not replayed"] += 1
            continue
        convicted = not check(made[0]).clean
        counts[kind][f"{'convicted' if convicted else 'clean'}, {'matters' if matters else 'no number differs'}"] += 1
        if matters and not convicted:
            missed.append([name, kind, number])
        if matters and convicted and sum(len(one.program.ops) for one in document.runs) <= CAUSES:
            causes = causes_of(made[0])
            parties.update({cause.party for cause in causes})
            others = {cause.party for cause in causes} - {"plan"} - ({"schedule"} if kind == "wait" else set())
            right = not asked or {cause.class_ for cause in causes} & set(asked.split())
            other = not right and not (rule and changes(*made))
            if others or other:
                charged.append([name, kind, number])
            classes.update({f"{kind}: {cause.class_}" for cause in causes})
    return {
        "documents": len(given),
        "edits": {kind: dict(sorted(counted.items())) for kind, counted in counts.items() if counted},
        "parties": dict(sorted(parties.items())),
        "classes": dict(sorted(classes.items())),
        "missed": missed,
        "other party or class": charged,
    }


def measure(*names: str, edits: int = 1000, more: str = "", out: Path) -> Iterator[Found]:
    """Edit, replay and judge; systems that are not named keep what was found."""
    every = sorted(path.name for path in (DATA / "plans").iterdir() if path.is_dir())
    done: Found = kept(out).get("systems", {})
    for name in names or every:
        done[name] = edited(name, edits, Path(more) if more else None)
        yield {"systems": done, "missed": sum(len(one["missed"]) for one in done.values())}


if __name__ == "__main__":
    run(measure, failed="missed")
