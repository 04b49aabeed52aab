"""Finds where the programs of several ranks meet, and the order of ops that this makes.

    met = meetings(programs, {"world": [(0, 1, 2, 3)]})
    met.faults                      # collectives that do not match, ranks that wait for ever

Each rank has a program of its own, with streams of its own. An op is a collective where its `meta`
names a group: `{"collective": "world"}`. A group is a partition of ranks: each rank meets in the
part that holds it (`world` has one part). The k-th collective of a rank in a part meets the k-th of
every other rank in that part, counted in the order of the list, as communicators count. All must
have one kind, one size and equal parameters (`meta.params`), and, if names of operands are given
(`meta.of`), one name.

A message goes from one rank to another: the sender's op has `to` in its `meta` beside the group,
the receiver's op has `from`, each with the place of the other rank in the part. The k-th message
that a rank sends to another meets the k-th that this one receives from it; both must have as many
bytes and one name.

A collective is two events on its stream: the rank *gives* (its operands have been read), then it
*gets* (its results are written). A rank gets only after all ranks whose part it needs (`sources`)
have given; nothing else orders ranks. So a rank that has got may be ahead of a rank that has not
begun to write, as with every communication library. A library may let the sender of a message go on
at once, or only when the message is received. Each question assumes the worse: deadlocks (`faults`)
are searched as if senders wait, and the order of ops only has each message received after it is
sent.

The `meta` of a rank's program may have the number of ranks and their groups (`in_meta`), so that a
document of one rank is enough if all are alike: `plans_of` reads such documents.

`faults` are findings, not errors: `CollectiveMismatch` if parts do not fit each other,
`CollectiveDeadlock` if ranks wait for each other in a ring. Only programs without faults can be
joined. Complexity: O(events + edges). This module does not see the computation and duration of a
collective, nor plans (`allocsim.programs.joined_ranks`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

from allocsim.errors import ModelError
from allocsim.model import Document, Plan, Program
from allocsim.programs.streams import direct_waits

MOST: Final = 1 << 16
"""Most ranks of a document."""

OPS: Final = 1 << 22
"""Most ops of all joined ranks together."""

MESSAGE: Final = "message"
"""The kind of a meeting in which the first rank sends and the second receives."""

Groups = Mapping[str, Sequence[Sequence[int]]]
"""Name of a group -> its parts, each with its ranks in their order."""


class RankEvent(NamedTuple):
    """An op of a rank, or one half of a collective."""

    rank: int
    step: int
    gets: bool
    """Whether the event is the second half of a collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """One collective of all ranks of a part."""

    group: str
    ranks: tuple[int, ...]
    number: int
    """Index among the meetings of the part."""
    steps: tuple[int, ...]
    """The op of each rank."""
    kind: str
    params: Mapping[str, Any]

    def sources(self, place: int) -> Iterable[int]:
        """Return the places of the ranks that must give before the rank at `place` gets."""
        return _SOURCES.get(self.kind, _everyone)(self, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFault:
    """A collective in which the ranks of a group do not meet."""

    kind: str
    """`CollectiveMismatch` or `CollectiveDeadlock`."""
    ranks: tuple[int, ...]
    steps: tuple[int | None, ...]
    """The op at which each of these ranks stands; None for a rank without ops left."""
    message: str


def _everyone(meeting: Meeting, place: int) -> Iterable[int]:
    del place
    return range(len(meeting.ranks))


def _root(meeting: Meeting, place: int) -> Iterable[int]:
    del place
    return (int(meeting.params.get("root", 0)),)


def _all_for_root(meeting: Meeting, place: int) -> Iterable[int]:
    return range(len(meeting.ranks)) if place == meeting.params.get("root", 0) else ()


def _one_before(meeting: Meeting, place: int) -> Iterable[int]:
    return ((place - int(meeting.params.get("by", 1))) % len(meeting.ranks),)


def _brought(meeting: Meeting, place: int) -> Iterable[int]:
    del meeting
    return range(place)


def _paired(meeting: Meeting, place: int) -> Iterable[int]:
    return [source for source, target in meeting.params.get("pairs", ()) if target == place]


_SOURCES: Final[dict[str, Callable[[Meeting, int], Iterable[int]]]] = {
    "broadcast": _root,
    "reduce": _all_for_root,
    "send_receive": _one_before,
    MESSAGE: _brought,
    "collective-permute": _paired,
    "collective-permute-start": _paired,
}
"""Kind -> sources of a rank, for kinds in which a rank does not need the parts of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meetings:
    """Where ranks meet."""

    programs: tuple[Program, ...]
    found: tuple[Meeting, ...]
    faults: tuple[RankFault, ...]
    at: Mapping[tuple[int, int], tuple[Meeting, int]]
    """(rank, step) of a collective -> its meeting, and the place of the rank in it."""

    def order(self, pick: Callable[[list[tuple[int, int, bool]]], int] | None = None) -> list[RankEvent]:
        """Return all events in a legal order.

        By default the event with the lowest step comes first, then the lower rank. `pick` chooses
        among the events that may come next, given as (step, rank, gets). Raises ModelError if
        ranks deadlock.
        """
        walk = _Walk(self)
        done = walk.run(pick)
        if walk.left:
            raise ModelError("", next((f.message for f in self.faults), None) or _ring(self, walk).message)
        return done


def in_meta(ranks: int, groups: Groups) -> dict[str, Any]:
    """Return the entry `ranks` for the `meta` of a rank's program: number of ranks and groups."""
    return {"count": ranks, "groups": {name: [list(part) for part in split] for name, split in groups.items()}}


def plans_of(documents: Sequence[Document]) -> tuple[list[Plan], Groups]:
    """Return the plan of each rank, and the groups in which they meet, from one document for each
    rank in order, or from one document for all ranks.

    A document names the groups that its rank knows. Raises ModelError if a document does not have
    exactly one plan or does not name the ranks, if documents disagree, or if their number is
    wrong.
    """
    plans: list[Plan] = []
    counts: set[int] = set()
    groups: dict[str, Sequence[Sequence[int]]] = {}
    for number, document in enumerate(documents):
        place = f"documents[{number}]"
        if len(document.plans) != 1:
            raise ModelError(place, f"has {len(document.plans)} plans; of a rank there is one")
        (plan,) = document.plans
        count, its = _groups_in(plan.program.meta.get("ranks"), place)
        plans.append(plan)
        counts.add(count)
        if len(counts) > 1 or any(groups.setdefault(name, split) != split for name, split in its.items()):
            raise ModelError(place, "says of ranks or their groups what one before it does not")
    (count,) = counts
    if len(plans) not in (1, count):
        raise ModelError(
            "documents", f"there are {len(plans)} for {count} ranks; one for each is needed, or one for all"
        )
    ops = sum(len(plan.program.ops) for plan in plans) * (count // len(plans))
    if ops > OPS:
        raise ModelError("documents", f"{count} ranks have {ops:,} ops; at most {OPS:,} are joined")
    return plans * (count // len(plans)), groups


def _groups_in(told: Any, place: str) -> tuple[int, Groups]:
    """Return the number of ranks, and their groups.

    Raises ModelError if `told` does not have both.
    """
    count, groups = (told.get("count"), told.get("groups")) if isinstance(told, Mapping) else (None, None)
    if type(count) is not int or not 0 < count <= MOST or not isinstance(groups, Mapping):
        raise ModelError(f"{place}.programs[0].meta.ranks", "says neither how many ranks there are nor their groups")
    for name, split in groups.items():
        lists = isinstance(split, Sequence) and all(isinstance(part, Sequence) for part in split)
        if not lists or not all(type(rank) is int for part in split for rank in part):
            raise ModelError(f"{place}.programs[0].meta.ranks.groups[{name!r}]", "is no list of lists of ranks")
    return count, groups


def meetings(programs: Sequence[Program], groups: Groups) -> Meetings:
    """Return where the ranks meet, and the faults. O(ops + collectives x ranks).

    Raises ModelError for a group that is no partition of ranks, or that an op names and `groups`
    does not have.
    """
    parts = {name: _partition(name, split, len(programs)) for name, split in groups.items()}
    turns: dict[tuple[str, tuple[int, ...], bool], dict[int, list[int]]] = {}
    for rank, program in enumerate(programs):
        for step, group in collectives(program):
            if not isinstance(told(program, step).get("params", {}), Mapping):
                raise ModelError(f"ranks[{rank}].ops[{step}].meta.params", "is no object")
            if not isinstance(group, str) or group not in parts:
                raise ModelError(f"ranks[{rank}].ops[{step}]", f"group {group!r} is none of {', '.join(parts)}")
            part = parts[group].get(rank)
            if part is None:
                raise ModelError(f"ranks[{rank}].ops[{step}]", f"rank {rank} is in no part of group {group!r}")
            meet = (group, *_who_meet(program, rank, step, tuple(groups[group][part])))
            turns.setdefault(meet, {}).setdefault(rank, []).append(step)
    found: list[Meeting] = []
    faults: list[RankFault] = []
    for (group, ranks, message), by_rank in turns.items():
        rows = [by_rank.get(rank, []) for rank in ranks]
        for number in range(max(map(len, rows))):
            steps = tuple(row[number] if number < len(row) else None for row in rows)
            fault = _mismatch(programs, group, ranks, steps, number, message=message)
            if fault is not None:
                faults.append(fault)  # later meetings of this group are shifted: one fault is enough
                break
            all_here = tuple(step for step in steps if step is not None)
            found.append(_meeting(programs[ranks[0]], group, ranks, number, all_here, message=message))
    at = {(r, s): (m, place) for m in found for place, (r, s) in enumerate(zip(m.ranks, m.steps, strict=True))}
    made = Meetings(programs=tuple(programs), found=tuple(found), faults=tuple(faults), at=at)
    if faults:
        return made
    walk = _Walk(made, until_taken=True)
    walk.run(None)
    ring = (_ring(made, walk),) if walk.left else ()
    return Meetings(programs=made.programs, found=made.found, faults=ring, at=at)


def _who_meet(program: Program, rank: int, step: int, part: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Return the ranks that meet in an op, and whether it is a message between two of them."""
    meta = told(program, step)
    sides = [side for side in ("to", "from") if side in meta]
    if not sides:
        return part, False
    if len(sides) > 1:
        raise ModelError(f"ranks[{rank}].ops[{step}].meta", "says to and from; an op is one side of a message")
    (side,) = sides
    other = meta[side]
    if type(other) is not int or not 0 <= other < len(part) or part[other] == rank:
        raise ModelError(f"ranks[{rank}].ops[{step}].meta.{side}", f"{other!r} is no other of {len(part)} ranks")
    return ((rank, part[other]) if side == "to" else (part[other], rank)), True


def _meeting(
    first: Program, group: str, ranks: tuple[int, ...], number: int, steps: tuple[int, ...], *, message: bool
) -> Meeting:
    """Return the meeting of the ranks of a part, or the two of a message; `first` is the program of
    the first rank.
    """
    if message:
        return Meeting(group=group, ranks=ranks, number=number, steps=steps, kind=MESSAGE, params={})
    params = told(first, steps[0]).get("params", {})
    root, by = params.get("root", 0), params.get("by", 1)
    if type(root) is not int or type(by) is not int or not 0 <= root < len(ranks):
        raise ModelError(
            f"ranks[{ranks[0]}].ops[{steps[0]}]", f"root {root!r} and by {by!r} are no places among {len(ranks)} ranks"
        )
    kind = first.ops[steps[0]].kind
    if _SOURCES.get(kind) is _paired and not _are_pairs(params.get("pairs", ()), len(ranks)):
        raise ModelError(f"ranks[{ranks[0]}].ops[{steps[0]}].meta.params.pairs", "are no pairs of places of ranks")
    return Meeting(group=group, ranks=ranks, number=number, steps=steps, kind=kind, params=params)


def _are_pairs(pairs: Any, ranks: int) -> bool:
    rows = [row if isinstance(row, Sequence) else () for row in pairs] if isinstance(pairs, Sequence) else [()]
    return all(len(row) == 2 and all(type(place) is int and 0 <= place < ranks for place in row) for row in rows)


def collectives(program: Program) -> list[tuple[int, str]]:
    """Return (step, group) of each collective of a program, in order."""
    return [(step, meta["collective"]) for step, meta in sorted(program.ops.meta.items()) if "collective" in meta]


def told(program: Program, step: int) -> Mapping[str, Any]:
    """Return the `meta` of an op."""
    return program.ops.meta.get(step, {})


def _partition(name: str, split: Sequence[Sequence[int]], count: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for part, ranks in enumerate(split):
        for rank in ranks:
            if not 0 <= rank < count or rank in found:
                raise ModelError(f"groups[{name!r}]", f"rank {rank} is in two parts or none of the {count} ranks")
            found[rank] = part
    return found


def is_message(program: Program, step: int) -> bool:
    """Return whether an op is one side of a message."""
    return not {"to", "from"}.isdisjoint(told(program, step))


def _brings(program: Program, step: int) -> tuple[str, int, str, str]:
    """Return kind, bytes sent or received, the name of the operand or "" if it is not given, and
    parameters.
    """
    op, meta = program.ops[step], told(program, step)
    nbytes = int(program.values.nbytes[[*(op.results if "from" in meta else op.operands)]].sum())
    params = ", ".join(f"{name} {value!r}" for name, value in sorted(meta.get("params", {}).items()))
    return op.kind, nbytes, str(meta.get("of", "")), params


def _mismatch(
    programs: Sequence[Program],
    group: str,
    ranks: tuple[int, ...],
    steps: tuple[int | None, ...],
    number: int,
    *,
    message: bool,
) -> RankFault | None:
    told_of = slice(1, 3) if message else slice(None)  # the two sides of a message have two kinds
    brought = [
        None if step is None else _brings(programs[rank], step)[told_of]
        for rank, step in zip(ranks, steps, strict=True)
    ]
    first = brought[0]
    other = next((place for place, found in enumerate(brought) if found != first), None)
    if other is None:
        return None
    said = [_said(ranks[place], programs, steps[place]) for place in (0, other)]
    return RankFault(
        kind="CollectiveMismatch",
        ranks=(ranks[0], ranks[other]),
        steps=(steps[0], steps[other]),
        message=f"{'message' if message else 'collective'} {number} of group {group!r}: {said[0]}, {said[1]}",
    )


def _said(rank: int, programs: Sequence[Program], step: int | None) -> str:
    if step is None:
        return f"rank {rank} has none left"
    kind, nbytes, *more = _brings(programs[rank], step)
    place = ", ".join((f"op {step}", *filter(None, more)))
    does = "takes" if "from" in told(programs[rank], step) else "brings"
    return f"rank {rank} {does} {kind} {programs[rank].ops.names[step]!r} of {nbytes} bytes ({place})"


class _Walk:
    """The events that each event still waits for, and a legal order of all events."""

    def __init__(self, met: Meetings, *, until_taken: bool = False) -> None:
        """With `until_taken` the sender of a message waits until it is received."""
        self.met = met
        self.before: list[list[int]] = []
        """Rank -> step -> number of ops that the op still waits for."""
        self.after: list[list[list[int]]] = []
        self.owed: dict[tuple[int, int], int] = {}
        """(rank, step) of a collective -> number of givers it still waits for, itself included."""
        self.takers: dict[tuple[int, int], list[tuple[int, int]]] = {}
        shared: dict[int, tuple[list[int], list[list[int]]]] = {}
        for program in met.programs:
            counts, edges = shared.setdefault(id(program), direct_waits(program))
            self.before.append([*counts])
            self.after.append(edges)
        for meeting in met.found:
            where = list(zip(meeting.ranks, meeting.steps, strict=True))
            for place, taker in enumerate(where):
                waits = until_taken and meeting.kind == MESSAGE
                givers = set(where) if waits else {where[source] for source in meeting.sources(place)} | {taker}
                self.owed[taker] = len(givers)
                for giver in givers:
                    self.takers.setdefault(giver, []).append(taker)
        self.left = sum(len(program.ops) for program in met.programs)

    def run(self, pick: Callable[[list[tuple[int, int, bool]]], int] | None) -> list[RankEvent]:
        ready = [
            (step, rank, False)
            for rank, counts in enumerate(self.before)
            for step, count in enumerate(counts)
            if not count
        ]
        heapify(ready)
        done: list[RankEvent] = []
        while ready:
            step, rank, gets = heappop(ready) if pick is None else ready.pop(pick(ready))
            done.append(RankEvent(rank, step, gets))
            for event in self._ended(step, rank, gets=gets):
                heappush(ready, event) if pick is None else ready.append(event)
        return done

    def _ended(self, step: int, rank: int, *, gets: bool) -> Iterable[tuple[int, int, bool]]:
        if (rank, step) in self.owed and not gets:
            for taker in self.takers[rank, step]:
                self.owed[taker] -= 1
                if not self.owed[taker]:
                    yield taker[1], taker[0], True
            return
        self.left -= 1
        counts = self.before[rank]
        for later in self.after[rank][step]:
            counts[later] -= 1
            if not counts[later]:
                yield later, rank, False


def _ring(met: Meetings, walk: _Walk) -> RankFault:
    """Return the fault of ranks that wait for each other, with the op at which each stands."""
    stuck = {taker: count for taker, count in walk.owed.items() if count}
    standing: dict[int, int] = {}
    for rank, step in sorted(stuck):
        given = not walk.before[rank][step]
        if given and rank not in standing:
            standing[rank] = step
    ranks = tuple(sorted(standing))
    said = "; ".join(
        f"rank {rank} stands at {met.programs[rank].ops.names[standing[rank]]!r} (op {standing[rank]}, group "
        f"{met.at[rank, standing[rank]][0].group!r})"
        for rank in ranks[:4]
    )
    return RankFault(
        kind="CollectiveDeadlock",
        ranks=ranks,
        steps=tuple(standing[rank] for rank in ranks),
        message=f"{len(ranks)} ranks wait for each other: {said}{'; ...' if len(ranks) > 4 else ''}",
    )


__all__ = [
    "Groups",
    "Meeting",
    "Meetings",
    "RankEvent",
    "RankFault",
    "collectives",
    "in_meta",
    "is_message",
    "meetings",
    "plans_of",
    "told",
]
