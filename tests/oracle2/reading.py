"""A parsed document as records: programs, runs and slots, with every default of the format filled in.

Memory is counted in *cells*: a cell is one byte, or, where a document has packed dtypes, the narrowest width among
them, so that neighbours in one byte are told apart. `Value.cells` lists, in row-major order, each cell that a value
covers as (its number within the value, its place within the buffer); what lies outside the buffer is left out.

The document is taken to be well formed; nothing is refused here.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

BITS = {
    **dict.fromkeys(("i8", "u8", "bool", "f8_e4m3", "f8_e5m2"), 8),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("f32", "i32", "u32"), 32),
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 64),
    "c128": 128,
}
PACKED = {"i4": 4, "u4": 4, "f4": 4, "i2": 2, "u2": 2}
PERSISTENT = ("parameter", "state")


@dataclass(frozen=True, slots=True)
class Buffer:
    index: int
    name: str
    nbytes: int
    cells: int
    alignment: int
    arena: int
    persistent: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class Value:
    index: int
    buffer: int
    shape: tuple
    strides: tuple
    """Bytes from one element to the next, for each dimension; 0 along a packed one."""
    width: int
    """Bits of an element."""
    start: int
    """The cell of element 0."""
    cells: tuple
    contiguous: bool
    """Its cells, in row-major order, follow one another."""
    nbytes: int
    """Bytes that its elements fill, each counted once for each element."""
    outside: bool


@dataclass(frozen=True, slots=True)
class Op:
    index: int
    kind: str
    operands: tuple
    results: tuple
    in_place: tuple | None
    """(operand position, result position, strength) of each declared pair; None where nobody knows."""
    stream: int
    after: tuple
    same: bool
    touches: bool
    """False for a `view`, which is no access."""


@dataclass(frozen=True)
class Program:
    index: int
    buffers: tuple
    values: tuple
    ops: tuple

    @cached_property
    def producers(self):
        """The op that produces each value: {value: op}."""
        return {v: op.index for op in self.ops for v in op.results}


@dataclass(frozen=True, slots=True)
class Run:
    index: int
    plan: int | None
    program: int
    skip: frozenset
    waits: frozenset
    """Earlier runs that it waits for, one through another."""
    read_after: int | None
    world: int
    """Runs of one world share memory; without a session each run has a world of its own."""
    home: int
    """The run whose buffers, apart, are this run's."""


@dataclass(frozen=True)
class Document:
    version: int
    arenas: tuple
    programs: tuple
    problems: tuple
    plans: tuple
    runs: tuple
    cells_per_byte: int

    def ops(self, run):
        """The ops that touch bytes in this run, with their places in the list."""
        return [op for op in self.programs[run.program].ops if op.touches and op.index not in run.skip]


def read(document, end=None):
    """Return the `Document` of parsed JSON, with `nbytes_range` taken at its `low` or `high` end, if one is given."""
    unit = min(
        (PACKED[v["dtype"]] for p in document["programs"] for v in p["values"] if v["dtype"] in PACKED), default=8
    )
    arenas = tuple((a.get("alignment", 1), a.get("capacity")) for a in document.get("arenas", ()))
    version = document["version"]
    programs = tuple(
        _program(i, p, arenas, 8 // unit, version=version, end=end) for i, p in enumerate(document["programs"])
    )
    plans = tuple(document.get("plans", ()))
    return Document(
        version=version,
        arenas=arenas,
        programs=programs,
        problems=tuple(document.get("problems", ())),
        plans=plans,
        runs=_runs(document.get("session"), plans, version),
        cells_per_byte=8 // unit,
    )


def alone(document, program):
    """Return the same document with one run of one program, from fresh memory, that leaves nothing out."""
    run = Run(0, None, program, frozenset(), frozenset(), None, 0, 0)
    return replace(document, runs=(run,))


def _program(index, program, arenas, per_byte, *, version, end):
    buffers = tuple(_buffer(i, b, arenas, per_byte, end) for i, b in enumerate(program["buffers"]))
    values = tuple(_value(i, v, buffers, per_byte) for i, v in enumerate(program["values"]))
    ops = tuple(_op(i, op, version) for i, op in enumerate(program["ops"]))
    return Program(index, buffers, values, ops)


def _buffer(index, buffer, arenas, per_byte, end):
    low, high = buffer.get("nbytes_range") or (buffer["nbytes"], buffer["nbytes"])
    nbytes = {None: buffer["nbytes"], "low": low, "high": high}[end]
    arena = buffer.get("arena", 0)
    own = arenas[arena][0] if arena < len(arenas) else 1
    return Buffer(
        index=index,
        name=buffer.get("name", ""),
        nbytes=nbytes,
        cells=nbytes * per_byte,
        alignment=buffer["alignment"] if buffer.get("alignment") is not None else own,
        arena=arena,
        persistent=buffer.get("role", "temporary") in PERSISTENT,
        read_only=buffer.get("read_only", False),
    )


def default_strides(shape, dtype):
    """Return the strides, in bytes, of a row-major value without holes; packed rows fill whole bytes."""
    if not shape:
        return []
    if dtype in PACKED:
        row = -(-shape[-1] * PACKED[dtype] // 8)
        return [row * prod(shape[d + 1 : -1]) for d in range(len(shape) - 1)] + [0]
    return [BITS[dtype] // 8 * prod(shape[d + 1 :]) for d in range(len(shape))]


def _value(index, value, buffers, per_byte):
    dtype, shape = value["dtype"], tuple(value["shape"])
    width = PACKED.get(dtype) or BITS[dtype]
    strides = value.get("strides")
    strides = tuple(default_strides(shape, dtype) if strides is None else strides)
    unit = 8 // per_byte
    steps = [s * per_byte for s in strides]
    if dtype in PACKED and shape:
        steps[-1] = width // unit
    start = value.get("offset", 0) * per_byte + value.get("bit_offset", 0) // unit
    each = width // unit
    places = [
        start + sum(i * s for i, s in zip(element, steps, strict=True)) + part
        for element in product(*map(range, shape))
        for part in range(each)
    ]
    size = buffers[value["buffer"]].cells
    inside = tuple((k, cell) for k, cell in enumerate(places) if 0 <= cell < size)
    return Value(
        index=index,
        buffer=value["buffer"],
        shape=shape,
        strides=strides,
        width=width,
        start=start,
        cells=inside,
        contiguous=places == list(range(start, start + len(places))),
        nbytes=-(-len(places) // per_byte),
        outside=len(inside) < len(places),
    )


def _op(index, op, version):
    pairs = op.get("in_place", ())
    if pairs is not None:
        pairs = tuple((p[0], p[1], p[2] if len(p) > 2 else "exact") for p in pairs)
    return Op(
        index=index,
        kind=op["kind"],
        operands=tuple(op.get("operands", ())),
        results=tuple(op.get("results", ())),
        in_place=pairs,
        stream=op.get("stream", 0),
        after=tuple(op.get("after", ())),
        same=version >= 2 and op["kind"] == "same",
        touches=op["kind"] != "view",
    )


def _runs(session, plans, version):
    if session is None:
        return tuple(Run(i, i, plan["program"], frozenset(), frozenset(), None, i, i) for i, plan in enumerate(plans))
    runs = []
    for i, entry in enumerate(session):
        program = entry.get("program")
        program = plans[entry["plan"]]["program"] if program is None else program
        named = entry.get("after") if version >= 2 else None
        waits = set(range(i)) if named is None else set(named).union(*(runs[j].waits for j in named))
        before = [runs[j] for j in sorted(waits) if runs[j].program == program]
        home = before[-1].home if before else i
        late = entry.get("read_after") if version >= 2 else None
        runs.append(Run(i, entry["plan"], program, frozenset(entry.get("skip", ())), frozenset(waits), late, 0, home))
    return tuple(runs)
