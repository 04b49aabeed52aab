"""Charge pairs of buffers that share bytes in one run, and the stale reads that follow.

    left = charge_meetings(dossier, found, violations)      # `found`: changes, each with what it explains

For each pair, `allocsim.verdict.blame` names the change that would have kept the two buffers apart:
a change of a belief, or of one of the two slots. If only the placement can be at fault, few slots
that cover all such pairs are charged; slots that break a promise or do not fit come first. If no
problem is stated, and one slot explains pairs that would otherwise need several wrong beliefs, that
slot is charged. If a loop loses values while it moves its carries one after the other
(`allocsim.verdict.carries`), one slot is charged for all these values.

A stale read is charged to the pairs of its buffer. If a `same` copied the foreign bytes there, the
read of that `same` is charged. If a stale read has several possible causes, the judge checks the
run once for each cause. In that check, only the victim and the buffers that the cause places over
the victim may share bytes. All causes that alone make the read stale list the read. If no cause
alone makes the read stale, every possible cause lists the read.

Complexity: O(violations), and one check of a run for each possible cause of a stale read with
several possible causes. At most `QUESTIONS` runs are checked, and no more than the dossier's steps
allow.

This module does not examine single slots, races, and wrong beliefs that did no harm.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from allocsim.cure.changes import Change
from allocsim.cure.defects import key_of
from allocsim.cure.effort import SpentError
from allocsim.judge.fast import Violation
from allocsim.model import HOST_WRITE
from allocsim.verdict.blame import IN_PLACE, Pair, allowed_by
from allocsim.verdict.carries import loops_of
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.waiting import Found, in_one_run

QUESTIONS: Final = 64
"""The largest number of runs judged with few buffers together, to separate possible causes.

Further stale reads are charged to the writer that the judge found."""

PAIRED: Final = IN_PLACE | {"Overlap", "StaleRead", "ResultsOverlap", "LifetimeIgnored", "PinIgnored"}
"""Kinds of violation about two buffers that share bytes in a plan."""
ALONG: Final = frozenset({"Race", "AllocOverLive"})
"""Kinds that are charged together with a pair if the pair also has a violation of `PAIRED`."""

EVENTS: Final = frozenset({"DoubleFree", "FreeOfUnallocated", "AllocOverLive", "EventOutsideLifetime"})
"""Kinds of violation about the planner's alloc and free events."""

Answers = Mapping[Pair, tuple[Change, ...]]
"""For each pair, the changes that would keep its two buffers apart."""


def charge_meetings(dossier: Dossier, found: Found, violations: Sequence[Violation]) -> Iterator[Violation]:
    """Charge the violations between two buffers of one run; return the other violations."""
    late = [v for v in violations if v.kind == "StaleRead"]
    roots = _roots(dossier, late)
    reads = [v for v in late if roots[id(v)] is v]
    pairs: dict[Pair, list[Violation]] = defaultdict(list)
    for v in violations:
        pair = _pair(dossier, v)
        if pair is not None and v.kind in PAIRED | ALONG and roots.get(id(v), v) is v and _within_run(dossier, v):
            pairs[pair].append(v)
    pairs = {pair: rows for pair, rows in pairs.items() if any(v.kind in PAIRED for v in rows)}
    thefts = {id(v): _theft(dossier, v, pairs) for v in reads}
    takers = {theft: _takers(dossier, theft, v, pairs) for theft, v in {thefts[id(v)]: v for v in reads}.items()}
    innocent, accomplices = _innocent(dossier, pairs)
    victims: dict[Pair, set[int]] = defaultdict(set)
    for theft, mine in takers.items():
        for pair in mine:
            victims[pair].add(theft.buffer or 0)
    asked = {
        pair: allowed_by(dossier, pair, late=victims[pair], kinds={v.kind for v in rows})
        for pair, rows in pairs.items()
        if pair not in innocent
    }
    answers = {pair: changes for pair, changes in asked.items() if changes is not None}
    edges = [pair for pair, changes in asked.items() if changes is None]  # either slot may move
    answers |= _covered(dossier, [*edges, *_moved_at_once(dossier, answers, edges)], violations)
    answers |= _moves_in_turn(dossier, answers, reads)
    answers |= {pair: answers.get(guilty, ()) for pair, guilty in innocent.items()}
    for pair, rows in pairs.items():
        for v in (v for v in rows if v.kind != "StaleRead"):
            for one in (pair, *(accomplices.get(pair, ()) if v.kind == "UnsafeInPlace" else ())):
                for change in answers[one]:
                    found[change].append(v)
    reasons = {theft: _reasons(mine, answers) for theft, mine in takers.items()}
    for v in late:
        root = roots[id(v)]
        theft = thefts[id(root)]
        for change in _why_late(dossier, root, bool(takers[theft]), reasons[theft], answers):
            found[change].append(v)
    return (
        v
        for v in violations
        if v.kind != "StaleRead" and (_pair(dossier, v) not in pairs or v.kind not in PAIRED | ALONG)
    )


def _pair(dossier: Dossier, v: Violation) -> Pair | None:
    return Pair.of(v, dossier.other_buffer(v))


def _within_run(dossier: Dossier, v: Violation) -> bool:
    """Return whether a violation shows that two buffers of one run share bytes.

    A stale read does not show this if the read needs, or finds, a value of another run. Nor does a
    stale read show this if a `same` copied the foreign bytes into the victim's own buffer. In that
    case the buffer over the source of the `same` is charged.
    """
    if v.kind != "StaleRead":
        return True
    if not in_one_run(v) or not (v.want_run in {v.run, None} or dossier.lasts(v)):
        return False
    return dossier.share_bytes(v) or not dossier.over(v)


class Theft(NamedTuple):
    """A key for stale reads that the same pairs may explain. `buffer` is the victim's buffer, and
    `more` is its pair with the writer that the judge found. `more` is None if the writer belongs to
    another run, or if an `Overlap` lists the pair anyway.
    """

    plan: int | None
    program: int | None
    buffer: int | None
    more: Pair | None


def _theft(dossier: Dossier, v: Violation, pairs: Container[Pair]) -> Theft:
    pair = _pair(dossier, v)
    fresh = pair in pairs and _within_run(dossier, v) and dossier.other_buffer(v) not in dossier.over(v)
    return Theft(v.plan, v.program, v.buffer, pair if fresh else None)


def _takers(dossier: Dossier, theft: Theft, v: Violation, pairs: Container[Pair]) -> list[Pair]:
    """Return the pairs of a stale read's buffer with each buffer over it, ordered by the latter."""
    listed = (Pair.of(v, other) for other in dossier.over(v))
    found = [pair for pair in (*listed, theft.more) if pair is not None and pair in pairs]
    return sorted(found, key=lambda pair: pair.other if pair.buffer == v.buffer else pair.buffer)


Reasons = Mapping[Change, Collection[int]]
"""For each change that may correct a stale read: the buffers of the pairs that the change keeps
apart. The changes are in the order of the buffers over the victim."""


def _reasons(pairs: Iterable[Pair], answers: Answers) -> Reasons:
    """Return the changes that would keep these pairs apart, in the order of the pairs."""
    found: dict[Change, set[int]] = {}
    for pair in pairs:
        for change in answers.get(pair, ()):
            found.setdefault(change, set()).update(pair.buffers)
    return found


# what a `same` carried ----------------------------------------------------------------------------


def _roots(dossier: Dossier, late: Sequence[Violation]) -> dict[int, Violation]:
    """Return for each stale read its root: the stale read that brought in the foreign bytes.

    If a `same` reads foreign bytes, every later read of its result is stale too. The root of these
    reads is the read of that `same`. A stale read without such a `same` before it is its own root.
    """
    read = {(v.run, v.op, v.value): v for v in late}
    found = {}
    for v in late:
        root, seen = v, {id(v)}
        while (before := _carried_from(dossier, root, read)) is not None and id(before) not in seen:
            seen.add(id(before))
            root = before
        found[id(v)] = root
    return found


def _carried_from(
    dossier: Dossier, v: Violation, read: Mapping[tuple[int | None, int | None, int | None], Violation]
) -> Violation | None:
    """Return the stale read of the `same` that wrote the bytes found by the stale read `v`. Return
    None if another op wrote the buffer last, or overwrote the bytes after the `same`.
    """
    program = dossier.program(v)
    ops = program.ops
    written = dossier.doings(program).written_before(v.buffer, v.op or 0)
    if written is None:
        return None
    place, step = written
    later = dossier.share_bytes(v) and not (v.other_run == v.run and (v.other_op or 0) < step)
    if later or not program.same_ops[step]:
        return None
    return read.get((v.run, step, ops[step].operands[place - int(ops.result_starts[step])]))


# whole ops ----------------------------------------------------------------------------------------


def _innocent(
    dossier: Dossier, pairs: Mapping[Pair, Sequence[Violation]]
) -> tuple[dict[Pair, Pair], dict[Pair, list[Pair]]]:
    """Return the harmless pairs of each unsafe op, and its further unsafe pairs.

    The judge reports an op that is unsafe in place once, under one pair, although several pairs of
    its operands and results may share bytes. So each pair is judged with all other buffers apart.
    The first mapping leads from a pair without a violation to a pair of the same op with a
    violation. The second mapping leads from the reported pair to the other pairs that alone make
    the op unsafe.
    """
    ops: dict[tuple[int, int, int | None], list[Pair]] = defaultdict(list)
    unsafe: dict[tuple[int, int, int | None], tuple[Pair, int | None]] = {}
    for pair, rows in pairs.items():
        for v in rows:
            if v.kind in {"Overlap", "UnsafeInPlace"} and v.op is not None:
                ops[pair.plan, pair.program, v.op].append(pair)
            if v.kind == "UnsafeInPlace":
                unsafe[pair.plan, pair.program, v.op] = pair, v.run
    found: dict[Pair, Pair] = {}
    accomplices: dict[Pair, list[Pair]] = {}
    for at, (filed, run) in unsafe.items():
        read, written = dossier.doings(dossier.document.programs[at[1]]).buffers(at[2] or 0)
        touched = read | written
        here = [
            p for p in dict.fromkeys(ops[at]) if touched.issuperset(p.buffers) and not written.issuperset(p.buffers)
        ]
        if len(here) < 2 or run is None:
            continue
        alone = dict(_by_themselves(dossier, run, here[:QUESTIONS]))
        guilty = [p for p, kinds in alone.items() if any(kind in PAIRED for kind, _ in kinds)]
        if guilty:
            found |= {p: guilty[0] for p in alone if p not in guilty}
        unsafe_too = [p for p, kinds in alone.items() if p != filed and ("UnsafeInPlace", at[2]) in kinds]
        accomplices.setdefault(filed, []).extend(unsafe_too)
    return found, accomplices


def _by_themselves(
    dossier: Dossier, run: int, pairs: Iterable[Pair]
) -> Iterator[tuple[Pair, set[tuple[object, object]]]]:
    """Yield each pair with its violations, as (kind, op), if all other buffers are apart. Stop when
    the dossier's steps are spent.
    """
    with suppress(SpentError):
        own = dossier.alone(run, ())
        for pair in pairs:
            yield pair, {(kind, op) for kind, op, _, _ in dossier.alone(run, pair.buffers) - own}


# which change for each pair -----------------------------------------------------------------------


def _moved_at_once(dossier: Dossier, answers: Answers, edges: Sequence[Pair]) -> list[Pair]:
    """Return the pairs that are charged to a slot instead of to beliefs. The slot is in pairs of
    several wrong beliefs, or in pairs of one wrong belief and has to move anyway. Only plans
    without a problem are examined.
    """
    told = {pair: changes for pair, changes in answers.items() if dossier.document.plans[pair.plan].problem is None}
    pairs: dict[Change, set[Pair]] = defaultdict(set)
    for pair, changes in told.items():
        for change in changes:
            pairs[change].add(pair)
    explained: dict[tuple[int, int], set[Change]] = defaultdict(set)
    for change, mine in pairs.items():
        if change.kind in {"lifetime", "pair"} and all(len(told[pair]) == 1 for pair in mine):
            common = set.intersection(*({*pair.buffers} for pair in mine))
            for buffer in common - ({change.buffer} if change.kind == "lifetime" else set()):
                explained[change.plan or 0, buffer].add(change)
    astray = {(pair.plan, buffer) for pair in edges for buffer in pair.buffers}
    chosen: set[Change] = set()
    for slot, changed in sorted(explained.items(), key=lambda row: (-len(row[1]), dossier.rank(*row[0]))):
        fresh = changed - chosen
        chosen |= fresh if len(fresh) + (slot in astray) > 1 else set()
    return [pair for change in chosen for pair in sorted(pairs[change])]


def _moves_in_turn(dossier: Dossier, answers: Answers, reads: Sequence[Violation]) -> dict[Pair, tuple[Change, ...]]:
    """Return one slot for all pairs by which the moves of a loop lose values: the slot of the
    buffer in most of these pairs. Only plans without a problem are examined.
    """
    lost: dict[tuple[int, int], set[Pair]] = defaultdict(set)
    for v in reads:
        for pair in (Pair.of(v, taker) for taker in dossier.lost_to(v)):
            if pair is not None and dossier.document.plans[pair.plan].problem is None:
                lost[pair.plan, pair.program].add(pair)
    found: dict[Pair, tuple[Change, ...]] = {}
    for (plan, program), pairs in lost.items():
        for rows in loops_of(dossier.document.programs[program], [pair.buffers for pair in pairs]).values():
            group = [Pair(plan, program, *buffers) for buffers in rows]
            if len({change for pair in group for change in answers.get(pair, ())}) < 2:
                continue
            met = Counter(buffer for pair in group for buffer in pair.buffers)
            chosen = min(met, key=lambda buffer: (-met[buffer], dossier.rank(plan, buffer)))
            slot = (Change(kind="slot", plan=plan, buffer=chosen),)
            found |= {pair: slot for pair in group if pair in answers}
    return found


def _covered(
    dossier: Dossier, edges: Sequence[Pair], violations: Sequence[Violation]
) -> dict[Pair, tuple[Change, ...]]:
    """Return for each pair the slot to move; few slots that cover all pairs are chosen greedily.

    Slots that break a promise come first, then slots that do not fit, then slots in most pairs.
    Ties are decided by: parameter or state first, later first use, smaller size. O(n log n).
    """
    misfits = {
        (v.plan, v.buffer)
        for v in violations
        if v.kind not in PAIRED | ALONG | EVENTS and v.buffer is not None and not as_small_as_believed(dossier, v)
    }
    plans: dict[int, set[Pair]] = defaultdict(set)
    for pair in edges:
        plans[pair.plan].add(pair)
    answers: dict[Pair, tuple[Change, ...]] = {}
    for index, pairs in plans.items():
        answers |= _covered_of(dossier, index, pairs, misfits)
    return answers


def _covered_of(
    dossier: Dossier, index: int, pairs: set[Pair], misfits: Collection[tuple[int | None, int]]
) -> dict[Pair, tuple[Change, ...]]:
    """Return the result of `_covered` for the pairs of one plan."""
    plan = dossier.document.plans[index]
    whole, _ = dossier.lives(plan.program)
    persistent, nbytes = plan.program.buffers.persistent, plan.program.buffers.nbytes
    meets: dict[int, set[Pair]] = defaultdict(set)
    for pair in pairs:
        for buffer in pair.buffers:
            meets[buffer].add(pair)
    fixed = {
        buffer: (
            -bool(persistent[buffer]),
            -int(whole[buffer, 0]),
            int(nbytes[buffer]),
            -int(whole[buffer, 1]),
            -int(plan.offset[buffer]),
            *(-place for place in dossier.rank(index, buffer)),
            turn,
        )
        for turn, buffer in enumerate(meets)
    }
    astray = {buffer: (-_breaks_promise(dossier, index, buffer), -((index, buffer) in misfits)) for buffer in meets}

    def weight(buffer: int) -> tuple[int, ...]:
        """Return the sort key of a slot; the slot with the smallest key is charged first."""
        return *astray[buffer], -len(meets[buffer]), *fixed[buffer]

    answers: dict[Pair, tuple[Change, ...]] = {}
    heap = [(weight(buffer), buffer) for buffer in meets]
    heapify(heap)
    while heap:
        known, chosen = heappop(heap)
        if not meets[chosen]:
            continue
        now = weight(chosen)  # the number of pairs only falls, so the slot's sort key never becomes smaller
        if now != known:
            heappush(heap, (now, chosen))
            continue
        for pair in tuple(meets[chosen]):
            answers[pair] = (Change(kind="slot", plan=index, buffer=chosen),)
            for buffer in pair.buffers:
                meets[buffer].discard(pair)
    return answers


def as_small_as_believed(dossier: Dossier, v: Violation) -> bool:
    """Whether an `Undersized` slot has at least as many bytes as its problem states."""
    if v.kind != "Undersized" or v.plan is None or v.buffer is None:
        return False
    plan = dossier.document.plans[v.plan]
    return plan.problem is not None and int(plan.problem.nbytes[v.buffer]) <= int(plan.nbytes[v.buffer])


def _breaks_promise(dossier: Dossier, index: int, buffer: int) -> bool:
    """Whether a slot is not in memory of its own, or not at the fixed offset, although the plan's
    problem requires that.
    """
    plan = dossier.document.plans[index]
    if plan.problem is None:
        return False
    own = "own" in plan.problem.stated and bool(plan.problem.own[buffer]) and bool(plan.placed[buffer])
    return own or plan.problem.fixed.get(buffer, int(plan.offset[buffer])) != int(plan.offset[buffer])


# which change for each late read ------------------------------------------------------------------


def _why_late(
    dossier: Dossier,
    v: Violation,
    taken: bool,  # noqa: FBT001 - whether any pair took the bytes
    reasons: Reasons,
    answers: Answers,
) -> Iterable[Change]:
    """Return the changes to which a stale read is charged. If several changes are possible, only
    the changes with buffers that alone make the read stale are returned. If there is no such
    change, all possible changes are returned.
    """
    if dossier.looked_late(v):
        return (Change(kind="late", program=v.program, buffer=v.buffer),)
    if v.run is not None and v.want_run is not None and v.want_run < v.run and not dossier.lasts(v):
        if is_uploaded(dossier, v) and dossier.kind(v.want_run, v.want_op) == HOST_WRITE:
            return (upload_for(dossier, v),)
        if is_uploaded(dossier, v) or not taken:
            return (Change(kind="state", program=v.program, buffer=v.buffer),)
    if not reasons:
        return (_elsewhere(dossier, v),)
    if len(reasons) == 1:
        return reasons
    pair = _pair(dossier, v)
    believed = reasons if pair is None else answers.get(pair, reasons)
    if v.run is None or len(dossier.asked) >= QUESTIONS:
        return believed
    try:
        return [change for change, buffers in reasons.items() if _spoils(dossier, v, v.run, buffers)] or reasons
    except SpentError:
        return believed


def _spoils(dossier: Dossier, v: Violation, run: int, buffers: Collection[int]) -> bool:
    """Return whether a read is stale if all buffers but these are apart."""
    dossier.asked.add((run, frozenset(buffers)))
    return ("StaleRead", v.op, v.value, v.buffer) in dossier.alone(run, buffers)


def is_uploaded(dossier: Dossier, v: Violation) -> bool:
    """Whether the violation's buffer lacks an upload, and v vanishes with all uploads."""
    if v.run is None or v.buffer not in dossier.left_out[v.run]:
        return False
    return key_of(v) not in dossier.uploaded


def upload_for(dossier: Dossier, v: Violation) -> Change:
    """Return the change for the last left-out upload of the buffer before the read."""
    run = dossier.runs[v.run or 0]
    home = run.program.values.buffer
    into = [step for step in run.skip if v.buffer in home[list(run.program.ops[step].results)].tolist()]
    before = [step for step in into if v.op is None or step < v.op]
    return Change(kind="upload", program=v.program, op=max(before, default=min(into)))


def _elsewhere(dossier: Dossier, v: Violation) -> Change:
    """Return the change for a stale read that no pair in its run explains. The plan was made for
    another program, or a parameter or state moved, or else the slot of the buffer is wrong.
    """
    if v.plan is not None and v.program is not None and dossier.strange(v.plan, v.program):
        return Change(kind="stale", plan=v.plan, program=v.program)
    return Change(kind="address" if dossier.lasts(v) else "slot", plan=v.plan, buffer=v.buffer)
