"""Define the rows of a native document, versions 1 and 2, as in the file: one struct for each kind
of object.

These types define the format: they are used to decode and encode documents, and to generate the
JSON Schema (`allocsim.document.schema`). Unknown keys are refused. `meta` is allowed everywhere and
may contain any JSON. A field without a default is required. An absent optional field is UNSET if
its default depends on other rows; otherwise the default is given here. An absent field of version 2
is UNSET (`allocsim.document.versions`).

This module does not check whether indices exist and columns fit together
(`allocsim.model.wellformed` does).
"""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from allocsim.model.layout import LIMIT, MAX_RANK

Index = Annotated[int, Meta(ge=0, le=LIMIT, description="Position in a table of the document.")]
Count = Annotated[int, Meta(ge=0, le=LIMIT)]
Number = Annotated[int, Meta(ge=-LIMIT, le=LIMIT)]
Alignment = Annotated[int, Meta(ge=1, le=LIMIT, description="Bytes; slot offsets are multiples of this.")]
Nbytes = Annotated[int, Meta(ge=0, le=LIMIT, description="Size in bytes.")]
Step = Annotated[int, Meta(ge=0, le=LIMIT, description="Position of an op in its program's list.")]
MetaMap = Annotated[dict[str, Any], Meta(description="Any JSON; no check reads this.")]
Dtype = Literal[
    "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
    "c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4",
]  # fmt: skip
Strength = Literal["exact", "bytes", "whole"]
RoleName = Literal["temporary", "input", "parameter", "state"]

ROLE_NAMES: Final[tuple[RoleName, ...]] = ("temporary", "input", "parameter", "state")
"""The name of each `Role` in the file, by its code."""


class Row(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The common base of all objects of a document.

    Each object declares `meta` itself, so that `meta` is written last.
    """


class ArenaRow(Row, kw_only=True):
    """An address space: a device's memory, or one chunk of that memory."""

    name: str = ""
    alignment: Alignment = 1
    capacity: Nbytes | None = None
    """The capacity in bytes; null if unbounded."""
    meta: MetaMap = {}


class BufferRow(Row, kw_only=True):
    """A unit of allocation: bytes that a plan places together."""

    name: str = ""
    nbytes: Nbytes
    alignment: Alignment | UnsetType = UNSET
    """The alignment; the default is the alignment of the arena."""
    arena: Index = 0
    role: RoleName = "temporary"
    read_only: bool = False
    nbytes_range: (
        Annotated[tuple[Nbytes, Nbytes], Meta(description="Version 2: smallest, largest size; default both `nbytes`.")]
        | UnsetType
    ) = UNSET
    meta: MetaMap = {}


class ValueRow(Row, kw_only=True):
    """A tensor that at most one op writes, in the bytes of one buffer."""

    name: str = ""
    buffer: Index
    dtype: Dtype
    shape: Annotated[list[Count], Meta(max_length=MAX_RANK)]
    strides: (
        Annotated[list[Number], Meta(max_length=MAX_RANK, description="Bytes; default contiguous.")] | UnsetType
    ) = UNSET
    offset: Annotated[int, Meta(ge=-LIMIT, le=LIMIT, description="Bytes from the buffer's start to element 0.")] = 0
    bit_offset: (
        Annotated[
            int,
            Meta(ge=0, le=7, description="Version 2: bits from `offset` to element 0 of a packed value; default 0."),
        ]
        | UnsetType
    ) = UNSET
    meta: MetaMap = {}


class PairRow(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """Operand position, result position and, since version 2, the kernel's promise about this pair.

    The default promise is `exact`.
    """

    operand: Index
    result: Index
    strength: Strength | UnsetType = UNSET


class OpRow(Row, kw_only=True):
    """One kernel call, which reads all its operands and then writes its results."""

    name: str = ""
    kind: str
    operands: list[Index] | UnsetType = UNSET
    """The values that the op reads; the default is none. The writer always writes this list."""
    results: list[Index] | UnsetType = UNSET
    in_place: (
        Annotated[
            list[PairRow],
            Meta(description="Pairs that the kernel permits to share bytes; null: not known."),
        ]
        | None
    ) = []
    stream: Index = 0
    after: Annotated[list[Index], Meta(description="Earlier ops of other streams to wait for.")] = []
    meta: MetaMap = {}


class ProgramRow(Row, kw_only=True):
    """A computation as a list of ops on buffers."""

    name: str = ""
    buffers: list[BufferRow]
    values: list[ValueRow]
    streams: Annotated[list[str], Meta(min_length=1, description="Names; default one stream, main.")] | UnsetType = (
        UNSET
    )
    ops: list[OpRow]
    path: Annotated[str, Meta(description="Version 2: the taken path through branches and loops.")] | UnsetType = UNSET
    meta: MetaMap = {}


class ProblemRow(Row, kw_only=True):
    """A planner's belief about a program; `start`, `stop`, `nbytes` and `order` have an entry for
    each buffer.
    """

    program: Index
    start: Annotated[list[Step], Meta(description="First steps of lives; default 0.")] | UnsetType = UNSET
    stop: Annotated[list[Step], Meta(description="Ends of lives; default the number of ops.")] | UnsetType = UNSET
    nbytes: Annotated[list[Nbytes], Meta(description="Sizes; default those of the buffers.")] | UnsetType = UNSET
    pinned: Annotated[list[Index], Meta(description="Buffers read by the host after the run.")] = []
    own: Annotated[list[Index], Meta(description="Buffers in memory of their own.")] | UnsetType = UNSET
    fixed: Annotated[dict[str, Number], Meta(description="Required offset of each buffer named.")] = {}
    order: Annotated[list[Index], Meta(description="Placing order; default by start, then index.")] | UnsetType = UNSET
    may_share: (
        Annotated[list[tuple[Index, Index]], Meta(description="Pairs (donor, recipient); default none.")] | UnsetType
    ) = UNSET
    gaps: Annotated[dict[str, list[tuple[Step, Step]]], Meta(description="Buffer to steps without content.")] = {}
    meta: MetaMap = {}


class SlotRow(Row, kw_only=True):
    """The bytes that a plan gives to a buffer."""

    arena: Index
    offset: Number
    nbytes: Nbytes
    meta: MetaMap = {}


class PlanRow(Row, kw_only=True):
    """A slot for each buffer: an object, "own" (memory of its own), or null (not placed)."""

    program: Index
    problem: Index | None = None
    source: Annotated[str, Meta(description="Name of the planner.")] = ""
    slots: list[SlotRow | Literal["own"] | None]
    events: Annotated[
        list[tuple[Step, Literal["alloc", "free"], Index]],
        Meta(description="Step, action and buffer, in the order of the planner's actions."),
    ] = []
    meta: MetaMap = {}


class RunRow(Row, kw_only=True):
    """One execution of a program in a session."""

    plan: Index
    program: Annotated[int, Meta(ge=0, le=LIMIT, description="Default the plan's program.")] | UnsetType = UNSET
    skip: Annotated[list[Step], Meta(description="host.write ops left out of this run.")] = []
    after: Annotated[list[Index], Meta(description="Version 2: earlier runs to wait for; default all.")] | UnsetType = (
        UNSET
    )
    read_after: (
        Annotated[int, Meta(ge=0, le=LIMIT, description="Version 2: a later run after which its host.read ops happen.")]
        | UnsetType
    ) = UNSET
    meta: MetaMap = {}


class DocumentRow(Row, kw_only=True):
    """The native document of allocsim: programs, beliefs, plans and runs."""

    format: Literal["allocsim"]
    version: Literal[1, 2]
    arenas: list[ArenaRow] | UnsetType = UNSET
    """The arenas; the default is one arena named "cpu" with alignment 32."""
    programs: list[ProgramRow] = []
    problems: list[ProblemRow] = []
    plans: list[PlanRow] = []
    session: Annotated[list[RunRow], Meta(description="Default each plan once, on fresh memory.")] | UnsetType = UNSET
    meta: MetaMap = {}


PUBLIC_NAMES: Final = {
    ArenaRow: "Arena", BufferRow: "Buffer", ValueRow: "Value", OpRow: "Op", ProgramRow: "Program", ProblemRow: "Problem",
    SlotRow: "Slot", PlanRow: "Plan", RunRow: "Run", DocumentRow: "Document",
}  # fmt: skip
"""The name of each row in the schema."""
