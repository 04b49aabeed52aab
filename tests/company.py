"""What may not change an answer: other names and numbers, true calls, dead ops, a buffer in two pieces, company in one document, another legal order.

Each law takes a planted fault (`culprits`) and returns the same fault told otherwise. Compared are party, class, places and mend of every cause, the kinds of
change that its cure makes, and its prices: bytes, bytes with everything apart, and overlap. Under calls the class is left out; with more ops the overlap, for
these could have run at once too; in company what everything apart costs, for that is everything of both. Under another order the cure and its prices are compared where the same buffers live at once, really and as believed; elsewhere
the question is another one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from culprits import Culprit, ground
from renumbering import shuffled
from retelling import exchanged, halved, living_at_once, merged_of, retold, splittable, with_a_dead_op, with_calls

from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Law:
    """One way to tell a fault otherwise."""

    told: Callable[[Culprit], Evidence | None]
    """None where it cannot be told so."""
    classes: bool = True
    cures: bool = True
    overlap: bool = True
    everything: bool = True


def broken(name: str, culprit: Culprit) -> str | None:
    """Return what a law does to the answer on a fault: nothing if it is kept, None where the law says nothing of it."""
    law = LAWS[name]
    told = law.told(culprit)
    if told is None:
        return None
    before, after = (_said(judge(evidence, cures=law.cures), law) for evidence in (culprit.evidence, told))
    return "" if before == after else f"{before} became {after}"


def _said(verdict: Any, law: Law) -> Any:
    """Return what must not change: party, class, places, mend and cure of every cause, and the cure of all."""
    rows = sorted(
        (c.party, c.class_ if law.classes else "", c.places, c.change.kind, _cured(c.cure, law)) for c in verdict.causes
    )
    return rows, _cured(verdict.cure, law)


def _cured(cure: Any, law: Law) -> tuple[Any, ...]:
    if cure is None or not law.cures:
        return ()
    kinds = tuple(sorted(element["kind"] for element in cure.as_json()["elements"]))
    everything = -1 if cure.pin_all_bytes is None or not law.everything else cure.pin_all_bytes
    other = () if cure.alternative is None else _cured(cure.alternative, law)
    return kinds, cure.nbytes, everything, cure.overlap if law.overlap else 0, cure.minimal, other


def _of(culprit: Culprit, document: Document) -> Evidence:
    """Return what was measured with another document; only where nothing measured names an op, value or run."""
    return Evidence(document=document, audit=culprit.evidence.audit, diverges=culprit.evidence.diverges)


def _measured(culprit: Culprit) -> bool:
    return bool(culprit.evidence.origins or culprit.evidence.sanitizer)


def renumbered(culprit: Culprit) -> Evidence:
    """Buffers and values have other numbers, and everything has another name."""
    return shuffled(culprit.evidence, 5)


def with_true_calls(culprit: Culprit) -> Evidence | None:
    """The middle of each program is one call, its end another."""
    return None if _measured(culprit) else _of(culprit, with_calls(culprit.evidence.document))


def with_a_last_op(culprit: Culprit) -> Evidence | None:
    """An op at the end writes what nobody reads."""
    return None if _measured(culprit) else _of(culprit, with_a_dead_op(culprit.evidence.document))


def merged(culprit: Culprit) -> Evidence | None:
    """A sound document runs after it, over memory of its own."""
    document = culprit.evidence.document
    unsafe = any(row.measured == "unsafe" for row in culprit.evidence.audit or ())
    if _measured(culprit) or unsafe or document.session is None:
        return None  # a kernel that is unsafe here is so in the other document as well
    return _of(culprit, merged_of(document, ground(90_001).document()))


def with_an_op_amid(culprit: Culprit) -> Evidence | None:
    """Somewhere among the others an op writes a buffer of its own that nobody reads."""
    document = culprit.evidence.document
    if _measured(culprit) or len(document.programs) != 1:
        return None
    (program,) = document.programs
    place = Random(len(program.values)).randrange(len(program.ops))
    ops = list(range(len(program.ops)))
    return _of(culprit, retold(document, [*ops[:place], None, *ops[place:]]))


def reordered(culprit: Culprit) -> Evidence | None:
    """Neighbours that meet in no byte of the plan change places, a few times over; beliefs and book move along."""
    return _reordered(culprit, lambda _old, _new: True)


def reordered_alike(culprit: Culprit) -> Evidence | None:
    """The same, where it leaves alone which buffers live at once."""
    return _reordered(culprit, lambda old, new: living_at_once(old) == living_at_once(new))


def _reordered(culprit: Culprit, wanted: Callable[[Document, Document], bool]) -> Evidence | None:
    document = culprit.evidence.document
    if _measured(culprit) or len(document.programs) != 1 or len(document.programs[0].streams) > 1:
        return None
    if len({id(plan) for plan in document.plans}) != 1 or document.plans[0].problem is None:
        return None
    rng, swaps = Random(len(document.programs[0].values)), 0
    for place in rng.sample(range(len(document.programs[0].ops) - 1), len(document.programs[0].ops) - 1):
        changed = exchanged(document, place)
        if changed is not None and wanted(document, changed):
            document, swaps = changed, swaps + 1
    return _of(culprit, document) if swaps else None


def split(culprit: Culprit) -> Evidence | None:
    """A buffer that nothing is said of is two, one behind the other, and its value two values."""
    document = culprit.evidence.document
    if _measured(culprit) or len(document.programs) != 1 or any(len(plan.events) for plan in document.plans):
        return None
    verdict = judge(culprit.evidence, cures=False)
    found = (*verdict.report.violations, *verdict.report.warnings)
    named = {buffer for v in found for buffer in (v.buffer, v.other_buffer)}
    chosen = [b for b in splittable(document) if b not in named]
    return _of(culprit, halved(document, Random(len(found)).choice(chosen))) if chosen else None


LAWS: dict[str, Law] = {
    "renumbered": Law(told=renumbered),
    "with true calls": Law(told=with_true_calls, classes=False),
    "with a last op": Law(told=with_a_last_op, overlap=False),
    "with an op amid": Law(told=with_an_op_amid, overlap=False),
    "merged": Law(told=merged, everything=False),
    "reordered": Law(told=reordered, cures=False),
    "reordered alike": Law(told=reordered_alike),
    "split": Law(told=split),
}
