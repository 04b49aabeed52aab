"""Settle a change: move the slots that the change requires to move, in a draft.

The violations of a change name pairs of buffers that may not share bytes (`edges_of`). Either
buffer of a pair may move. Each choice is tried in a copy of the room. The choice with the lowest
peak is taken, then the choice with the fewest moved slots.

Complexity: O(buffers) for each buffer moved.

This module does not examine whether the draft removes the violations; `allocsim.cure` judges it.
"""

from collections.abc import Sequence
from dataclasses import replace

from allocsim.cure.changes import UNSAFE_PAIR, Change
from allocsim.cure.drafting import Draft, apart_already, over_operands, partners_at, replan
from allocsim.cure.mending import edges_of, index_of_part, plans_of
from allocsim.cure.room import Rigour, Room, kin
from allocsim.judge.violations import Violation
from allocsim.model import OWN

Edges = set[tuple[int, int]]
"""Pairs of buffers, with the lower index first."""


def settle(draft: Draft, change: Change, violations: Sequence[Violation], rigour: Rigour, *, by_wait: bool) -> bool:
    """Move the slots that a change requires to move; return False without room for a slot."""
    if change.kind == "upload" or (change.kind == "wait" and (by_wait or change.plan is None)):
        return True
    if change.kind == "stale":
        return replan(draft, change)
    if change.kind in UNSAFE_PAIR:
        draft.changes[replace(change, kind="kernel")] = None
        return _denied(draft, change, rigour)
    if change.kind == "address":
        return _readdressed(draft, change, rigour)
    edges: dict[int, Edges] = edges_of(draft.document, violations)
    for index in plans_of(draft.document, change) if change.kind in {"slot", "size", "state"} else ():
        alone = change.plan is None and change.kind != "size"
        edges[index] = set() if alone else edges.get(index, set())
    least = Rigour.EVERYBODY if change.kind in {"state", "wait"} else Rigour.LIVING
    return all(
        _parted(draft, index, pairs, change, violations, rigour=max(rigour, least)) for index, pairs in edges.items()
    )


def _parted(
    draft: Draft, index: int, pairs: Edges, change: Change, violations: Sequence[Violation], *, rigour: Rigour
) -> bool:
    """Place the pairs of a plan apart: the change's buffer moves, or all its partners move."""
    plan, room, focus = draft.document.plans[index], draft.rooms[index], change.buffer
    own_faults = any(v.other_buffer is None and v.plan == index and v.buffer == focus for v in violations)
    stay = own_faults and change.kind in {"size", "slot"}  # if the buffer's bytes are free, only its size is wrong
    if change.kind == "size" or stay:
        draft.resized[index].add(focus or 0)
    lasting = focus is not None and any(number != index for number, _ in kin(draft.document, index, focus))
    own = change.kind == "slot" and focus is not None and plan.problem is not None and plan.problem.own[focus]
    if own and focus is not None and not lasting and int(room.arena[focus]) != OWN:
        room.arena[focus] = OWN
        draft.moved[index].add(focus)
        draft.told.append((index, focus, change))
        return True
    left = {pair for pair in pairs if not apart_already(room, pair)}
    if not left and change.kind in {"lifetime", "pin", "pair"}:
        return True
    ways = _ways(room, left, change, own_faults=own_faults, lasting=lasting)
    tried = [_tried(draft, index, moving, change, rigour, stay=stay) for moving in ways]
    best = min(filter(None, tried), key=lambda one: one[0], default=None)
    if best is None:
        return not ways
    _, draft.rooms[index], moved = best
    draft.moved[index] |= moved
    if change.kind in {"slot", "size", "state", "wait"}:
        draft.told += [(index, buffer, change) for buffer in sorted(moved)]
    return True


def _ways(room: Room, left: Edges, change: Change, *, own_faults: bool, lasting: bool) -> list[set[int]]:
    """Return sets of buffers; moving all buffers of one set would resolve all pairs of `left`."""
    focus = change.buffer

    def age(buffer: int) -> tuple[int, ...]:
        return tuple(int(column[buffer]) for column in (room.start, room.stop, room.first, room.nbytes))

    in_time = [sorted(pair, key=age) for pair in left]
    if focus is None:
        return [{later for _, later in in_time}, {earlier for earlier, _ in in_time}]
    rest = {pair[1] for pair in in_time if focus not in pair}
    partners = {buffer for pair in in_time if focus in pair for buffer in pair} - {focus}
    ways = [] if lasting else [{focus} | rest]
    if partners and not own_faults:
        ways.append(partners | rest)
    if change.kind == "pair" and change.other is not None:
        ways.append({change.other} | rest)
    return ways


def _tried(
    draft: Draft, index: int, moving: set[int], change: Change, rigour: Rigour, *, stay: bool
) -> tuple[tuple[int, int], Room, set[int]] | None:
    """Return the price (peak, count) of moving some buffers, the room after the move, and the moved
    buffers. Return None if the buffers cannot move.

    A buffer with a fixed offset moves only for a change of its own slot, and only to that offset.
    """
    plan, focus = draft.document.plans[index], change.buffer
    fixed = plan.problem.fixed if plan.problem is not None else {}
    if not moving or (change.kind != "slot" and not moving.isdisjoint(fixed)):
        return None
    room, told = draft.rooms[index].copy(), set[int]()
    if focus in moving and focus in fixed:
        told = {focus}
        room.arena[focus], room.offset[focus] = int(plan.program.buffers.arena[focus]), fixed[focus]
        moving = {b for b in partners_at(room, focus) if b not in fixed} | (moving - told)
    if moving and not room.move(moving, rigour, stay=stay):
        return None
    return (room.peak(), len(moving)), room, moving | told


def _readdressed(draft: Draft, change: Change, rigour: Rigour) -> bool:
    """Give a parameter or state its first address in every plan; overlapping buffers move."""
    index = change.plan or 0
    slots = dict(reversed(kin(draft.document, index, change.buffer or 0)))  # the first of each plan
    home: tuple[int, int] | None = None
    for run in draft.document.runs:
        at = index_of_part(draft.document.plans, run.plan)
        if at not in slots:
            continue
        mine, room = slots[at], draft.rooms[at]
        here = int(room.arena[mine]), int(room.offset[mine])
        home = home or here
        if here == home and at != index:
            continue
        room.arena[mine], room.offset[mine] = home
        away = partners_at(room, mine)
        if away and not room.move(away, rigour):
            return False
        draft.moved[at] |= {mine} | away
        draft.changes[Change(kind="address", plan=at, buffer=mine, arena=home[0], offset=home[1])] = None
    return True


def _denied(draft: Draft, change: Change, rigour: Rigour) -> bool:
    """Move every result of the op kind that begins at the address of the unsafe operand."""
    for index, plan in enumerate(draft.document.plans):
        recipients = over_operands(plan, change)
        if recipients and not draft.rooms[index].move(recipients, rigour):
            return False
        draft.moved[index] |= recipients
    return True
