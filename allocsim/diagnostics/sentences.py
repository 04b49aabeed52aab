"""Make the sentence of a violation from its record and the facts of its document.

    sentence(facts, record)     "op 3 'add' reads bytes [0, 256) of buffer 0 'x' ..."
    names_of(facts, record)     the names of all ops, values and buffers of a record

`SENTENCES` has a function for each kind of violation. A sentence is one line. Ops, values and
buffers are written as `op 17 'mul_1'`, and addresses as `cpu[128, 384)`. At most three byte ranges
are listed.

This module does not find defects, and does not decide which party is at fault.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from allocsim.diagnostics.asked_facts import AskedFacts
from allocsim.judge.violations import NO_MORE, Range, Violation

Words = Callable[["_Record"], str]


def sentence(facts: AskedFacts, v: Violation) -> str:
    """Return the sentence for the record `v`."""
    said = SENTENCES[v.kind](_Record(facts, v))
    more = "; more bytes of this read may be wrong" if v.more.partial else ""
    ends = f" (at the {' and the '.join(v.ends)} end of the sizes)" if v.ends else ""
    return f"{said}{more}{ends}"


def names_of(facts: AskedFacts, v: Violation) -> dict[str, str]:
    """Return the names of the ops, values and buffers of a record; docs/format.md has the keys."""
    if v.program is None:
        return {}
    program = facts.program(v.program)
    other = program if v.other_run is None else facts.ran(v.other_run)
    wanted = program if v.want_run is None else facts.ran(v.want_run)
    rows = (
        ("op_name", v.op, program, facts.op),
        ("value_name", v.value, program, facts.value),
        ("buffer_name", v.buffer, program, facts.buffer),
        ("other_op_name", v.other_op, other, facts.op),
        ("other_buffer_name", v.other_buffer, other, facts.buffer),
        ("want_op_name", v.want_op, wanted, facts.op),
    )
    return {key: find(where, index)[0] for key, index, where, find in rows if index is not None}


class _Record:
    """A record with the facts of its document, and methods that make the phrases of sentences."""

    def __init__(self, facts: AskedFacts, v: Violation) -> None:
        self.facts, self.v, self.more = facts, v, v.more
        self.program: Any = facts.program(v.program or 0)
        self.step = v.step or 0
        self.told = v.more is not NO_MORE
        """Whether the judge filled in `Violation.more`."""
        self._end = None if v.ends is None else int("low" not in v.ends)

    def op(self, step: int | None, program: Any = None) -> str:
        """Return `op 17 'mul_1'`; if the op has no name, its kind is used instead."""
        name, _, kind = self.facts.op(program or self.program, step or 0)
        return f"op {step} {name or kind!r}"

    def value(self, index: int | None, program: Any = None) -> str:
        """Return `value 4 'x'`."""
        return f"value {index} {self.facts.value(program or self.program, index or 0)[0]!r}"

    def buffer(self, index: int | None = None, program: Any = None) -> str:
        """Return `buffer 2 'x'`; the default is the record's own buffer."""
        index = self.v.buffer if index is None else index
        return f"buffer {index} {self.facts.buffer(program or self.program, index or 0)[0]!r}"

    def slot(self, index: int | None = None, *, whole: bool = False) -> str:
        """Return the addresses of a buffer as `cpu[128, 384)`, or words for a buffer outside the
        arenas. If `whole`, return the addresses of its slot, whose size may differ.
        """
        index = (self.v.buffer if index is None else index) or 0
        place = self.facts.slot(self.v.plan or 0, index)
        if place.arena < 0:
            return "memory of its own" if place.own else "no slot"
        end = place.offset + (place.nbytes if whole else self.facts.nbytes(self.program, index, self._end))
        return f"{self.facts.arena(self.program, place.arena)[0]}[{place.offset}, {end})"

    def bytes(self) -> str:
        """Return the byte ranges of the record in words."""
        return _bytes(self.v.bytes)

    def nbytes(self) -> int:
        """Return the size of the record's buffer in bytes."""
        return self.facts.nbytes(self.program, self.v.buffer or 0, self._end)

    def belief(self, index: int | None = None) -> Any:
        """Return the belief of the record's problem about buffer `index`, by default its own."""
        buffer = self.v.buffer if index is None else index
        return self.facts.belief(self.v.problem or 0, buffer or 0, self._end)

    def span(self, index: int | None = None) -> str:
        """Return the believed life of a buffer with its gaps, as `[0, 4) less [1, 2)`."""
        belief = self.belief(index)
        gaps = ", ".join(f"[{low}, {high})" for low, high in belief.gaps[:2])
        more = " and more" if len(belief.gaps) > 2 else ""
        return f"[{belief.start}, {belief.stop})" + (f" less {gaps}{more}" if gaps else "")

    def witness(self, run: int | None, op: int | None, value: int | None, content: tuple[int, int] | None) -> str:
        """Return in words the write or initial content that a read found, or should have found."""
        if run is not None:
            program = self.facts.ran(run)
            named = "" if value is None else f" ({self.value(value, program)})"
            return f"{self.op(op, program)} of run {run}{named}"
        if content is None:
            return "no write" if self.told else "no op"
        return f"the initial content of {self.buffer(content[1], self.facts.program(content[0]))}"


def _bytes(found: Sequence[Range]) -> str:
    """Return byte ranges as `bytes [0, 4), [8, 12)`, or `no bytes`."""
    return f"bytes {_listed(found, ' ranges')}" if found else "no bytes"


def _listed(found: Sequence[Range], what: str = "") -> str:
    """Return at most three ranges as text, with the number of further ranges."""
    more = f" and {len(found) - 3} more{what}" if len(found) > 3 else ""
    return ", ".join(f"[{low}, {high})" for low, high in found[:3]) + more


# reads --------------------------------------------------------------------------------------------


def _read(r: _Record) -> str:
    return f"{r.op(r.v.op)} reads {r.bytes()} of {r.buffer()} as {r.value(r.v.value)}"


def _finder(r: _Record) -> str:
    return r.witness(r.v.other_run, r.v.other_op, r.more.other_value, r.more.content)


def _stale(r: _Record) -> str:
    content = r.more.want_content or (r.v.program or 0, r.v.buffer or 0)  # unused if an op wrote it
    wanted = r.witness(r.v.want_run, r.v.want_op, r.more.want_value, content)
    found = _finder(r)
    if found == wanted:
        return f"{_read(r)} in {r.slot()}: they hold bytes of {found}, but not the right ones"
    return f"{_read(r)} in {r.slot()}: their content comes from {found}, not from {wanted}"


# writes -------------------------------------------------------------------------------------------

WHY_UNSAFE: Final = {
    "sets": "the two cover different sets of bytes, and the pair is not declared `whole`",
    "refused": "the table of kinds calls the pair unsafe",
    "addresses": "the two begin at different addresses",
    "not contiguous": "one of the two is not contiguous, or the result is larger than the operand",
    "layouts": "the layouts of the two differ",
    "undeclared": "not every pair of positions is declared",
    "": "the kernel does not promise that this is safe",
}


def _laid_over(r: _Record, reason: str) -> str:
    results = [v for v in r.facts.sides(r.program, r.step)[1] if v != r.v.value]
    mine = [v for v in results if r.facts.value(r.program, v)[1] == r.v.other_buffer]
    other = r.value(r.more.other_value if r.more.other_value is not None else mine[0] if mine else r.v.value)
    return f"{r.op(r.v.op)} puts {other} over {r.value(r.v.value)}, {r.bytes()} of {r.buffer()} in {r.slot()}, {reason}"


# slots --------------------------------------------------------------------------------------------


def _out_of_bounds(r: _Record) -> str:
    place, value = r.facts.slot(r.v.plan or 0, r.v.buffer or 0), r.more.other_value
    faults = []
    if place.arena >= 0:
        name, capacity = r.facts.arena(r.program, place.arena)
        end = place.offset + place.nbytes
        if place.offset < 0:
            faults.append(f"its slot begins {-place.offset} bytes before {name}")
        if capacity is not None and end > capacity:
            faults.append(f"its slot ends at {end}, {name} at {capacity}")
    value = r.v.value if value is None else value
    if value is not None:
        faults.append(f"{r.value(value)} reaches outside its {r.nbytes()} bytes")
    return f"{r.buffer()}: {'; '.join(faults)}"


def _undersized(r: _Record) -> str:
    problem = r.facts.problem_of(r.v.program or 0, r.v.plan or 0)
    size = r.nbytes() if problem is None else r.facts.belief(problem, r.v.buffer or 0, r._end).nbytes  # noqa: SLF001
    return f"{r.buffer()} needs {size} bytes; its slot has {r.facts.slot(r.v.plan or 0, r.v.buffer or 0).nbytes}"


def _wrong_arena(r: _Record) -> str:
    wanted = r.facts.arena(r.program, r.facts.buffer(r.program, r.v.buffer or 0)[2])[0]
    found = r.facts.arena(r.program, r.facts.slot(r.v.plan or 0, r.v.buffer or 0).arena)[0]
    return f"{r.buffer()} belongs in {wanted}; its slot is in {found}"


def _misaligned(r: _Record) -> str:
    alignment = r.facts.buffer(r.program, r.v.buffer or 0)[1]
    return f"{r.buffer()} in {r.slot()} does not begin at a multiple of {alignment}"


def _overlap(r: _Record) -> str:
    at = f"at step {r.more.live[0][0]}" if r.more.live else "at one step"
    at = at if r.v.op is None else f"when {r.op(r.v.op)} runs"
    return (
        f"{r.buffer()} in {r.slot()} and {r.buffer(r.v.other_buffer)} in {r.slot(r.v.other_buffer)} both live {at}; "
        f"they share {r.bytes()} of the first"
    )


# beliefs ------------------------------------------------------------------------------------------


def _too_short(r: _Record) -> str:
    belief, live = r.belief(), r.more.live
    if r.more.reason == "gap":
        gaps = _merged(belief.gaps)
        step = next(max(a, c) for a, b in gaps for c, d in live if max(a, c) < min(b, d))
        free = ", ".join(f"[{low}, {high})" for low, high in gaps[:3])
        return (
            f"{r.buffer()} is believed to be free in steps {free}; it is live in "
            f"{_segments(r, live)}, so at step {max(step, 0)}"
        )
    if r.v.op is None:
        return f"{r.buffer()} is believed to live in steps {r.span()}, but it also lives in other steps"
    operands, results = r.facts.sides(r.program, r.step)
    mine = [v for v in operands if r.facts.value(r.program, v)[1] == r.v.buffer]
    verb = "reads" if mine else "writes"
    value = next(iter(mine or [v for v in results if r.facts.value(r.program, v)[1] == r.v.buffer]), None)
    accesses = f"its accesses are in {_listed(live)}: " if live else ""
    span = f"[{belief.start}, {belief.stop})" if r.told else r.span()
    return (
        f"{r.buffer()} is believed to live in steps {span}; {accesses}"
        f"{r.op(r.v.op)} {verb} {r.buffer() if value is None else r.value(value)}"
    )


def _merged(ranges: Sequence[Range]) -> list[Range]:
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        elif low < high:
            found.append((low, high))
    return found


def _segments(r: _Record, live: Sequence[Range]) -> str:
    steps = r.facts.steps(r.program)
    return _listed([(max(low, 0), min(high, steps)) for low, high in live])


def _too_long(r: _Record) -> str:
    belief = r.belief()
    needed = f"; it is live in {_segments(r, r.more.live)}" if r.more.live else ""
    return f"{r.buffer()} is believed to live in steps [{belief.start}, {belief.stop}){needed}"


def _bad_size(r: _Record) -> str:
    believed, size = r.belief().nbytes, r.nbytes()
    return f"{r.buffer()} is believed to have {believed} bytes; it has {size}: {size - believed} are missing"


WHY_BAD: Final[dict[str, str]] = {
    "unaccessed": "one of the two is never accessed",
    "apart": "no op ends a segment of the donor, {donor}, with a read and begins a segment of the recipient, {recipient}, with a write",
    "not given": "{op} does not only read the donor",
    "not taken": "{op} does not only write the recipient",
    "undeclared": "{op} does not declare this pair, or is not safe with both at one address",
    "elsewhere": "both are also live at {op}, which does not permit the pair",
    "": "the pair is not permitted at any op",
}


def _bad_share(r: _Record) -> str:
    why = WHY_BAD[r.more.reason].format(
        donor=_segments(r, r.more.live),
        recipient=_segments(r, r.more.other_live),
        op="" if r.more.at is None else r.op(r.more.at),
    )
    return f"{r.buffer(r.v.other_buffer)} is believed to be free to take the bytes of {r.buffer()}, but must not take them: {why}"


# promises -----------------------------------------------------------------------------------------


def _meeting(r: _Record) -> str:
    lives = "pinned" if r.v.kind == "PinIgnored" else f"believed to live in steps {r.span()}"
    known = {"start", "stop"} <= r.facts.stated(r.v.problem or 0)
    lives_too = f"believed to live in steps {r.span(r.v.other_buffer)}" if known else "pinned as well"
    return (
        f"{r.buffer()} in {r.slot()}, {lives}, and {r.buffer(r.v.other_buffer)} in {r.slot(r.v.other_buffer)}, "
        f"{lives_too}, share {r.bytes()} of the first; both need them at step {r.step}"
    )


def _place(r: _Record) -> str:
    placed = r.facts.slot(r.v.plan or 0, r.v.buffer or 0).arena >= 0
    return f"a slot in {r.slot()}" if placed else r.slot()


def _size_ignored(r: _Record) -> str:
    room = r.facts.slot(r.v.plan or 0, r.v.buffer or 0).nbytes
    return f"{r.buffer()} is believed to have {r.belief().nbytes} bytes; its slot has {room}"


def _own_untold(r: _Record) -> str:
    return (
        f"{r.buffer()} is in memory of its own, but its problem does not state that; its {r.belief().nbytes} bytes count in no "
        "arena and in no peak"
    )


# events -------------------------------------------------------------------------------------------


def _event(r: _Record, done: str) -> str:
    number = "the planner" if r.more.event is None else f"event {r.more.event}"
    return f"{number} (step {r.step}) {done} {r.buffer()}"


def _outside(r: _Record) -> str:
    pin = " and is pinned" if r.belief().pinned else ""
    missed = f": it has no memory in step {r.more.live[0][0]}" if r.more.live else ""
    done = "allocates" if r.more.reason == "alloc" else "frees" if r.told else "leaves free"
    return f"{_event(r, done)}, which is believed to live in steps {r.span()}{pin}{missed}"


def _over_live(r: _Record) -> str:
    if r.v.other_buffer in {None, r.v.buffer}:
        return f"{_event(r, 'allocates')}, which is still allocated"
    one, other = (r.facts.slot(r.v.plan or 0, buffer or 0) for buffer in (r.v.buffer, r.v.other_buffer))
    shift = other.offset - one.offset
    low, high = max(shift, 0), min(one.nbytes, shift + other.nbytes)
    shared = f"bytes [{low}, {high})" if low < high else "no bytes"
    return (
        f"{_event(r, 'allocates')} in {r.slot(whole=True)} over {r.buffer(r.v.other_buffer)} in "
        f"{r.slot(r.v.other_buffer, whole=True)}, which is still allocated; their slots share {shared} of the first slot"
    )


# streams ------------------------------------------------------------------------------------------


def _race(r: _Record) -> str:
    v, others = r.v, r.program if r.v.other_run is None else r.facts.ran(r.v.other_run)
    writes, _, other_writes = (v.hazards or ("write after write",))[0].partition(" after ")
    streams = r.facts.op(r.program, v.op or 0)[1], r.facts.op(others, v.other_op or 0)[1]
    elsewhere = "" if v.other_run == v.run else f" of run {v.other_run}"
    as_value = "" if r.more.other_value is None else f" as {r.value(r.more.other_value, others)}"
    return (
        f"{r.op(v.op)} on stream {streams[0]!r} {writes}s {r.bytes()} of {r.buffer()} in {r.slot()} as "
        f"{r.value(v.value)}; {r.op(v.other_op, others)}{elsewhere} on stream {streams[1]!r} {other_writes}s them"
        f"{as_value}, and neither waits for the other"
    )


SENTENCES: Final[dict[str, Words]] = {
    "UninitialisedRead": lambda r: f"{_read(r)}: nothing wrote them before",
    "OverwrittenRead": lambda r: f"{_read(r)}: even with every buffer apart, they hold bytes of {_finder(r)} instead",
    "StaleRead": _stale,
    "HistoryRead": lambda r: f"{_read(r)}: their content comes from an earlier run, from {_finder(r)}",
    "UnsafeInPlace": lambda r: _laid_over(r, f"unsafely: {WHY_UNSAFE[r.more.reason]}"),
    "AssumedInPlace": lambda r: _laid_over(r, "exactly; the document does not state what the kernel promises"),
    "ResultsOverlap": lambda r: _laid_over(r, "and both are results of the op"),
    "WriteToReadOnly": lambda r: f"{r.op(r.v.op)} writes {r.value(r.v.value)} into the read-only {r.buffer()}",
    "Overlap": _overlap,
    "OutOfBounds": _out_of_bounds,
    "Undersized": _undersized,
    "Misaligned": _misaligned,
    "WrongArena": _wrong_arena,
    "Unplaced": lambda r: f"{r.buffer()} is used but has no slot",
    "PinIgnored": _meeting,
    "LifetimeIgnored": _meeting,
    "OwnIgnored": lambda r: f"{r.buffer()} must be in memory of its own by its problem; it has {_place(r)}",
    "OwnUntold": _own_untold,
    "FixedIgnored": lambda r: f"{r.buffer()} must be at offset {r.belief().fixed} by its problem; it has {_place(r)}",
    "SizeIgnored": _size_ignored,
    "EventOutsideLifetime": _outside,
    "LifetimeTooShort": _too_short,
    "MissingPin": _too_short,
    "LifetimeTooLong": _too_long,
    "BadSize": _bad_size,
    "BadShare": _bad_share,
    "DoubleFree": lambda r: f"{_event(r, 'frees')}, which was freed already",
    "FreeOfUnallocated": lambda r: f"{_event(r, 'frees')}, which was not allocated before",
    "AllocOverLive": _over_live,
    "Race": _race,
}
"""For each kind of violation, the function that makes its sentence."""
