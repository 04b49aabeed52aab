"""The compiled screen of `s_dataflow`, which selects the reads over a memory that must be compared.

The screen replays the same scripts as `s_dataflow`, without witnesses, and selects every read that
may be wrong. All other reads are right, and a selected read may be right. If the screen selects a
read of a `same`, all reads must be compared. The screen answers two questions by lookups, about one
for each byte run, in an axis in which neighbours of one owner are joined. So a byte run of a
million pieces costs no more than a byte run of one piece:

    apart      Did the op that made the value write each of its bytes last? For a value without an op: did this run write each byte last?
    planned    Was the last write to each byte, at its planned address, a write to this buffer? If so, the writer is also the last writer
               apart, because each write to a byte apart also writes its planned address, as long
               as the buffer stays at one address

Apart, buffers do not affect each other; as planned, address spaces do not affect each other. So
accesses are processed buffer by buffer, or space by space (`_Chains`), through all runs in order,
and a small axis stays in the processor's cache.

Complexity: O((accesses + byte runs) log(byte runs of one buffer or space)) for all runs. Loading
machine code takes as long as about ten thousand reads in plain Python. `pays` decides when loading
is worthwhile, for one large document or for many small documents.

This module does not find witnesses, and does not decide kinds of defect.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from allocsim.judge.fast.accesses import handed_on
from allocsim.judge.fast.h_sessions import at_rest
from allocsim.judge.fast.intervals import TOP, among, distinct
from allocsim.judge.fast.s_script import Runs
from allocsim.judge.fast.s_tags import Copies
from allocsim.judge.fast.trial import Trial
from allocsim.model import Bools
from allocsim.model.layout import Int64s

COMPILE_FROM: Final = 200_000
"""The work from which the screen is worthwhile, in one document or summed over all documents of
this process. Work is the sum of accesses, their byte runs, and pieces of buffers to read."""

SMALL: Final = 1_000
"""The work below which comparing every read is faster even if the code is loaded."""

_done: Final = [0.0]
"""The work that `pays` has summed so far; documents with less work than `SMALL` do not count."""

ROOM: Final = 1 << 22
"""The largest number of reads that the screen records; with more, all reads are compared."""

UNSEEN: Final = -9


def pays(runs: Runs) -> bool:
    """Return whether the screen is faster than comparing every read."""
    times = np.bincount(runs.follows, minlength=len(runs.scripts))
    reach_low, reach_high = runs.identities.reach
    work = 0.0
    for script, count in zip(runs.scripts, times.tolist(), strict=True):
        whole = script.dense & (script.low == reach_low[script.identity]) & (script.high == reach_high[script.identity])
        buffers = int(script.buffer.max(initial=0)) + 1
        pieces = np.bincount(script.buffer[script.write & ~whole], minlength=buffers).astype(np.float64)
        work += count * (
            len(script) + script.runs + float(pieces @ np.bincount(script.buffer[~script.write], minlength=buffers))
        )
    if work < SMALL:
        return work >= COMPILE_FROM
    _done[0] += work
    return _done[0] >= COMPILE_FROM


def reads_to_look_at(runs: Runs) -> list[Int64s] | None:
    """Return for each run the rows of its script with reads that may be wrong.

    Return None if all reads must be compared.
    """
    if not (runs.identities.ordered and pays(runs)):
        return None
    distinct_runs = {trial.alike: trial for trial in runs.identities.trials}.values()
    if any(_hands_on_nothing(trial) or _rests_under_itself(trial) for trial in distinct_runs):
        return None
    from allocsim.judge.fast.screens import axes as kernels  # noqa: PLC0415 - imports numba

    facts, identities = _Facts.of(runs), runs.identities
    found = np.empty(ROOM, dtype=np.int64), np.empty(ROOM, dtype=np.int64)
    chains = _Chains.of(runs, facts, _by_buffer, kernels.grouped)
    axes = kernels.axis_for(chains.segments), kernels.axis_for(chains.segments)
    apart = facts.write, facts.number, facts.low, facts.high, facts.hole, facts.made
    buffers = identities.persistent, *identities.reach
    count = kernels.stray_apart(chains.columns, apart, buffers, facts.holes, facts.values, axes, found)
    if count > ROOM:
        return None
    noted = [(found[0][:count].copy(), found[1][:count].copy())]
    chains = _Chains.of(runs, facts, _by_space, kernels.grouped)
    content = _content(runs)
    axis = kernels.axis_for(chains.segments + 2 * len(content[0]))
    planned = facts.write, facts.low, facts.high, facts.hole, facts.base, facts.buffer
    count = kernels.stray_planned(chains.columns, planned, _keys(runs), facts.holes, content, axis, found)
    if count > ROOM:
        return None
    noted.append((found[0][:count], found[1][:count]))
    run, row = (np.concatenate(column) for column in zip(*noted, strict=True))
    if np.any(facts.hands_on[row]):
        return None  # a `same` may copy wrong content, and then all later readers are suspect
    row = row - facts.begins[np.array(runs.follows, dtype=np.int64)[run]]
    order = np.argsort(run, kind="stable")
    ends = np.searchsorted(run[order], np.arange(len(runs.follows) + 1)).tolist()
    return [distinct(row[order[low:high]]) for low, high in pairwise(ends)]


def _hands_on_nothing(trial: Trial) -> bool:
    """Return whether a `same` reads a value that reaches outside its buffer. The bytes outside have
    no write, so the matching bytes of the result have no write either.
    """
    program, extents = trial.program, trial.accesses.extents
    if not program.same_ops.any():
        return False
    reader = np.repeat(np.arange(len(program.ops)), np.diff(program.ops.operand_starts))
    return not bool(extents.whole[program.ops.operands[program.same_ops[reader]]].all())


def _rests_under_itself(trial: Trial) -> bool:
    """Return whether a `same` has two results in one buffer and leaves one of these in place. The
    other result may overwrite the bytes in place, and both results have the same key.
    """
    rests, ops = sorted(at_rest(trial)), trial.program.ops
    if not rests:
        return False
    op = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    place = op * len(trial.program.buffers) + trial.program.values.buffer[ops.results]
    _, number, times = np.unique(place, return_inverse=True, return_counts=True)
    return bool(np.any(times[number.ravel()[rests]] > 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The rows of all scripts, concatenated."""

    begins: Int64s
    """int64 (scripts,): the first row of each script."""
    hands_on: Bools
    """bool (rows,): whether the access belongs to a `same`."""
    write: Bools
    number: Int64s
    """int64 (rows,): the number of the value, counted over all programs."""
    values: int
    low: Int64s
    high: Int64s
    hole: Int64s
    """The row of `holes`, or -1 for a value without holes."""
    made: Bools
    base: Int64s
    buffer: Int64s
    holes: tuple[Int64s, Int64s, Int64s]
    """The byte runs in CSR form: starts, low, high."""
    pieces: Int64s
    """The number of byte runs that a row writes, 0 for a read."""

    @classmethod
    def of(cls, runs: Runs) -> "_Facts":
        """Collect the rows; values and holes are numbered over all programs."""
        first_value: dict[int, int] = {}
        first_hole: dict[int, int] = {}
        starts, low, high = [np.zeros(1, dtype=np.int64)], [], []
        values = holes = pieces = 0
        for script in runs.scripts:
            if script.program not in first_value:
                table = script.extents.holes
                first_value[script.program], first_hole[script.program] = values, holes
                values += len(script.extents.dense)
                starts.append(table.starts[1:] + pieces)
                holes, pieces = holes + len(table.starts) - 1, pieces + len(table.low)
                low.append(table.low)
                high.append(table.high)
        hole = [
            np.where(script.dense, -1, script.extents.holes.row[script.value] + first_hole[script.program])
            for script in runs.scripts
        ]
        flat = joined(starts)
        rows = joined(hole)
        write = joined([script.write for script in runs.scripts])
        return cls(
            begins=np.cumsum([0, *map(len, runs.scripts[:-1])], dtype=np.int64),
            hands_on=joined([script.same_ops[script.op] for script in runs.scripts]),
            write=write,
            number=joined([script.value + first_value[script.program] for script in runs.scripts]),
            values=values,
            low=joined([script.low for script in runs.scripts]),
            high=joined([script.high for script in runs.scripts]),
            hole=rows,
            made=joined([script.made for script in runs.scripts]),
            base=joined([script.base for script in runs.scripts]),
            buffer=joined([script.buffer for script in runs.scripts]),
            holes=(flat, joined(low), joined(high)),
            pieces=np.where(rows < 0, 1, np.diff(flat, append=0)[rows]) * write,
        )


def joined(columns: Sequence[Any]) -> Any:
    """Return the concatenated columns; a single column is returned without a copy."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """Rows sorted by key (buffer or space), then by run, then by order of effect."""

    columns: tuple[Int64s, Int64s, Int64s, Int64s, Int64s]
    """Key, run, begin and end of each chain; begin and end refer to the fifth column, the rows."""
    segments: int
    """The largest number of segments that an axis needs for any key."""

    @classmethod
    def of(
        cls,
        runs: Runs,
        facts: _Facts,
        keyed: Callable[[Runs, int], tuple[Int64s, Int64s, Int64s]],
        grouped: Callable[[Int64s, int], tuple[Int64s, Int64s]],
    ) -> "_Chains":
        """Return the chains of all rows.

        For a script, given by number, `keyed` returns each row's index into a list of keys, the
        list of keys, and the order in which rows take effect. Negative keys are ignored.
        """
        links, rows = [], []
        room: Int64s = np.zeros(1, dtype=np.int64)
        for number, (script, begin) in enumerate(zip(runs.scripts, facts.begins.tolist(), strict=True)):
            place, keys, turn = keyed(runs, number)
            starts, order = grouped(place[turn], len(keys))
            order = turn[order]
            used = np.flatnonzero((np.diff(starts) > 0) & (keys >= 0))
            links.append((keys[used], starts[used] + begin, starts[used + 1] + begin))
            rows.append(order + begin)
            written = np.bincount(place, weights=facts.pieces[begin : begin + len(script)], minlength=len(keys)).astype(
                np.int64
            )
            room = np.pad(room, (0, max(int(keys.max(initial=-1)) + 1 - len(room), 0)))
            np.add.at(room, keys[used], written[used])
        key = joined([links[script][0] for script in runs.follows])
        run = np.repeat(np.arange(len(runs.follows)), [len(links[script][0]) for script in runs.follows])
        begins, ends = (joined([links[script][side] for script in runs.follows]) for side in (1, 2))
        order = np.argsort(key, kind="stable")
        return cls(
            columns=(key[order], run[order], begins[order], ends[order], joined(rows)), segments=2 * int(room.max()) + 8
        )


def _by_buffer(runs: Runs, number: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return each row's index into the keys, the keys (buffer identities), and the row order."""
    script = runs.scripts[number]
    return script.buffer, script.buffers, np.arange(len(script))


def _by_space(runs: Runs, number: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return each row's index into the keys, the keys (address spaces), and the rows in the order
    in which they take effect as planned.

    A result that a `same` leaves in place is not written. Its bytes are in place before the `same`
    writes any other result, and such a write may overwrite these bytes.
    """
    script, trial = runs.scripts[number], runs.identities.trials[runs.follows.index(number)]
    spaces = distinct(script.places[0])
    place: Int64s = np.searchsorted(spaces, script.places[0])[script.buffer]
    turn = np.arange(len(script))
    resting = trial.program.ops.results[sorted(at_rest(trial))]
    if len(resting):
        rests = script.write & among(script.value, resting.astype(np.int64))
        turn = np.argsort(3 * script.op + script.write + (script.write & ~rests), kind="stable")
    return place, spaces, turn


def _content(runs: Runs) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the initial content, from before the first run, sorted by space: space, low and high
    address, key.
    """
    identities = runs.identities
    rows = []
    for identity in np.flatnonzero(identities.persistent & identities.moves).tolist():
        position, buffer = identities.home(identity)
        space, base = runs.scripts[runs.follows[position]].places
        nbytes = int(identities.trials[position].accesses.extents.room[buffer])
        if nbytes:
            rows.append((int(space[buffer]), int(base[buffer]), min(int(base[buffer]) + nbytes, TOP), identity))
    rows.sort(key=lambda row: row[0])
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    space, low, high, key = (np.ascontiguousarray(column) for column in columns.T)
    return space, low, high, key


def _aliases(runs: Runs, follows: int) -> Int64s:
    """Return an alias for each buffer of a script. The alias is the buffer that a `same` copies to
    this buffer at one address, or else the buffer itself.

    Both buffers are written once in the run, as a whole, and only read as a whole, so the bytes are
    right for both or for neither. The `same` itself writes nothing, so its result counts as written
    before its other results (`_by_space`). If another result shares bytes with it, that result
    overwrites both.
    """
    script = runs.scripts[follows]
    alias = np.arange(len(script.buffers))
    if not script.same_ops.any():
        return alias
    accesses, extents = runs.identities.trials[runs.follows.index(follows)].accesses, script.extents
    plain, (space, base) = Copies.of(accesses).plain, script.places
    _, source, target = handed_on(accesses.program)
    one, other = extents.buffer[source], extents.buffer[target]
    rest = plain[one] & plain[other] & (space[one] == space[other]) & (one != other)
    rest &= extents.contiguous[source] & extents.contiguous[target]
    rest &= base[one] + extents.start[source] == base[other] + extents.start[target]
    alias[other[rest]] = one[rest]
    while np.any(alias[alias] != alias):
        alias = alias[alias]
    return alias


def _keys(runs: Runs) -> tuple[Int64s, Int64s]:
    """Return a key for each buffer and run, in CSR form. A buffer gets a new key whenever its
    address changes from one run to the next.

    The first key of a buffer is its identity, which is also the key of its initial content.
    """
    count = runs.identities.count
    key, space, base = np.arange(count), np.full(count, UNSEEN, dtype=np.int64), np.zeros(count, dtype=np.int64)
    columns: list[Int64s] = []
    starts: list[int] = []
    known: dict[int, int] = {}
    length = 0
    for follows in runs.follows:
        script = runs.scripts[follows]
        mine = script.buffers
        new_space, new_base = script.places
        moved = mine[(space[mine] != UNSEEN) & ((space[mine] != new_space) | (base[mine] != new_base))]
        if len(moved):
            key[moved] = np.arange(count, count + len(moved))
            count += len(moved)
            known = {}
        space[mine], base[mine] = new_space, new_base
        if follows not in known:
            known[follows] = length
            columns.append(key[mine][_aliases(runs, follows)])
            length += len(mine)
        starts.append(known[follows])
    return np.array(starts, dtype=np.int64), joined(columns)
