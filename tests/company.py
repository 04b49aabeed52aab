"""What may not change an answer: other names and numbers, true calls, dead ops, a buffer in two pieces, company in one document, another legal order.

Each law takes a planted fault (`culprits`) and returns the same fault told otherwise. Compared are party, class, places and mend of every cause, and its price;
under another order the price is left out, for what lives at once is something else there; under calls the class.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from culprits import Culprit, ground
from renumbering import shuffled
from retelling import exchanged, halved, merged_of, retold, splittable, with_a_dead_op, with_calls

from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Law:
    """One way to tell a fault otherwise."""

    told: Callable[[Culprit], Evidence | None]
    """None where it cannot be told so."""
    classes: bool = True
    prices: bool = True


def broken(name: str, culprit: Culprit) -> str | None:
    """Return what a law does to the answer on a fault: nothing if it is kept, None where the law says nothing of it."""
    law = LAWS[name]
    told = law.told(culprit)
    if told is None:
        return None
    before, after = (_said(judge(evidence, cures=law.prices), law) for evidence in (culprit.evidence, told))
    return "" if before == after else f"{before} became {after}"


def said(verdict, *, classes=True):
    """Return what must not change: party, class, places, mend and price of every cause, and the price of all."""
    return (
        sorted(
            (c.party, c.class_ if classes else "", c.places, c.charge.kind, -1 if c.cure is None else c.cure.nbytes)
            for c in verdict.causes
        ),
        verdict.cure_bytes,
    )


def _said(verdict: Any, law: Law) -> Any:
    causes, price = said(verdict, classes=law.classes)
    return (causes, price) if law.prices else [row[:4] for row in causes]


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
    document = culprit.evidence.document
    if _measured(culprit) or len(document.programs) != 1 or len(document.programs[0].streams) > 1:
        return None
    if len({id(plan) for plan in document.plans}) != 1 or document.plans[0].problem is None:
        return None
    rng, swaps = Random(len(document.programs[0].values)), 0
    for place in rng.sample(range(len(document.programs[0].ops) - 1), len(document.programs[0].ops) - 1):
        changed = exchanged(document, place)
        if changed is not None:
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
    "with a last op": Law(told=with_a_last_op),
    "with an op amid": Law(told=with_an_op_amid),
    "merged": Law(told=merged),
    "reordered": Law(told=reordered, prices=False),
    "split": Law(told=split),
}
