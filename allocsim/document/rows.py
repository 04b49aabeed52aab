"""The rows of a native document, versions 1 and 2, as they stand in the file: one struct for each
kind of object.

These types define the format: they decode it, encode it, and generate its JSON Schema
(`allocsim.document.schema`). Unknown keys are refused; `meta` is allowed everywhere and may hold
any JSON. A field without a default is required. An optional field that is absent is UNSET if its
default depends on other rows; otherwise it has its default here. A field of version 2 that is
absent is UNSET (`allocsim.document.versions`).

This module does not examine whether indices exist and columns fit together
(`allocsim.model.wellformed` decides that).
"""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from allocsim.model.layout import LIMIT, MAX_RANK

Index = Annotated[int, Meta(ge=0, le=LIMIT, description="Position in a table of the document.")]
Count = Annotated[int, Meta(ge=0, le=LIMIT)]
Number = Annotated[int, Meta(ge=-LIMIT, le=LIMIT)]
Alignment = Annotated[int, Meta(ge=1, le=LIMIT, description="Bytes; offsets of slots are multiples of it.")]
Nbytes = Annotated[int, Meta(ge=0, le=LIMIT, description="Size in bytes.")]
Step = Annotated[int, Meta(ge=0, le=LIMIT, description="Position of an op in its program's list.")]
MetaMap = Annotated[dict[str, Any], Meta(description="Anything; no check looks into it.")]
Dtype = Literal[
    "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
    "c64", "c128", "f8_e4m3", "f8_e5m2", "i4", "u4", "i2", "u2", "f4",
]  # fmt: skip
Strength = Literal["exact", "bytes", "whole"]
RoleName = Literal["temporary", "input", "parameter", "state"]

ROLE_NAMES: Final[tuple[RoleName, ...]] = ("temporary", "input", "parameter", "state")
"""Spelling of each `Role`, by its code."""


class Row(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What every object of a document has in common.

    Each declares `meta` itself, to have it written last.
    """


class ArenaRow(Row, kw_only=True):
    """One address space: a device's memory, or one chunk of it."""

    name: str = ""
    alignment: Alignment = 1
    capacity: Nbytes | None = None
    """Null: unbounded."""
    meta: MetaMap = {}


class BufferRow(Row, kw_only=True):
    """A unit of allocation."""

    name: str = ""
    nbytes: Nbytes
    alignment: Alignment | UnsetType = UNSET
    """Default: the arena's."""
    arena: Index = 0
    role: RoleName = "temporary"
    read_only: bool = False
    nbytes_range: (
        Annotated[tuple[Nbytes, Nbytes], Meta(description="Version 2: least and greatest size; default both `nbytes`.")]
        | UnsetType
    ) = UNSET
    meta: MetaMap = {}


class ValueRow(Row, kw_only=True):
    """A tensor produced once, in the bytes of one buffer."""

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
            int, Meta(ge=0, le=7, description="Version 2: bits from there to element 0 of a packed value; default 0.")
        ]
        | UnsetType
    ) = UNSET
    meta: MetaMap = {}


class PairRow(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """Operand position, result position, and from version 2 what the kernel promises of the two.

    Default exact.
    """

    operand: Index
    result: Index
    strength: Strength | UnsetType = UNSET


class OpRow(Row, kw_only=True):
    """One kernel call: reads its operands, then writes its results."""

    name: str = ""
    kind: str
    operands: list[Index] | UnsetType = UNSET
    """Default none; always written."""
    results: list[Index] | UnsetType = UNSET
    in_place: (
        Annotated[
            list[PairRow],
            Meta(description="Pairs that the kernel permits to share bytes; null: nobody knows."),
        ]
        | None
    ) = []
    stream: Index = 0
    after: Annotated[list[Index], Meta(description="Earlier ops of other streams it waits for.")] = []
    meta: MetaMap = {}


class ProgramRow(Row, kw_only=True):
    """What is to be computed, as far as bytes and steps go."""

    name: str = ""
    buffers: list[BufferRow]
    values: list[ValueRow]
    streams: Annotated[list[str], Meta(min_length=1, description="Default one: main.")] | UnsetType = UNSET
    ops: list[OpRow]
    path: Annotated[str, Meta(description="Version 2: which way through its branches and loops it is.")] | UnsetType = (
        UNSET
    )
    meta: MetaMap = {}


class ProblemRow(Row, kw_only=True):
    """What a planner believes of a program; every list has an entry for each buffer."""

    program: Index
    start: Annotated[list[Step], Meta(description="Default 0.")] | UnsetType = UNSET
    stop: Annotated[list[Step], Meta(description="Default the number of ops.")] | UnsetType = UNSET
    nbytes: Annotated[list[Nbytes], Meta(description="Default the buffers' own.")] | UnsetType = UNSET
    pinned: Annotated[list[Index], Meta(description="Buffers read by the host after the run.")] = []
    own: Annotated[list[Index], Meta(description="Buffers in memory of their own.")] | UnsetType = UNSET
    fixed: Annotated[dict[str, Number], Meta(description="Buffer to offset.")] = {}
    order: Annotated[list[Index], Meta(description="Default by start, then index.")] | UnsetType = UNSET
    may_share: (
        Annotated[list[tuple[Index, Index]], Meta(description="Pairs (donor, recipient); default none.")] | UnsetType
    ) = UNSET
    gaps: Annotated[dict[str, list[tuple[Step, Step]]], Meta(description="Buffer to steps without content.")] = {}
    meta: MetaMap = {}


class SlotRow(Row, kw_only=True):
    """Bytes given to a buffer."""

    arena: Index
    offset: Number
    nbytes: Nbytes
    meta: MetaMap = {}


class PlanRow(Row, kw_only=True):
    """A slot for each buffer: an object, "own" (memory of its own), or null (not placed)."""

    program: Index
    problem: Index | None = None
    source: Annotated[str, Meta(description="Who made it.")] = ""
    slots: list[SlotRow | Literal["own"] | None]
    events: Annotated[
        list[tuple[Step, Literal["alloc", "free"], Index]],
        Meta(description="Step, what was done, buffer; in the order in which the planner did it."),
    ] = []
    meta: MetaMap = {}


class RunRow(Row, kw_only=True):
    """One execution in a session."""

    plan: Index
    program: Annotated[int, Meta(ge=0, le=LIMIT, description="Default the plan's own.")] | UnsetType = UNSET
    skip: Annotated[list[Step], Meta(description="host.write ops left out of this run.")] = []
    after: (
        Annotated[list[Index], Meta(description="Version 2: earlier runs it waits for; default all.")] | UnsetType
    ) = UNSET
    read_after: (
        Annotated[int, Meta(ge=0, le=LIMIT, description="Version 2: a later run after which its host.read ops happen.")]
        | UnsetType
    ) = UNSET
    meta: MetaMap = {}


class DocumentRow(Row, kw_only=True):
    """Programs, beliefs, plans and what was run: the native document of allocsim."""

    format: Literal["allocsim"]
    version: Literal[1, 2]
    arenas: list[ArenaRow] | UnsetType = UNSET
    """Default: one, "cpu", of alignment 32."""
    programs: list[ProgramRow] = []
    problems: list[ProblemRow] = []
    plans: list[PlanRow] = []
    session: Annotated[list[RunRow], Meta(description="Default each plan once, on fresh memory.")] | UnsetType = UNSET
    meta: MetaMap = {}


PUBLIC_NAMES: Final = {
    ArenaRow: "Arena", BufferRow: "Buffer", ValueRow: "Value", OpRow: "Op", ProgramRow: "Program", ProblemRow: "Problem",
    SlotRow: "Slot", PlanRow: "Plan", RunRow: "Run", DocumentRow: "Document",
}  # fmt: skip
"""Row -> its name in the schema."""
