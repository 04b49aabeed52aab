"""Two and three planted faults within one program, each with the party and class that it must get.

The faults of `culprits` are planted one after another in one document, in the order in which they are made: the program first, then beliefs, the placement, its
book, waits, the host, kernels, and last another program under the plan. Each is drawn by a seed of its own, so that the same document can be made without one of
them. Two faults never touch the same buffer: two wrong ends of one lifetime are one wrong lifetime.

A fault *shows* if the judge sees something of it that it does not see without it. One that does not is *hidden* behind the others: whoever has only the
document cannot know of it, and it may be named or not. So it is with

- a wait left out between two buffers that another fault lays over each other: that they meet at all is that fault's;
- a slot moved to where no belief forbids it, next to a belief that is wrong: the plan did as it was told;
- another program under the plan that reads nothing wrong but what the plan lays wrong for its own program as well;
- a kernel that writes into an operand over which a plan lays its result, though it may not: that is what writing the result looks like.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
from culprits import PLANTS, Ground, Planted, ground

from allocsim.cure import CURABLE
from allocsim.cure.defects import key_of
from allocsim.judge.fast import Violation, check
from allocsim.judge.fast.s_promises import PROMISE_KINDS
from allocsim.model import Document
from allocsim.programs.streams import branches, on_streams
from allocsim.verdict.evidence import Evidence

STAGES = (
    ("unwritten", "undeclared", "overwritten", "results", "read_only", "bounds", "state", "twice"),
    ("ends_early", "made_safe", "born_late", "untold", "small"),
    ("gap", "bad_pair"),
    ("shifted", "misfit"),
    ("booked",),
    ("left_out",),
    ("no_wait",),
    ("kernel", "promise", "misdeed"),
    ("stale", "moved_content"),
)
"""What can be planted, in the order in which it is made."""


@dataclass(frozen=True, kw_only=True)
class Several:
    """Planted faults of one document."""

    name: str
    evidence: Evidence
    faults: tuple[tuple[str, frozenset[str], bool], ...]
    """Party, classes, and whether it shows."""


@dataclass(frozen=True, kw_only=True)
class Laid:
    """What was planted so far."""

    ground: Ground
    evidence: Evidence
    touched: frozenset[int] = frozenset()
    faults: tuple[tuple[str, frozenset[str]], ...] = ()


SLOTS = frozenset(STAGES[3])
OF_SLOTS = frozenset({*PROMISE_KINDS, "Undersized", "Misaligned", "Unplaced"})
"""What can be seen of a slot by itself."""
MEASURED = frozenset({"kernel", "promise", "misdeed", "twice"})
"""What the judge need not see: it comes with what was measured of kernels."""
APART = (
    ({*STAGES[0], "no_wait"}, {"stale"}),
    ({*STAGES[2], *STAGES[3], "booked", "no_wait"}, {"moved_content"}),
)
"""Not together: what is wrong with a program is so again in another program made of it, and with a plan in another plan made of it."""


def planted(names: Sequence[str], seed: int, runs: int = 1) -> Laid | None:
    """Return a sound document by seed of at least so many runs with each of these planted, None where one of them cannot be or touches
    what another did.
    """
    g = ground(seed)
    g = replace(g, runs=((),) * max(runs, len(g.runs)))
    laid = Laid(ground=g, evidence=Evidence(document=g.document()))
    for name in names:
        base = replace(laid.ground, rng=Random(f"{seed} {name}"))
        if name == "no_wait":
            base = spread(base)
        made = PLANTS[name](base)
        if made is None:
            return None
        added = _added(laid, base, made)
        if added is None:
            return None
        laid = added
    return laid


def spread(g: Ground) -> Ground:
    """Return the ground with its ops on two streams and waits that suffice for its plan."""
    program = on_streams(g.program, branches(g.program, 2), plan=g.plan)
    problem = replace(g.problem, program=program)
    return replace(g, program=program, problem=problem, plan=replace(g.plan, program=program, problem=problem))


def _added(laid: Laid, base: Ground, made: Planted) -> Laid | None:
    """Return what there is with one fault more."""
    what, party, classes = made
    evidence = what if isinstance(what, Evidence) else Evidence(document=what)
    document = evidence.document
    plan = document.plans[0]
    assert plan.problem is not None
    touched = _touched(base, document)
    if touched & laid.touched:
        return None
    old = laid.evidence
    return Laid(
        ground=replace(
            base,
            program=plan.program,
            problem=plan.problem,
            plan=plan,
            runs=tuple(tuple(run.skip) for run in document.runs),
        ),
        evidence=Evidence(
            document=document,
            audit=(*(old.audit or ()), *(evidence.audit or ())) or None,
            sanitizer=(*(old.sanitizer or ()), *(evidence.sanitizer or ())) or None,
        ),
        touched=laid.touched | touched,
        faults=(*laid.faults, (party, classes)),
    )


def _touched(base: Ground, document: Document) -> frozenset[int]:
    """Return the buffers of which another belief or another slot is what was planted; those of a rebuilt program are new."""
    plan = document.plans[0]
    problem = plan.problem
    if problem is None or len(plan.program.buffers) != len(base.program.buffers):
        return frozenset()
    rows = [getattr(problem, name) != getattr(base.problem, name) for name in ("start", "stop", "nbytes", "pinned")]
    believed = set(np.flatnonzero(np.any(rows, axis=0)).tolist()) | set(problem.gaps) ^ set(base.problem.gaps)
    was = set(map(tuple, base.problem.may_share.tolist()))
    believed |= {b for pair in map(tuple, problem.may_share.tolist()) if pair not in was for b in pair}
    if believed:
        return frozenset(believed)
    slots = [getattr(plan, name) != getattr(base.plan, name) for name in ("arena", "offset", "nbytes")]
    return frozenset(np.flatnonzero(np.any(slots, axis=0)).tolist())


def several(seeds: range, count: int) -> Iterator[Several]:
    """Yield a document with `count` planted faults for each seed where they can be planted together."""
    for seed in seeds:
        names = _chosen(Random(f"{count} of {seed}"), count)
        whole = planted(names, seed) if names else None
        if whole is None:
            continue
        faults = tuple((*fault, _shows(names, at, seed, whole)) for at, fault in enumerate(whole.faults))
        yield Several(name=f"{' '.join(names)} {seed}", evidence=whole.evidence, faults=faults)


def _chosen(rng: Random, count: int) -> list[str]:
    """Return what is planted, in the order in which it is made; nothing where that does not go together."""
    stages = sorted(rng.sample(range(len(STAGES)), count) if rng.random() < 0.8 else rng.choices(range(3), k=count))
    names = [rng.choice(STAGES[stage]) for stage in stages]
    clash = any(not one.isdisjoint(names) and not other.isdisjoint(names) for one, other in APART)
    return [] if clash or len(set(names)) < count else names


def _shows(names: Sequence[str], at: int, seed: int, whole: Laid) -> bool:
    """Whether the judge sees of a fault what it does not see without it, and of the kind that is its own."""
    name, runs = names[at], len(whole.evidence.document.runs)
    fewer = planted([other for place, other in enumerate(names) if place != at], seed, runs)
    seen = check(whole.evidence.document, of_each_kind=True).violations
    if name == "misdeed":
        (incident,) = whole.evidence.sanitizer or ()
        return all(v.kind != "UnsafeInPlace" or v.op != incident.op for v in seen)
    if name == "state":
        names_of = whole.ground.program.values.names
        return any(v.kind == "StaleRead" and v.value is not None and names_of[v.value] == "before" for v in seen)
    if name in MEASURED or name in STAGES[0]:
        return True
    if fewer is None:
        return False
    before = check(fewer.evidence.document, of_each_kind=True).violations
    over = {frozenset((v.buffer, v.other_buffer)) for v in before}
    if name == "no_wait":
        return any(v.in_apart or frozenset((v.buffer, v.other_buffer)) not in over for v in seen if v.kind == "Race")
    if name == "stale":
        return any(v.run == 1 and frozenset((v.buffer, v.other_buffer)) not in over for v in seen)
    if name == "moved_content":
        return any(v.kind == "StaleRead" and bool(whole.ground.program.buffers.persistent[v.buffer or 0]) for v in seen)
    known = {_sight(v) for v in before}
    new = [v for v in seen if _sight(v) not in known]
    if name in SLOTS:
        new = [v for v in new if v.kind in OF_SLOTS]
    return bool(new)


def _sight(v: Violation) -> tuple[object, ...]:
    return key_of(replace(v, program=None))


def unmatched(found: Sequence[tuple[str, str]], faults: Sequence[tuple[str, frozenset[str], bool]]) -> bool:
    """Whether causes (class, party) are not those of the faults: one each of all that show, and none of anything else."""
    if len(found) > len(faults):
        return True
    for chosen in permutations(range(len(faults)), len(found)):
        right = all(found[n][1] == faults[f][0] and found[n][0] in faults[f][1] for n, f in enumerate(chosen))
        if right and all(n in chosen for n, fault in enumerate(faults) if fault[2]):
            return False
    return True


def wrong_with_several(several: Several, verdict: Any) -> str:
    """Return what a verdict gets wrong of faults planted together, empty if nothing."""
    found = [(c.class_, c.party) for c in verdict.causes]
    if unmatched(found, several.faults):
        return f"causes: {found} instead of {several.faults}"
    if verdict.cure is None and any(c.change.kind in CURABLE for c in verdict.causes):
        return "no cure"
    return ""
