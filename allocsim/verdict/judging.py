"""Compute a verdict from evidence: the causes, the party at fault for each cause, and the cure.

A verdict is a pure function of `Evidence`. The checks S, L and H run again on its document; the
results of K, D and P are given as measured rows. Each violation is charged to the smallest mend
that makes the violation vanish. If several mends do so, the order in `allocsim.verdict.charging`
decides. A mend with all violations that the mend explains is a *cause*. The table `NAMES` gives
each cause a class (C01 to C15) and the party at fault (plan, kernel, caller, schedule). If D ran,
the cause of the first wrong number comes first. Otherwise the cause with the most bytes read wrong
comes first.

Invariants: a verdict does not depend on names, on the scenario or on numbering. Renaming everything
and permuting indices leaves causes and cures unchanged. A further detector never removes a cause;
it adds causes, or gives a class to an unknown cause. A difference that D measures and no cause
explains is reported as unknown.

Complexity: the cost of the checks, plus O(violations + ops), plus a few checks for cures.

This module does not examine how K, D, P and a measured cure were obtained.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from allocsim.cure import Cure
from allocsim.cure.defects import RuledJudge, listed
from allocsim.files.sizes import in_growth
from allocsim.verdict.causes import found_in, with_cures
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import CureRecord, Evidence
from allocsim.verdict.measured import origin_text
from allocsim.verdict.records import Cause, Verdict
from allocsim.verdict.report_facts import BELIEF_KINDS, counts_of, streams

PLACED: Final = frozenset({"lifetime", "pair", "pin", "size", "slot", "address", "stale", "events", "wait"})
"""Kinds of mend with violations that make the plan illegal, whichever party is at fault."""

OVER_RUNS: Final = frozenset({"upload", "state"})
"""Kinds of mend for stale reads of bytes that an earlier run should have left in memory."""


def judge(evidence: Evidence, *, cures: bool = True, judged: RuledJudge = listed) -> Verdict:
    """Return the verdict for this evidence; with `cures` False, no cure is searched for.

    The function `judged` judges each tried document; the default is the judge with its usual rules.
    """
    dossier = Dossier(evidence, judged=judged)
    causes = found_in(dossier)
    return verdict_of(dossier, *with_cures(dossier, causes)) if cures else verdict_of(dossier, causes)


def verdict_of(dossier: Dossier, causes: tuple[Cause, ...], cure: Cure | None = None) -> Verdict:
    """Return the verdict on these causes; `cure` is the one cure of all curable causes."""
    joint = _joined(causes)
    said = dossier.evidence.cure or cure
    return Verdict(
        causes=causes,
        joint=joint,
        detectors=_detectors(dossier),
        clauses=_clauses(dossier, causes, joint, said),
        cure=cure,
        cure_text=None if said is None else "; ".join(said.words),
        cure_bytes=None if said is None else said.nbytes,
        pin_all_bytes=None if said is None else said.pin_all_bytes,
        report=dossier.report,
    )


def _joined(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the first cause of each class and party, with the places of all such causes."""
    joined: dict[tuple[str, str], list[Cause]] = {}
    for cause in causes:
        joined.setdefault((cause.class_, cause.party), []).append(cause)
    return tuple(replace(found[0], places=_places(found)) for found in joined.values())


def _places(causes: Sequence[Cause]) -> int:
    """Return the number of places that these causes explain, each place counted once."""
    listed = {id(v) for cause in causes for v in cause.violations}
    return len(listed) + sum(cause.places - len(cause.violations) for cause in causes)


def _detectors(dossier: Dossier) -> dict[str, dict[str, Any]]:
    evidence, report, document = dossier.evidence, dossier.report, dossier.document
    incidents, origins, diverges = evidence.sanitizer or (), evidence.origins, evidence.diverges
    counts = counts_of(evidence, report)
    if origins is None:
        compared: dict[str, Any] = {"diverges": diverges, "why": "only values read by the host were compared"}
    else:
        compared = {"diverges": diverges, "first": origin_text(dossier, origins[0]) if origins else None}
    unsafe = [
        f"{row.kind}: result {row.result} over operand {row.operand}"
        if row.layout == "over"
        else f"{row.kind}: operand {row.operand} given twice"
        for row in evidence.audit or ()
        if row.measured == "unsafe" and row.declared
    ]
    one_run = "one run" if len(dossier.runs) == 1 else "no run after another over its memory"
    in_apart = sum(bool(v.in_apart) for v in dossier.races)
    rows: dict[str, tuple[dict[str, Any], str]] = {
        "S": ({"ops": report.stats.ops, "truncated": report.truncated}, ""),
        "H": ({"streams": streams(document), "in_apart": in_apart}, "one stream"),
        "P": ({"first": incidents[0].message if incidents else None}, "no kernels to execute"),
        "D": (compared, "no run to compare with"),
        "K": ({"rows": len(evidence.audit or ()), "unsafe": unsafe}, "no kernels to execute"),
        "R": ({"runs": len(dossier.runs)}, one_run),
        "L": ({"too_long": report.counts.get("LifetimeTooLong", 0)}, "no belief to compare with"),
    }
    return {letter: _status(counts[letter], more, why) for letter, (more, why) in rows.items()}


def _status(count: int | None, more: dict[str, Any], why: str) -> dict[str, Any]:
    if count is None:
        return {"status": "not run", "count": None, "why": why}
    return {"status": "violations" if count else "clean", "count": count, **more}


def _clauses(
    dossier: Dossier, causes: Sequence[Cause], joint: Sequence[Cause], said: CureRecord | Cure | None
) -> tuple[str, ...]:
    legal = _legality(dossier, causes)
    if not joint:
        agreed = ("default run and reference run agree to the bit",) if dossier.evidence.origins is not None else ()
        return (legal, "nothing wrong was found", *agreed)
    parts = [legal, *(f"{f.charge}: {f.text}" + (f" [{f.places} times]" if f.places > 1 else "") for f in joint)]
    twice = sum(cause.places for cause in joint) - _places(causes)
    if twice:
        parts.append(f"{twice} of these repeat{'s'[: twice == 1]} a place of another cause: several causes explain it")
    origins = dossier.evidence.origins
    if origins:
        parts.append(f"first wrong tensor: {origin_text(dossier, origins[0])}")
    if said is not None:
        known = said.pin_all_bytes is not None
        against = f", against {in_growth(said.pin_all_bytes or 0)} for pinning everything" if known else ""
        cut = ", cheaper ones not looked for to the end" if isinstance(said, Cure) and said.cut else ""
        parts.append(f"cure: {_priced(said)}{against}{cut}")
        if isinstance(said, Cure) and said.alternative is not None:
            parts.append(f"or {_priced(said.alternative)}")
    parts += [f"not examined: {what}; the steps allowed for this check are spent" for what in dossier.report.unexamined]
    unsought = sum(not cause.sought for cause in causes)
    if unsought:
        parts.append(f"cures of {unsought} causes were not looked for to the end: the steps set for them are spent")
    if dossier.effort.cut:
        parts.append("for some wrong reads, several possible causes were not tried one by one: the steps are spent")
    return tuple(parts)


def _legality(dossier: Dossier, causes: Sequence[Cause]) -> str:
    """Return a sentence: whether the plan is legal in one run, over the session, and in every order
    that the streams allow. Faults of the program itself do not count.
    """
    ops = max((len(run.program.ops) for run in dossier.runs), default=0)
    placed = [
        cause
        for cause in causes
        if cause.change.kind in PLACED and (cause.change.kind != "wait" or cause.party == "plan")
    ]
    mine = {id(v): v for cause in placed for v in cause.violations if v.kind not in BELIEF_KINDS}
    over = {id(v): v for cause in causes if cause.change.kind in OVER_RUNS for v in cause.violations}
    races = [v for v in mine.values() if v.kind == "Race"]
    conflicts = len(mine) - len(races)
    found = f"{conflicts} conflict{'s'[: conflicts != 1]}"
    runs = f"{len(dossier.runs)} run{'s'[: len(dossier.runs) != 1]}"
    if any(v.run in {0, None} for v in mine.values() if v.kind != "Race"):
        return f"the plan is not legal ({found} in {runs} of {ops} ops)"
    if conflicts or over:
        number = conflicts + len(over)
        found = f"{number} conflict{'s'[: number != 1]}"
        return f"the plan is legal within one run (0 conflicts in {ops} ops) but not over {runs} ({found})"
    if races:
        return f"the plan is legal in list order (0 conflicts in {ops} ops) but not in every order its streams allow"
    return f"the plan is legal (0 conflicts in {ops} ops)"


def _priced(said: CureRecord | Cure) -> str:
    """Return a cure in words, with its price in bytes and in pairs of ops that can no longer
    overlap.
    """
    lost = said.overlap if isinstance(said, Cure) else 0
    overlap = f", {lost} pair{'s'[: lost != 1]} of ops can no longer overlap" if lost else ""
    return f"{'; '.join(said.words)}, {in_growth(said.nbytes)}{overlap}"
