"""Find the causes of a document, most important first, and search for their cures.

A cause is a mend (`allocsim.verdict.charging`) with a name (`naming`), words (`saying`) and a cure
(`allocsim.cure`). All violations that one mend explains are one cause. The mends of one instruction
in several turns of a loop, or on several paths through the program, are one cause too (`turns`).

Causes are ordered by these keys: the cause of the first wrong number if D ran; most bytes read
wrong; a violation in a run before a wrong belief alone; earliest run and step; most places.

Complexity: the judge's checks run once, and a few more times for a cure. The cure of all causes
takes at most `STEPS` steps. Then the cures of single causes are searched, the most important first,
until `WORK` steps are spent; `Cause.sought` is False for a cause with an unfinished search.

This module does not examine files and the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from allocsim.allocators.planner import Allocator
from allocsim.cure import CURABLE, STEPS, Cure, CureSearch
from allocsim.cure.changes import Change, Charges, program_of
from allocsim.cure.defects import Key, key_of
from allocsim.cure.effort import Effort
from allocsim.cure.ranks import ranks
from allocsim.judge.violations import Report, Violation
from allocsim.model import Document
from allocsim.verdict.charging import charges_of
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.measured import explains, kernel_causes, sanitizer_causes, twice_causes, unknown_causes
from allocsim.verdict.naming import name_of
from allocsim.verdict.records import Cause
from allocsim.verdict.saying import cause_of
from allocsim.verdict.turns import by_turns

WORK: Final = 190_000
"""The number of steps (`allocsim.cure.effort`) for the dossier's trials, then for the cure of all
causes, then for the cures of single causes.

If no step is left for the cure of a single cause, only the cure of all causes covers that cause."""


def causes_of(document: Document, report: Report | None = None) -> tuple[Cause, ...]:
    """Return the causes of all that S, H and L find in a document, most important first, without
    cures. `report` is the judge's report on this document, if already made. That report should
    limit its list for each kind of violation separately (`of_each_kind`).
    """
    return found_in(Dossier(Evidence(document=document), report))


def found_in(dossier: Dossier) -> tuple[Cause, ...]:
    """Return all causes of a dossier, most important first, without cures."""
    static = [
        cause_of(dossier, mend, violations, name_of(dossier, mend, violations))
        for mend, violations in charges_of(dossier).items()
        if violations
    ]
    known = [
        *by_turns(dossier.document, static),
        *kernel_causes(dossier),
        *twice_causes(dossier),
        *sanitizer_causes(dossier),
    ]
    return ordered(dossier, [*known, *unknown_causes(dossier, known)])


def ordered(dossier: Dossier, causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the causes numbered and sorted, the most important first."""
    origins = dossier.evidence.origins or ()

    def importance(cause: Cause) -> tuple[object, ...]:
        return (
            not (origins and explains(dossier, cause, origins[0])),
            -cause.wrong_bytes,
            all(v.problem is not None and v.plan is None for v in cause.violations) and bool(cause.violations),
            _none_first(cause.first.run),
            _none_first(cause.first.step),
            -cause.places,
            cause.class_,
            cause.party,
            *_place_of(dossier, cause.change),
        )

    found, asked = sorted(causes, key=importance), not dossier.effort.cut
    return tuple(replace(cause, number=number, asked=asked) for number, cause in enumerate(found, start=1))


def causes_by_violation(causes: Iterable[Cause]) -> dict[Key, Cause]:
    """Return for each violation's key the most important cause that explains the violation."""
    found: dict[Key, Cause] = {}
    for cause in causes:
        for v in cause.violations:
            found.setdefault(key_of(v), cause)
    return found


def _place_of(dossier: Dossier, mend: Change) -> tuple[object, ...]:
    """Return a sort key for mends of equal importance that does not depend on numbering."""
    program = program_of(mend, dossier.document)
    order = ranks(program) if mend.plan is None else dossier.ranks(mend.plan)
    homes = [None if buffer is None else int(order[buffer]) for buffer in (mend.buffer, mend.other)]
    steps = (mend.plan, mend.problem, mend.program, mend.op, mend.after, mend.operand, mend.result)
    return mend.kind, mend.op_kind or "", *map(_none_first, (*steps, *homes))


def _none_first(index: int | None) -> int:
    """Return a sort key for an index; None comes before every index."""
    return -1 if index is None else index


def charges_in(causes: Iterable[Cause]) -> Charges:
    """Return the changes of these causes, each with the violations that the change must remove."""
    found: dict[Change, tuple[Violation, ...]] = {}
    for cause in causes:
        for turn in cause.turns or (cause,):
            found[turn.change] = (*found.get(turn.change, ()), *turn.violations)
    return found


def with_cures(
    dossier: Dossier, causes: Sequence[Cause], work: int | None = None
) -> tuple[tuple[Cause, ...], Cure | None]:
    """Return the causes, each with its own cure, and one cure of all curable causes.

    If no cure of all curable causes is found, a joint cure is searched for the causes that each
    have a cure of their own. `work` is a number of steps, by default `WORK`.
    """
    curable = [cause for cause in causes if cause.change.kind in CURABLE]
    work = WORK if work is None else work
    together, sharing = Effort(min(STEPS, work)), _sharing(causes)
    whole = _search(dossier, curable, sharing, effort=together).found()
    singles: dict[int, Cure | None] = {}
    if len(curable) == 1 and (whole is not None or not together.cut):
        singles[id(curable[0])] = whole
    each = Effort(max(work - together.spent - dossier.effort.spent, 1))
    for cause in curable if len(curable) > 1 else ():
        if each.over or each.cut:  # the next check would exceed the steps too
            break
        cure = _search(dossier, [cause], sharing, anew=False, effort=each).found()
        if cure is not None or not each.cut:
            singles[id(cause)] = cure
    if whole is None and not together.cut:
        cured = [cause for cause in curable if singles.get(id(cause)) is not None]
        whole = _search(dossier, cured, sharing, effort=together).found()
    unsought = {id(cause) for cause in curable} - singles.keys()
    return tuple(
        replace(cause, cure=singles.get(id(cause)), sought=id(cause) not in unsought) for cause in causes
    ), whole


def cure_all(document: Document, *, planner: Allocator | None = None) -> Cure | None:
    """Return the cure of all curable causes; if `planner` is given, it plans the document anew."""
    dossier = Dossier(Evidence(document=document))
    causes = found_in(dossier)
    curable = [cause for cause in causes if cause.change.kind in CURABLE]
    return _search(dossier, curable, _sharing(causes), planner=planner).found()


def _sharing(causes: Iterable[Cause]) -> Mapping[Key, Sequence[Cause]]:
    """Return the causes that explain each violation."""
    found: dict[Key, list[Cause]] = {}
    for cause in causes:
        for violation in cause.violations:
            found.setdefault(key_of(violation), []).append(cause)
    return found


def _search(
    dossier: Dossier, chosen: Sequence[Cause], sharing: Mapping[Key, Sequence[Cause]], **more: Any
) -> CureSearch:
    """Return the search for a cure of the chosen causes.

    A violation may remain if a cause that is not chosen explains it as well.
    """
    taken = {id(cause) for cause in chosen}
    near = {id(one): one for cause in chosen for v in cause.violations for one in sharing[key_of(v)]}
    return CureSearch(
        document=dossier.document,
        asked=charges_in(chosen),
        report=dossier.report,
        others=charges_in(cause for at, cause in near.items() if at not in taken),
        judge=dossier.judged,
        **more,
    )
