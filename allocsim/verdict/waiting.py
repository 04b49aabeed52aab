"""Charge each race to a missing wait.

The waits that the program itself lacks come first. They are as few as possible, and order all races
that exist with every buffer apart. Then come the waits that reuse needs, for each plan. A race
between two runs is charged to a missing wait between these runs.

Complexity: O(races x waits), plus one transitive closure of the order for each wait.

Races charged to buffers that wrongly share bytes are used only to choose the op that a wait waits
for.
"""

from collections import defaultdict
from collections.abc import Sequence

from allocsim.cure.changes import Change
from allocsim.cure.waits import Ordered, covering, pruned
from allocsim.judge.fast import Violation
from allocsim.model import HOST_READ
from allocsim.verdict.dossier import Dossier

Found = dict[Change, list[Violation]]
"""The changes charged so far, each with the violations that the change explains."""


def in_one_run(v: Violation) -> bool:
    """Whether both ops of a violation belong to one run."""
    return v.other_run in {v.run, None}


def charge_order(dossier: Dossier, found: Found, races: Sequence[Violation]) -> None:
    """Charge races to waits, first to waits that the program lacks even with every buffer apart.

    Then races caused by reuse are charged to waits of their plan. Races for which the allocator
    kept its rule (`Dossier.rule_kept`) get waits of their own. A race of two runs is charged to a
    wait of the session. If the program orders the two ops of a race in one run, the host read too
    late.

    A missing wait of the program is widened to the last op that reuse requires the same op to wait
    for. So one missing wait is charged once, and the races that the wider wait orders are charged
    to this wait as well.
    """
    rows: dict[int, list[Violation]] = defaultdict(list)
    for v in races:
        if not in_one_run(v):
            found[Change(kind="runs", program=v.program, plan=v.plan)].append(v)
            continue
        rows[v.program or 0].append(v)
    for program, unordered in rows.items():
        ordered = Ordered.of(dossier.document.programs[program])
        here = []
        for v in unordered:
            if ordered.before(*reversed(_pair(v))):  # this happens only if the host reads after a later run
                looks = dossier.kind(v.run, v.op) == HOST_READ
                found[Change(kind="late", program=program, buffer=v.buffer if looks else v.other_buffer)].append(v)
            else:
                here.append(v)
        reuse = [
            _pair(v)
            for v in dossier.races
            if (v.program or 0) == program and not v.in_apart and in_one_run(v) and not _in_order(ordered, v)
        ]
        apart = [_pair(v) for v in here if v.in_apart]
        waits = pruned(ordered, [_reaching(ordered, wait, reuse) for wait in covering(ordered, apart)], apart)
        mended = ordered.waiting(waits)
        own = [v for v in here if v.in_apart or (waits and _in_order(mended, v))]
        _by_wait(found, ordered, (program, None), waits, own)
        known = {id(v) for v in own}
        reused: dict[tuple[int | None, bool], list[Violation]] = defaultdict(list)
        for v in here:
            if id(v) not in known:
                reused[v.plan, dossier.rule_kept(v)].append(v)
        for (plan, _), mine in reused.items():
            _by_wait(found, mended, (program, plan), covering(mended, map(_pair, mine)), mine)


def _pair(v: Violation) -> tuple[int, int]:
    assert v.op is not None
    assert v.other_op is not None
    return v.op, v.other_op


def _in_order(ordered: Ordered, race: Violation) -> bool:
    later, earlier = _pair(race)
    return ordered.before(earlier, later)


def _reaching(ordered: Ordered, wait: tuple[int, int], reuse: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the wait, widened to the latest op that `reuse` requires its op to wait for."""
    op, after = wait
    return op, max([after, *(earlier for later, earlier in reuse if later == op and ordered.before(after, earlier))])


def _by_wait(
    found: Found,
    ordered: Ordered,
    where: tuple[int, int | None],
    waits: Sequence[tuple[int, int]],
    races: Sequence[Violation],
) -> None:
    """Charge each race to the first wait that alone orders the race, or else to the first wait."""
    program, plan = where
    singles = [ordered.waiting([wait]) for wait in waits] if len(waits) > 1 else []
    for v in races:
        which = (n for n, one in enumerate(singles) if _in_order(one, v))
        op, after = waits[next(which, 0)]
        found[Change(kind="wait", program=program, plan=plan, op=op, after=after)].append(v)
