"""The properties of planners: one row for each.

A row answers two questions. `suspects` looks at many plans at once, those of a batch, and names the
ones to look at closer: all that break the property, and perhaps some that do not. `broken` looks at
one case with its answer and says why it breaks the property, or None; it alone decides. What a row
does not speak of it passes over: `no_worse` says nothing of alignments other than the arena's,
`sound` nothing of a refusal.

A row speaks of plain cases, of cases with pins beyond what the host reads, of cases that are told
memory of their own and offsets as well, of beliefs, or of all (`FuzzCase.kind`). A batch that is
looked at is of one kind.

A cause is what two findings share that are one fault: words without numbers of the case. Where
there are more than `MANY` violations it is the kind of the first alone, and the reducer finds the
rest of it (`explorer`).

What this module does not see: where cases come from, and processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from allocsim.diagnostics import sentence
from allocsim.diagnostics.document_facts import DocumentFacts
from allocsim.errors import UnknownNameError
from allocsim.fuzzing.batch import Batch, flat
from allocsim.fuzzing.fuzz_case import FAILURES, Answer, FuzzCase
from allocsim.fuzzing.history import CHANCE
from allocsim.fuzzing.laws import LAWS, Law, tops
from allocsim.fuzzing.scaling import in_common_units, side_by_side, uniform
from allocsim.fuzzing.told_constraints import accessed
from allocsim.judge.fast import check, defects
from allocsim.model import OWN, VIEW, Bools, Document, Plan
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import last_writes, side_by_side_values
from allocsim.programs.builder import read_at_end
from allocsim.verdict.attribution import leading

ASSUMED: Final = "AssumedInPlace"

MANY: Final = 300
"""Violations beyond which no verdict is asked for: it takes long, and a smaller program has one."""

Why = tuple[str, str]
"""A cause and a message."""

Suspects = Callable[[Batch, Plan, FuzzCase], Sequence[int]]
"""(programs, plans, the batch as one case) -> the ones to look at closer."""


def nobody(_: Batch, __: Plan, ___: FuzzCase) -> Sequence[int]:
    """Suspect none of those that were answered by a plan."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One row."""

    claim: str
    """What holds of every planner."""
    broken: Callable[[FuzzCase, Answer], Why | None]
    suspects: Suspects = nobody
    of: str = ""
    """`plain`, `pinned`, `told`, `gapped`, `free`: cases it speaks of alone (`FuzzCase.kind`)."""
    guarantee: str = ""
    """A name of `allocsim.allocators.GUARANTEES`: planners that state their guarantees are asked
    only where this is one of them.
    """
    promised: bool = False
    """Whether a planner that states nothing is not asked: not every planner is meant to."""
    law: Law | None = None
    """How the answers to two cases compare; a law alone decides, and suspects nothing."""


# failures -----------------------------------------------------------------------------------------


def no_answer(case: FuzzCase, answer: Answer) -> Why | None:
    """Broken by every failure but a plan beyond a capacity, and by a refusal where no arena has an
    end: there is room for all bytes side by side, whatever the alignments are and whatever is told.

    The cause is how it failed and where.
    """
    failure = answer.failure
    if answer.refused is not None and all(arena.capacity is None for arena in case.program.arenas):
        return "refuses where there is no end", f"no arena has an end, and it refused: {answer.refused}"
    if failure is None or failure.kind == "exceeds":
        return None
    return f"{failure.kind} {failure.where}".strip(), f"{FAILURES[failure.kind]}: {failure.words}"


def over_capacity(_: FuzzCase, answer: Answer) -> Why | None:
    """Broken by a plan beyond a capacity, where a refusal was due."""
    if answer.failure is None or answer.failure.kind != "exceeds":
        return None
    return "exceeds", f"{FAILURES['exceeds']}: {answer.failure.words}"


def two_answers(_: FuzzCase, answer: Answer) -> Why | None:
    """Broken by a second answer unlike the first."""
    return None if answer.again else (CHANCE, "asked twice, it answered in two ways")


# plans --------------------------------------------------------------------------------------------


def unsound(case: FuzzCase, answer: Answer) -> Why | None:
    """Broken by a plan with a violation.

    The cause is kind, class and party of the one a verdict names first.

    And by bytes kept outside all arenas that the planner was not told to keep there, whatever its
    own problem says of it.
    """
    if answer.plan is None:
        return None
    document, own = Document.of(answer.plan), case.constraints.own
    return _leading(document) or _kept_outside(answer.plan, own) or _assumed(document)


def _assumed(document: Document) -> Why | None:
    """Return what is taken in place where nobody knows whether the kernel allows it: to the judge a
    warning, of a planner a guess.
    """
    if document.plans[0].program.ops.in_place_known.all():
        return None
    report = check(document, strict=True, plain=True, limit=1)
    found = [violation for violation in report.violations if violation.kind == ASSUMED]
    return (f"{ASSUMED} C04 plan", sentence(DocumentFacts(document), found[0])) if found else None


def assumed_in(plan: Plan) -> Int64s:
    """Return the ops that declare nothing and of which a result lies on bytes of an operand's slot.

    O(pairs of operands and results of these ops).
    """
    ops, home = plan.program.ops, plan.program.values.buffer
    op, operand, result = side_by_side_values(ops, ~ops.in_place_known)
    donor, recipient = home[operand], home[result]
    low, high = plan.offset, plan.offset + plan.nbytes
    meets = (donor != recipient) & (plan.arena[donor] == plan.arena[recipient]) & (plan.arena[donor] >= 0)
    meets &= (low[donor] < high[recipient]) & (low[recipient] < high[donor])
    found: Int64s = np.unique(op[meets])
    return found


def _kept_outside(plan: Plan, told: Bools) -> Why | None:
    found = np.flatnonzero(_untold(plan, told) & accessed(plan.program))
    if not len(found):
        return None
    buffer = int(found[0])
    what = f"buffer {buffer} {plan.program.buffers.names[buffer]!r}"
    rule = (
        "is answered with memory of its own, which the planner was not told; its bytes are in no arena and in no peak"
    )
    return "OwnUntold C12 plan", f"{what} {rule}"


def _untold(plan: Plan, told: Bools) -> Bools:
    mask: Bools = (plan.arena == OWN) & ~told & (plan.program.buffers.nbytes > 0)
    return mask


def _leading(document: Document) -> Why | None:
    report = defects(document, limit=1, plain=True)
    if report.count > MANY:
        return report.violations[0].kind, sentence(DocumentFacts(document), report.violations[0])
    first = None if report.clean else leading(document)
    if first is None:
        return None
    return " ".join(part for part in (first.violation.kind, first.class_, first.fault) if part), first.violation.message


def unsound_among(batch: Batch, plan: Plan, whole: FuzzCase | None = None) -> Sequence[int]:
    """Return the programs of a batch with a violation: one check of them all."""
    laid, alone = flat(batch, plan)
    told = plan.program.buffers.persistent if whole is None else whole.constraints.own
    outside = batch.owner[_untold(plan, told)].tolist()
    guessed = np.searchsorted(batch.op_starts, assumed_in(plan), side="right") - 1
    return sorted({*alone, *outside, *guessed.tolist(), *batch.unsound(laid)})


def lost(case: FuzzCase, answer: Answer) -> Why | None:
    """Broken by a plan, sound but for that, without a pinned buffer's bytes at the end."""
    if answer.plan is None or case.pinned is None or unsound(case, answer) is not None:
        return None
    return _overwritten(answer.plan, case.pinned)


def lost_among(batch: Batch, plan: Plan, whole: FuzzCase) -> Sequence[int]:
    """Return the programs of a batch that lose a pinned buffer: one check of them all."""
    if whole.pinned is None:
        return ()
    laid, alone = flat(batch, plan)
    return sorted({*alone, *batch.unsound(with_pins_read(laid, whole.pinned))})


def disobeyed(case: FuzzCase, answer: Answer) -> Why | None:
    """Broken by a plan that does otherwise than it was told: a pinned buffer that something is laid
    over, memory of its own that was told and not given or given and not told, another offset than
    the decided one; and by a plan that is unsound since something was told.
    """
    if answer.plan is None or case.pinned is None:
        return None
    plan = replace(answer.plan, problem=case.problem)
    why = _leading(Document.of(plan)) or _kept_outside(plan, case.constraints.own)
    return why or _overwritten(plan, case.pinned)


def _overwritten(plan: Plan, pinned: Bools) -> Why | None:
    """Say which pinned buffer has lost its bytes at the end. A program without ops writes none, and
    its lives are a belief that an op more would take away.
    """
    why = _leading(Document.of(with_pins_read(plan, pinned))) if len(plan.program.ops) else None
    return None if why is None else ("a pinned buffer is overwritten", why[1])


def disobeyed_among(batch: Batch, plan: Plan, whole: FuzzCase) -> Sequence[int]:
    """Return the programs of a batch whose plan is not as it was told: two checks of all."""
    if whole.pinned is None:
        return ()
    laid, alone = flat(batch, replace(plan, problem=whole.problem))
    outside = batch.owner[_untold(plan, whole.constraints.own)].tolist()
    kept = batch.unsound(with_pins_read(laid, whole.pinned))
    return sorted({*alone, *outside, *batch.unsound(laid), *kept})


def unsound_by_gaps(case: FuzzCase, answer: Answer) -> Why | None:
    """Broken by two buffers that share bytes while both are stated to live, in no gap of either."""
    if answer.plan is None or case.believed is None:
        return None
    return _leading(Document.of(replace(answer.plan, problem=case.believed)))


def unsound_by_gaps_among(batch: Batch, plan: Plan, whole: FuzzCase) -> Sequence[int]:
    """Return the programs of a batch, none of which has ops, whose plan does not heed the lives
    and gaps that are stated: one check of them all.
    """
    if whole.believed is None:
        return ()
    laid, alone = flat(batch, replace(plan, problem=whole.believed))
    return sorted({*alone, *batch.unsound(laid)})


def with_pins_read(plan: Plan, pinned: Bools) -> Plan:
    """Return the plan of the same program with one more op, in which the host reads what was last
    written into each pinned buffer.

    Belief and events are those of the shorter program and are left out. O(columns).
    """
    program = plan.program
    ops = program.ops
    step = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    acts = ~ops.is_kind(VIEW)[step] & pinned[program.values.buffer[ops.results]]
    step, values = step[acts], ops.results[acts]
    read = values[step == last_writes(program)[program.values.buffer[values]]]
    return replace(plan, program=read_at_end(program, read), problem=None, events=plan.events[:0])


def worse(case: FuzzCase, answer: Answer) -> Why | None:
    """Broken by more bytes in an arena than all its buffers take side by side, where all alignments
    are the arena's, and by a refusal where those would fit, each at a multiple of all alignments. A
    refusal where no arena has an end is no plan's size: `answers` tells it.
    """
    if case.constraints.fixed:
        return None
    arenas = case.program.arenas
    if answer.plan is not None and uniform(case.program).all():
        limits = side_by_side(case.program, answer.plan.arena >= 0).tolist()
        for arena, found, limit in zip(arenas, tops(answer.plan, rounded=True), limits, strict=True):
            if found > limit:
                message = f"its plan ends at byte {found} of arena {arena.name!r}; without any reuse {limit} are enough"
                return "more bytes than without reuse", message
    if answer.refused is not None and any(arena.capacity is not None for arena in arenas):
        limits = side_by_side(in_common_units(case.program), ~case.constraints.own).tolist()
        if all(arena.capacity is None or limit <= arena.capacity for arena, limit in zip(arenas, limits, strict=True)):
            return "refuses what fits without reuse", f"it refused what fits without any reuse: {answer.refused}"
    return None


def worse_among(batch: Batch, plan: Plan, whole: FuzzCase | None = None) -> Sequence[int]:
    """Return the programs of a batch with uniform alignments whose plan takes more bytes in some
    arena than they have; none where offsets are told, which no bound is known of.
    """
    if whole is not None and whole.constraints.fixed:
        return ()
    program = batch.program
    over = np.array(tops(plan, rounded=True)) > side_by_side(program, plan.arena >= 0)
    found = np.unique(np.flatnonzero(over) // batch.arenas)
    mixed = np.zeros(len(batch), dtype=np.bool_)
    mixed[batch.owner[~uniform(program)]] = True
    left: list[int] = found[~mixed[found]].tolist()
    return left


def silent(_: FuzzCase, __: Answer) -> Why | None:
    """Say nothing of one answer: a law compares two."""
    return None


def promise(name: str, claim: str, of: str = "plain") -> dict[str, Property]:
    """Return the row of a law."""
    return {name: Property(claim=claim, broken=silent, of=of, guarantee=name, promised=True, law=LAWS[name])}


PROPERTIES: Final[dict[str, Property]] = {
    "answers": Property(claim="every program gets a plan or a clear refusal", broken=no_answer),
    "capacity": Property(claim="a capacity is kept, or the problem refused", broken=over_capacity),
    "sound": Property(
        claim="every plan is clean under S, H and L, takes nothing in place where nobody knows whether the kernel "
        "allows it, and keeps nothing outside the arenas that it was not told to",
        broken=unsound,
        suspects=unsound_among,
        of="plain",
    ),
    "pins": Property(claim="a pin never makes a plan unsound", broken=unsound, suspects=unsound_among, of="pinned"),
    "kept": Property(claim="what is pinned is there at the end", broken=lost, suspects=lost_among, of="pinned"),
    "told": Property(
        claim="pins, memory of its own and offsets are as it was told",
        broken=disobeyed,
        suspects=disobeyed_among,
        of="told",
    ),
    "gaps": Property(
        claim="a gap in a life never makes a plan unsound",
        broken=unsound_by_gaps,
        suspects=unsound_by_gaps_among,
        of="gapped",
    ),
    "streams": Property(
        claim="where ops of several streams do not wait for each other, no plan takes their order for a wait",
        broken=unsound,
        suspects=unsound_among,
        of="free",
        guarantee="streams",
        promised=True,
    ),
    "no_worse": Property(
        claim="no more bytes than without reuse", broken=worse, suspects=worse_among, guarantee="at_most_reference"
    ),
    "deterministic": Property(
        claim="the same question has the same answer", broken=two_answers, guarantee="deterministic"
    ),
    **promise("rename", "other names move no slot"),
    **promise("permute", "buffers numbered otherwise change no peak, where all alignments are the arena's"),
    **promise("split_arena", "no slot moves for what lies in another arena"),
    **promise("add_pin", "one pin more lowers no peak", of="pinned"),
    **promise("enlarge", "a larger buffer lowers no peak", of="gapped"),
    **promise("monotone", "a longer life lowers no peak", of="gapped"),
}
"""Every property by name, in the order in which they are judged.

`bits` joins them where an engine is given (`examination`). Of a law, `of` says what the planner
must take to be asked: pins, or lives as they are stated.

`pins` is broken only by what is sound without the pins (`examination`), `kept` by what is sound
with them, `gaps` by what is sound without the gaps.
"""


def asked_of(
    guarantees: Sequence[str] | None, *, told: bool = True, places: bool = True, without: Sequence[str] = ()
) -> list[str]:
    """Return the names of the properties a planner is held to.

    All, less those whose guarantee it leaves out on purpose, those that must be promised, those of
    what is told for one that is not `told` of anything, those of beliefs for one that `places`
    none, and those `without`.

    Raises UnknownNameError for a name `without` that is no property's.
    """
    for name in without:
        if name not in PROPERTIES:
            raise UnknownNameError("property", name, PROPERTIES)
    stated = None if guarantees is None else {GUARANTEED.get(name, name) for name in guarantees}
    return [
        name
        for name, row in PROPERTIES.items()
        if (not row.guarantee or (not row.promised if stated is None else row.guarantee in stated))
        and (told or row.of not in {"pinned", "told"})
        and (places or row.of != "gapped")
        and name not in without
    ]


GUARANTEED: Final = {"no_worse": "at_most_reference"}
"""Names that planners may use for guarantees that the shelf calls otherwise."""


__all__ = ["PROPERTIES", "Property", "Why", "asked_of", "side_by_side", "uniform"]
