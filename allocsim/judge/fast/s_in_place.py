"""Judge results that share bytes with operands of their op, and pairs of buffers that may share an
address.

The rule is applied to every operand and every result of an op that share a byte (packed: a bit) at
given buffer addresses:

    safe      the pair of positions is promised (`contract`), and its strength allows the addresses:
                  exact   both begin at one address (of element 0), and their layouts are the same
                  bytes   both begin at one address, both are contiguous, and the result is no larger in bytes
                  whole   any addresses: the operand is read before any byte of the result is written
              for a `same`: the two cover equal sets of bytes, or the pair is promised `whole`;
              no other condition applies, because a `same` reads everything before it writes
    assumed   the op is not a `same`, its promise for the pair is unknown, and the pair is an exact alias
    unsafe    all other pairs

So every operand that shares a byte with a result must meet the conditions, not only the operand of
the declared pair. Positions count, not values: for `mul(x, x)` over x both pairs must be declared.
The rule applies within a buffer (a mutation) as well as between buffers that share bytes under a
plan. Bytes outside a value's buffer are ignored.

A pair (donor, recipient) of buffers is a *hand-over* at an op under these conditions: a segment of
the donor ends at the op, a segment of the recipient begins there (`live`), and the op only reads
the donor and only writes the recipient. A persistent recipient must be overwritten fully. The op
*joins* the pair if it declares a pair of an operand in the donor and a result in the recipient. An
op with an unknown contract joins the pair if such an operand and result are assumed. A `same` joins
any operand and any result. A joined pair is

    permissible   if the op breaks the rule nowhere with both buffers at one address and all others apart;
    permitted     under a plan, if the op breaks the rule nowhere at the plan's addresses.

If each operand and result with equal layouts counts as assumed, the joined pairs include every pair
that may share bytes under some plan (`joined`, `moved_by`). The lower bound uses these pairs.

Complexity: O(accesses log accesses + touching pairs), vectorised. Bytes are compared one by one
only for layouts with holes. To bound memory, at most a million pairs with overlapping hulls, plus
eight for each access, are judged. If there are more, and none of the judged pairs is unsafe, a
ModelError is raised; otherwise counts are lower bounds. `permissible` needs every pair. It removes
the buffer pairs and ops that are already found unsafe and judges the rest again, up to `ROUNDS`
times, then raises ModelError.

This module does not examine runs, and does not make the records of violations (`s_writes`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.accesses import Accesses
from allocsim.judge.fast.intervals import TOP, Ranges, among, distinct, end_of, join
from allocsim.judge.fast.live import live_segments
from allocsim.judge.fast.owners import shared
from allocsim.model import BYTES, EXACT, WHOLE, Bools, Plan
from allocsim.model.layout import Int64s

PAIR_CAP = 1_000_000

Columns = tuple[Int64s, Int64s]

ROUNDS = 16
"""The largest number of rounds in which pairs omitted by a cut are judged again, to bound time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touches:
    """Pairs of an op's operand and result that share a byte, sorted by (op, operand, result)."""

    op: Int64s
    read: Int64s
    """Rows of the reads of the accesses."""
    write: Int64s
    """Rows of the writes of the accesses that include all results (`Accesses.results`)."""
    assumed: Bools
    """bool (rows,): True for exact aliases under an unknown contract; these join two buffers."""
    unsafe: Bools
    cut: bool
    """Whether some pairs were not judged; in that case at least one judged pair is unsafe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Pairs of buffers, one row each, for which an op may pass the bytes on in place."""

    op: Int64s
    donor: Int64s
    recipient: Int64s
    donor_row: Int64s
    recipient_row: Int64s
    """Rows of segments: `donor_row` ends at `op`, and `recipient_row` begins at `op`."""

    def chosen(self, rows: Any) -> "Sharing":
        """Return the pairs at `rows`, given as indices or as a mask."""
        return Sharing(**{name: getattr(self, name)[rows] for name in self.__slots__})

    def beside(self, other: "Sharing") -> "Sharing":
        """Return the pairs of both tables, with the pairs of this table first."""
        return Sharing(
            **{name: np.concatenate([getattr(one, name) for one in (self, other)]) for name in self.__slots__}
        )


class HandOvers:
    """The accesses of a run by which a buffer can be a donor or a recipient."""

    def __init__(self, accesses: Accesses) -> None:
        self.accesses = accesses
        self.live = live_segments(accesses)

    @cached_property
    def given(self) -> Int64s:
        """int64 (reads,): the row of the donor's segment that ends with the read, or -1 if no
        segment ends there or the op also writes the buffer.
        """
        return self._one_sided(self.live.ending, self._reads, self._writes)

    @cached_property
    def taken(self) -> Int64s:
        """int64 (writes,): the row of the recipient's segment that begins with the write, or -1 if
        no segment begins there or the op also reads the buffer.
        """
        return self._one_sided(self.live.beginning, self._writes, self._reads)

    @property
    def _reads(self) -> Columns:
        return self.accesses.read_op, self.accesses.read_buffer

    @property
    def _writes(self) -> Columns:
        return self.accesses.write_op, self.accesses.write_buffer

    def _one_sided(self, row_of: Callable[[Int64s, Int64s], Int64s], mine: Columns, others: Columns) -> Int64s:
        found, count = row_of(mine[1], mine[0]), len(self.accesses.program.buffers)
        rows, other = np.flatnonzero(found >= 0), np.flatnonzero(row_of(others[1], others[0]) >= 0)
        both = among(mine[0][rows] * count + mine[1][rows], others[0][other] * count + others[1][other])
        found[rows[both]] = -1
        return found

    @cached_property
    def moving(self) -> tuple[Int64s, Int64s]:
        """Rows of the segments that end at a `same` that only reads their buffer, and of the
        segments that begin at a `same` that only writes their buffer. At one op, any pair of such
        segments is a hand-over.
        """
        same = self.accesses.program.same_ops
        given, taken = self.given[same[self.accesses.read_op]], self.taken[same[self.accesses.write_op]]
        return distinct(given[given >= 0]), distinct(taken[taken >= 0])

    def pairs_of(self, donor_row: Int64s, recipient_row: Int64s) -> Sharing:
        """Return the hand-overs of pairs of segments that end and begin at one op."""
        live = self.live
        return Sharing(
            op=live.start[recipient_row], donor=live.buffer[donor_row], recipient=live.buffer[recipient_row],
            donor_row=donor_row, recipient_row=recipient_row,
        )  # fmt: skip

    def sharing(self, read: Int64s, write: Int64s) -> Sharing:
        """Return the hand-overs for pairs of a read and a write, each buffer pair once per op."""
        if not len(read):
            return Sharing(op=read, donor=read, recipient=read, donor_row=read, recipient_row=read)
        fine = (self.given[read] >= 0) & (self.taken[write] >= 0)
        read, write = read[fine], write[fine]
        donor_row, recipient_row = self.given[read], self.taken[write]
        _, rows = np.unique(donor_row * (len(self.live.buffer) + 1) + recipient_row, return_index=True)
        op, donor, recipient = (
            self.accesses.read_op[read],
            self.accesses.read_buffer[read],
            self.accesses.write_buffer[write],
        )
        rows = rows[np.lexsort((recipient[rows], donor[rows], op[rows]))]
        found = Sharing(op=op, donor=donor, recipient=recipient, donor_row=donor_row, recipient_row=recipient_row)
        return found.chosen(rows)


def addresses(plan: Plan, unit: int = 1) -> tuple[Int64s, Int64s]:
    """Return for each buffer its address space and its base address in units. Arenas are numbered
    first, then the spaces of buffers in memory of their own.
    """
    arenas = len(plan.program.arenas)
    own = np.arange(len(plan.arena), dtype=np.int64) + arenas
    return np.where(plan.placed, plan.arena, own), np.where(plan.placed, plan.offset * unit, 0)


def as_planned(accesses: Accesses, plan: Plan) -> Touches:
    """Judge every op with the buffers at the addresses of `plan`."""
    accesses = accesses.results
    space, base = addresses(plan, accesses.extents.unit)
    read, write = accesses.read_buffer, accesses.write_buffer
    count = int(space.max(initial=0)) + 1
    rows = np.arange(len(read)), np.arange(len(write))
    keys = accesses.read_op * count + space[read], accesses.write_op * count + space[write]
    return _judge(accesses, rows, keys, (base[read], base[write]))


def _broken_apart(accesses: Accesses) -> Bools:
    """Return the ops that break the rule by a mutation, with each buffer in memory of its own."""
    count = len(accesses.program.buffers)
    rows = np.arange(len(accesses.read_row)), np.arange(len(accesses.write_row))
    keys = accesses.read_op * count + accesses.read_buffer, accesses.write_op * count + accesses.write_buffer
    return _unsafe(accesses, rows, keys, count=len(accesses.program.ops), each=count)


def permissible(hand_overs: HandOvers, asked: Columns) -> Sharing:
    """Return the pairs that may be at one address under some plan. Pairs that a `same` joins are
    returned only if they are in `asked` (donors, recipients).
    """
    accesses, known = hand_overs.accesses, _known(hand_overs.accesses)
    count = len(accesses.program.buffers)
    reads, writes = declared_pairs(accesses)
    if not known.all():
        foreign_reads = np.flatnonzero((hand_overs.given >= 0) & ~known[accesses.read_op])
        foreign_writes = np.flatnonzero((hand_overs.taken >= 0) & ~known[accesses.write_op])
        keys = accesses.read_op[foreign_reads], accesses.write_op[foreign_writes]
        zeros = np.zeros(len(foreign_reads), dtype=np.int64), np.zeros(len(foreign_writes), dtype=np.int64)
        guesses = _judge(accesses, (foreign_reads, foreign_writes), keys, zeros)
        if guesses.cut:
            rule = "more pairs of operand and result of ops with unknown contracts may share bytes than can be judged"
            raise ModelError("ops", rule)
        reads = np.concatenate([reads, guesses.read[guesses.assumed]])
        writes = np.concatenate([writes, guesses.write[guesses.assumed]])
    joined = hand_overs.sharing(reads, writes).beside(_moved_among(hand_overs, asked))
    if not len(joined.op):
        return joined
    # for the op that joins a pair, judge all operands in the donor with all results in the
    # recipient, with both buffers at address 0
    pairs = np.arange(len(joined.op))
    key = joined.op * count
    everything = accesses.results
    read_keys = everything.read_op * count + everything.read_buffer
    write_keys = everything.write_op * count + everything.write_buffer
    reads, read_pair = _members(key + joined.donor, read_keys)
    writes, write_pair = _members(key + joined.recipient, write_keys)
    bad = (
        _unsafe(everything, (reads, writes), (read_pair, write_pair), count=len(pairs))
        | _broken_apart(everything)[joined.op]
    )
    return joined.chosen(~bad)


def _known(accesses: Accesses) -> Bools:
    """Return the ops with a known contract; a `same` counts, because it needs no contract."""
    return accesses.contract.known | accesses.program.same_ops


def _moved_among(hand_overs: HandOvers, asked: Columns) -> Sharing:
    """Return the pairs of `asked` (donors, recipients) that are hand-overs by a `same`."""
    gives, takes = hand_overs.moving
    live, steps = hand_overs.live, len(hand_overs.accesses.program.ops) + 1
    row, pair = _members(asked[0], live.buffer[gives])
    donor_row = gives[row]
    key = asked[1][pair] * steps + live.stop[donor_row] - 1
    row, pair = _members(key, live.buffer[takes] * steps + live.start[takes])
    return hand_overs.pairs_of(donor_row[pair], takes[row])


def _moved_in(hand_overs: HandOvers, plan: Plan) -> Sharing:
    """Return the hand-overs by a `same` with buffers that share bytes under a plan."""
    gives, takes = hand_overs.moving
    live, arenas = hand_overs.live, len(plan.program.arenas)
    nbytes = np.maximum(plan.nbytes, hand_overs.accesses.program.buffers.nbytes)
    sides, rows = [], []
    for of, step in ((gives, live.stop[gives] - 1), (takes, live.start[takes])):
        keep = plan.placed[live.buffer[of]] & (nbytes[live.buffer[of]] > 0)
        buffer = live.buffer[of[keep]]
        low = plan.offset[buffer]
        rows.append(of[keep])
        sides.append(Ranges(key=step[keep] * arenas + plan.arena[buffer], low=low, high=end_of(low, nbytes[buffer])))
    found = join(sides[0], sides[1], cap=PAIR_CAP + 8 * (len(gives) + len(takes)))
    if found.total > len(found.left):
        rule = f"ops of kind `same` move between {found.total} pairs of overlapping slots; at most {len(found.left)} can be judged"
        raise ModelError("ops", rule)
    return hand_overs.pairs_of(rows[0][found.left], rows[1][found.right])


def moved_by(hand_overs: HandOvers, counted: Bools) -> Sharing:
    """Return pairs that connect all donors and all recipients of each `same` among the `counted`
    buffers. These pairs are the first donor with every recipient, and the first recipient with
    every donor.
    """
    live = hand_overs.live
    gives, takes = (rows[counted[live.buffer[rows]]] for rows in hand_overs.moving)
    donor_op, recipient_op = live.stop[gives] - 1, live.start[takes]
    first_donor = np.unique(donor_op, return_index=True)[1]
    first_recipient = np.unique(recipient_op, return_index=True)[1]
    to_all, donor = _members(donor_op[first_donor], recipient_op)
    from_all, recipient = _members(recipient_op[first_recipient], donor_op)
    donors = np.concatenate([gives[first_donor[donor]], gives[from_all]])
    recipients = np.concatenate([takes[to_all], takes[first_recipient[recipient]]])
    return hand_overs.pairs_of(donors, recipients)


def joined(hand_overs: HandOvers) -> Sharing:
    """Return all pairs that may share bytes under some plan, at any offsets, except pairs of a
    `same` (`moved_by`).

    O(accesses log accesses + pairs). Raises ModelError if ops with unknown contracts have more
    pairs of equal size than `PAIR_CAP` plus eight for each access.
    """
    reads, writes = declared_pairs(hand_overs.accesses)
    if not _known(hand_overs.accesses).all():
        more_reads, more_writes = _alike(hand_overs)
        reads, writes = np.concatenate([reads, more_reads]), np.concatenate([writes, more_writes])
    return hand_overs.sharing(reads, writes)


def _alike(hand_overs: HandOvers) -> tuple[Int64s, Int64s]:
    """Return pairs of a read and a write with equal layouts, for ops with an unknown contract. Each
    pair must hand over a buffer, and no table may call the pair unsafe.
    """
    accesses, contract, values = hand_overs.accesses, hand_overs.accesses.contract, hand_overs.accesses.program.values
    known = _known(accesses)
    reads = np.flatnonzero((hand_overs.given >= 0) & ~known[accesses.read_op])
    writes = np.flatnonzero((hand_overs.taken >= 0) & ~known[accesses.write_op])
    if not len(reads) or not len(writes):
        return reads[:0], writes[:0]
    read_value, write_value = accesses.read_value[reads], accesses.write_value[writes]
    op = np.concatenate([accesses.read_op[reads], accesses.write_op[writes]])
    value = np.concatenate([read_value, write_value])
    key = np.unique(np.stack([op, values.counts[value], values.width[value]]), axis=1, return_inverse=True)[1].ravel()
    sizes = (
        np.bincount(key[: len(reads)], minlength=len(key) + 1),
        np.bincount(key[len(reads) :], minlength=len(key) + 1),
    )
    total, most = int((sizes[0] * sizes[1]).sum()), PAIR_CAP + 8 * len(key)
    if total > most:
        rule = (
            f"ops with unknown contracts have {total} pairs of operand and result of one size; at most {most} can be "
            "judged"
        )
        raise ModelError("ops", rule)
    write, read = _members(key[: len(reads)], key[len(reads) :])
    a, b = read_value[read], write_value[write]
    results = len(accesses.program.ops.results)
    pair = accesses.read_row[reads[read]] * results + accesses.write_row[writes[write]]
    fine = accesses.extents.same_layout(a, b) & (values.counts[a] > 0) & ~among(pair, contract.refused)
    return reads[read[fine]], writes[write[fine]]


def permitted(hand_overs: HandOvers, touches: Touches, plan: Plan) -> Sharing:
    """Return the pairs that may share bytes under `plan`, for which `touches` was computed."""
    reads, writes = declared_pairs(hand_overs.accesses)
    accesses = hand_overs.accesses
    row = accesses.results.write_row[touches.write]
    assumed = np.flatnonzero(touches.assumed & among(row, accesses.write_row))
    guessed = np.searchsorted(accesses.write_row, row[assumed])
    joined = hand_overs.sharing(np.concatenate([reads, touches.read[assumed]]), np.concatenate([writes, guessed]))
    joined = joined.beside(_moved_in(hand_overs, plan))
    return joined.chosen(~among(joined.op, touches.op[touches.unsafe]))


def _unsafe(
    accesses: Accesses, rows: tuple[Int64s, Int64s], keys: tuple[Int64s, Int64s], *, count: int, each: int = 1
) -> Bools:
    """Return which of `count` owners have an unsafe pair with equal keys, with every buffer at
    address 0. `each` is the number of consecutive keys of an owner.

    If the join is cut, the unsafe owners are removed, and the others are judged again. An owner
    without an unsafe pair has few touching pairs, because all its pairs are declared. So most pairs
    that a cut leaves out belong to unsafe owners, and few rounds are needed.
    """
    bad = np.zeros(count, dtype=np.bool_)
    for _ in range(ROUNDS):
        left, right = (np.flatnonzero(~bad[key // each]) for key in keys)
        bases = np.zeros_like(left), np.zeros_like(right)
        found = _judge(accesses, (rows[0][left], rows[1][right]), (keys[0][left], keys[1][right]), bases, keyed=True)
        bad[found.op[found.unsafe] // each] = True
        if not found.cut:
            return bad
    raise ModelError("ops", f"more pairs of operand and result may share bytes than can be judged in {ROUNDS} rounds")


def _judge(
    accesses: Accesses,
    rows: tuple[Int64s, Int64s],
    keys: tuple[Int64s, Int64s],
    bases: tuple[Int64s, Int64s],
    *,
    keyed: bool = False,
) -> Touches:
    """Judge reads and writes of equal keys, placed at `bases`; with `keyed`, `op` is the key."""
    extents = accesses.extents
    sides, kept = [], _near(accesses, rows, bases)
    for side, values in ((0, accesses.read_value), (1, accesses.write_value)):
        keep, value = kept[side], values[rows[side][kept[side]]]
        sides.append(Ranges.laid(keys[side][keep], bases[side][keep], extents.low[value], extents.high[value]))
    found = join(sides[0], sides[1], cap=PAIR_CAP + 8 * (len(kept[0]) + len(kept[1])))
    at_read, at_write = kept[0][found.left], kept[1][found.right]
    read, write = rows[0][at_read], rows[1][at_write]
    a, b = accesses.read_value[read], accesses.write_value[write]
    base_a, base_b = bases[0][at_read], bases[1][at_write]
    # values that share a byte begin less than 2^63 apart, so the comparison is right even if both
    # sums wrap
    at_one = base_a + extents.start[a] == base_b + extents.start[b]
    exact = at_one & extents.same_layout(a, b)
    touching = (extents.dense[a] & extents.dense[b]) | (exact & extents.whole[a] & extents.whole[b])
    known: dict[tuple[int, int, int], bool] = {}
    for row in np.flatnonzero(~touching).tolist():
        pair = int(a[row]), int(b[row]), int(base_b[row]) - int(base_a[row])
        if pair not in known:
            moved = [(low + pair[2], high + pair[2]) for low, high in extents.runs(pair[1])]
            known[pair] = bool(shared(extents.runs(pair[0]), moved))
        touching[row] = known[pair]
    read, write = read[touching], write[touching]
    order = np.lexsort((write, read))
    met = np.flatnonzero(touching)[order]
    at_one, exact, shift, key = at_one[met], exact[met], (base_b - base_a)[met], keys[0][at_read][met]
    read, write = read[order], write[order]
    safe, assumed = _kept(accesses, read, write, at_one=at_one, exact=exact, shift=shift)
    op = accesses.read_op[read]
    unsafe = ~assumed & ~safe
    cut = found.total > len(found.left)
    if cut and not unsafe.any():
        rule = f"{found.total} pairs of operand and result may share bytes; at most {len(found.left)} can be judged"
        raise ModelError("ops", rule)
    return Touches(op=key if keyed else op, read=read, write=write, assumed=assumed, unsafe=unsafe, cut=cut)


def _near(accesses: Accesses, rows: tuple[Int64s, Int64s], bases: tuple[Int64s, Int64s]) -> list[Int64s]:
    """Return the reads with a hull that overlaps the hull of all writes of their op, in any space,
    and the writes of these ops. The join needs only these accesses.
    """
    extents, count = accesses.extents, len(accesses.program.ops)
    ops = accesses.read_op[rows[0]], accesses.write_op[rows[1]]
    values = accesses.read_value[rows[0]], accesses.write_value[rows[1]]
    filled = [np.flatnonzero(extents.low[value] < extents.high[value]) for value in values]
    low, high = (
        [end_of(base[keep], ends[value[keep]]) for base, value, keep in zip(bases, values, filled, strict=True)]
        for ends in (extents.low, extents.high)
    )
    op = [of[keep] for of, keep in zip(ops, filled, strict=True)]
    lowest, highest = np.full(count, TOP, dtype=np.int64), np.full(count, -TOP, dtype=np.int64)
    np.minimum.at(lowest, op[1], low[1])
    np.maximum.at(highest, op[1], high[1])
    near = (low[0] < highest[op[0]]) & (high[0] > lowest[op[0]])
    met = np.zeros(count, dtype=np.bool_)
    met[op[0][near]] = True
    return [filled[0][near], filled[1][met[op[1]]]]


def _kept(
    accesses: Accesses, read: Int64s, write: Int64s, *, at_one: Bools, exact: Bools, shift: Int64s
) -> tuple[Bools, Bools]:
    """Return which of the given pairs of a read and a write of one op keep a promise, and which are
    exact aliases with an unknown promise. The pairs must share a byte.

    `shift` is the start of the written buffer minus the start of the read buffer, in units.
    """
    contract, extents = accesses.contract, accesses.extents
    results = len(accesses.program.ops.results)
    pair = accesses.read_row[read] * results + accesses.write_row[write]
    promised = contract.operand_row * results + contract.result_row
    exactly = among(pair, promised[contract.strength == EXACT])
    wholly = among(pair, promised[contract.strength == WHOLE])
    op = accesses.read_op[read]
    same = accesses.program.same_ops[op]
    safe: Bools = ((exact & exactly) & ~same) | wholly
    if np.any(contract.strength == BYTES):
        a, b, values = accesses.read_value[read], accesses.write_value[write], accesses.program.values
        fits = at_one & extents.contiguous[a] & extents.contiguous[b] & (values.nbytes[b] <= values.nbytes[a]) & ~same
        safe |= fits & among(pair, promised[contract.strength == BYTES])
    known = _known(accesses)[op] | among(pair, contract.refused) | among(pair, promised)
    asked = np.flatnonzero(same & ~safe)
    safe[asked] = _one_set(accesses, read[asked], write[asked], shift[asked])
    return safe, exact & ~known


def _one_set(accesses: Accesses, read: Int64s, write: Int64s, shift: Int64s) -> Bools:
    """Return which operands and results cover the same units, with their buffers `shift` apart."""
    extents, a, b = accesses.extents, accesses.read_value[read], accesses.write_value[write]
    alike: Bools = (extents.low[a] == extents.low[b] + shift) & (extents.high[a] == extents.high[b] + shift)
    for row in np.flatnonzero(~(extents.dense[a] & extents.dense[b])).tolist():
        moved = [(low + int(shift[row]), high + int(shift[row])) for low, high in extents.runs(int(b[row]))]
        alike[row] = extents.runs(int(a[row])) == moved
    return alike


def declared_pairs(accesses: Accesses) -> tuple[Int64s, Int64s]:
    """Return the read and the write of every promised pair, as rows of the accesses' columns."""
    contract, ops = accesses.contract, accesses.program.ops
    places = [np.full(len(column), -1, dtype=np.int64) for column in (ops.operands, ops.results)]
    for place, rows in zip(places, (accesses.read_row, accesses.write_row), strict=True):
        place[rows] = np.arange(len(rows))
    read, write = places[0][contract.operand_row], places[1][contract.result_row]
    there = (read >= 0) & (write >= 0)
    return read[there], write[there]


def _members(groups: Int64s, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return (row of `keys`, row of `groups`) for all pairs of equal entries."""
    order = np.argsort(keys, kind="stable")
    low = np.searchsorted(keys[order], groups, side="left")
    high = np.searchsorted(keys[order], groups, side="right")
    lengths = high - low
    group = np.repeat(np.arange(len(groups)), lengths)
    within = np.arange(len(group)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return order[low[group] + within], group
