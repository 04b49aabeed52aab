"""The lines of the recorder's log, one type for each kind of line; the reader refuses other lines.

Contract: addresses are numbers and are never dereferenced. The number `n` of an event gives its
place in the order in which the events happened. What this module does not see: the effect of an
event.
"""

from typing import Annotated, Literal

import msgspec

from allocsim.model.layout import LIMIT

Address = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
Four = tuple[Count, Count, Count, Count]
Number = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
Wide = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="e"):
    """The base type of all lines, with the number `n` of the event."""

    n: Count = 0


class Start(RecordEvent, frozen=True, kw_only=True, tag="start"):
    """The first line: version of ggml, ops that ggml may run in place, version of the recorder."""

    ggml: str
    inplace_ops: tuple[str, ...]
    recorder: Annotated[int, msgspec.Meta(ge=1, le=6)] = 1
    """The recorder's version. Version 1 logs only the end of a state restore. Version 2 adds the
    beginning of the restore. Version 3 adds `ended` lines: frees of schedulers, backends and
    events. Version 4 adds `reset`, `reserve` and `opt` lines, version 5 adds `inside` lines, and
    version 6 adds `again` lines.
    """


class BufferTold(RecordEvent, frozen=True, kw_only=True, tag="buffer"):
    """A buffer of a backend, logged when the recorder first sees the buffer."""

    at: Address
    base: Address
    size: Count
    usage: int
    alignment: Count
    name: str


class BufferFreed(RecordEvent, frozen=True, kw_only=True, tag="free"):
    """A buffer was freed."""

    at: Address


class ContextGone(RecordEvent, frozen=True, kw_only=True, tag="gone", rename={"start": "from", "stop": "to"}):
    """The memory of a context was freed, and with it the context's tensors and graphs."""

    start: Address
    stop: Address


class TensorTold(RecordEvent, frozen=True, kw_only=True, tag="tensor"):
    """A `ggml_tensor`, logged when the recorder first sees the tensor and after each change."""

    at: Address
    op: str
    name: str
    type: str
    ne: Four
    nb: Four
    nbytes: Count
    flags: Count
    view_offs: Count
    data: Address
    buffer: Address
    view_src: Address
    op_params: tuple[int, ...]
    src: tuple[Address, ...]


class GraphTold(RecordEvent, frozen=True, kw_only=True, tag="graph"):
    """The leafs and nodes of a `ggml_cgraph`, logged when the lists have changed."""

    at: Address
    leafs: tuple[Address, ...]
    nodes: tuple[Address, ...]


class ThereAgain(RecordEvent, frozen=True, kw_only=True, tag="again"):
    """Tensors, and a graph unless `graph` is 0, that exist again unchanged at their old address."""

    tensors: tuple[Address, ...] | None = None
    """Addresses of the tensors; None for the same tensors as in the graph's last `again` line."""
    graph: Address = 0


class Planned(RecordEvent, frozen=True, kw_only=True, tag="plan", rename={"scheduler": "for"}):
    """An allocator planned a graph for a scheduler, or without a scheduler (0)."""

    by: Address
    graph: Address
    scheduler: Address = 0


class SchedulerReset(RecordEvent, frozen=True, kw_only=True, tag="reset"):
    """A scheduler was reset: its next plan may reuse the bytes of the tensors it placed before."""

    by: Address


class Reserved(RecordEvent, frozen=True, kw_only=True, tag="reserve"):
    """Memory was reserved for a graph; `sizes` are the sizes of the buffers after the call."""

    by: Address
    graph: Address
    done: bool
    sizes: tuple[Count, ...]


class BareLeafs(RecordEvent, frozen=True, kw_only=True, tag="bare"):
    """Leafs without memory when a scheduler is called to compute a graph, logged before the run."""

    by: Address
    leafs: tuple[Address, ...]


class GraphAsked(RecordEvent, frozen=True, kw_only=True, tag="asked"):
    """The graph passed to a scheduler that computes another graph, logged before the run."""

    by: Address
    graph: Address


class OptStep(RecordEvent, frozen=True, kw_only=True, tag="opt"):
    """A step of ggml_opt."""

    by: Address
    word: Literal["alloc", "eval", "done"]
    backward: bool


class HostWrote(RecordEvent, frozen=True, kw_only=True, tag="set", rename={"start": "from"}):
    """The host wrote into a tensor; if `by` is a backend, the call did not wait for the write."""

    t: Address
    start: Count
    size: Count
    by: Address = 0


class HostRead(RecordEvent, frozen=True, kw_only=True, tag="get", rename={"start": "from"}):
    """The host read from a tensor into an address; if `by` is a backend, the call did not wait."""

    t: Address
    start: Count
    size: Count
    by: Address = 0
    into: Address = 0


class ElementsTold(RecordEvent, frozen=True, kw_only=True, tag="elements"):
    """The bytes of a leaf in base64; logged if they differ from the last ones at its address."""

    t: Address
    bytes: str


class RunBegins(RecordEvent, frozen=True, kw_only=True, tag="run"):
    """A graph is computed. `waits` is true if the call waits for the end. The leafs in `changed`
    have other bytes than the last run or call left in them; the leafs in `same` have equal bytes.
    """

    by: Address
    graph: Address
    waits: bool
    changed: tuple[Address, ...]
    same: tuple[Address, ...]
    thread: int = 0
    backends: tuple[Address, ...] = ()


class RunEnded(RecordEvent, frozen=True, kw_only=True, tag="ran"):
    """The call that computed a graph returned."""

    by: Address


class Waited(RecordEvent, frozen=True, kw_only=True, tag="sync"):
    """The host waited for a backend, or for a scheduler and its backends."""

    by: Address
    backends: tuple[Address, ...] = ()


class ActorEnded(RecordEvent, frozen=True, kw_only=True, tag="ended"):
    """A scheduler, backend or event was freed; a later object at its address is a new object."""

    by: Address


class EventRecorded(RecordEvent, frozen=True, kw_only=True, tag="record"):
    """An event is recorded on a backend."""

    by: Address
    other: Address


class EventWaited(RecordEvent, frozen=True, kw_only=True, tag="wait"):
    """A backend, or the host (0), waits for an event."""

    by: Address
    other: Address


class BackendTold(RecordEvent, frozen=True, kw_only=True, tag="backend"):
    """A backend of a scheduler that has several backends. `seen`: the recorder sees the calls of
    this backend. `queues`: a call may return before its work ends; without a queue the work has
    ended when the call returns.
    """

    at: Address
    name: str
    seen: bool
    queues: bool


class SchedulerAsked(RecordEvent, frozen=True, kw_only=True, tag="inside", rename={"scheduler": "in"}):
    """A request of a scheduler; `word` names its kind.

    `split`: backend `by` computes the `count` nodes from `first` to `last`.
    `copy`: backend `by` copies tensor `first` of backend `other` to tensor `last`, asynchronously.
    `copied`: the host copied tensor `first` to tensor `last`.
    `got`: the host read all of tensor `first`.
    `sent`: `count` bytes of tensor `first`, from byte `last` on, are written from the host address
    `other`, asynchronously if `by` is a backend.
    `fetched`: `count` bytes of tensor `first`, from byte `last` on, are read into the host address
    `other`, asynchronously if `by` is a backend.
    `record`: event `by` is recorded on backend `other`.
    `wait`: backend `other`, or the host (0), waits for event `by`.
    `sync`: the host waits for all work of backend `by`.
    """

    scheduler: Address
    word: Literal["split", "copy", "copied", "got", "sent", "fetched", "record", "wait", "sync"]
    by: Address
    other: Address
    first: Address
    last: Address
    count: Count


class RowFilled(RecordEvent, frozen=True, kw_only=True, tag="row"):
    """llama.cpp: the host changes one row of a batch, or clears the batch."""

    by: Address
    word: Literal["add", "share", "position", "clear"]
    at: Number
    value: Number


class BatchBegins(RecordEvent, frozen=True, kw_only=True, tag="batch"):
    """llama.cpp: a batch is computed; each row has a token's position and its sequences."""

    by: Address
    thread: int
    rows: tuple[Annotated[tuple[Number | None, ...], msgspec.Meta(min_length=1)], ...] = ()
    filled: Address = 0


class BatchEnded(RecordEvent, frozen=True, kw_only=True, tag="batched"):
    """llama.cpp: the call that computed a batch returned."""

    by: Address
    thread: int
    status: int


class ResultsTaken(RecordEvent, frozen=True, kw_only=True, tag="taken"):
    """llama.cpp: the host received the address of results."""

    at: Address


class SequenceAsked(RecordEvent, frozen=True, kw_only=True, tag="sequence", rename={"start": "from", "stop": "to"}):
    """llama.cpp: the host called the operation `word` of a memory (a cache of cells)."""

    by: Address
    word: Literal["remove", "copy", "keep", "add", "divide", "clear", "restore", "restored", "saved"]
    one: Number
    other: Number
    start: Number
    stop: Number
    number: Number
    digest: Count = 0
    """A hash of the bytes of a saved or restored state; 0 if unknown."""


class NumbersTold(RecordEvent, frozen=True, kw_only=True, tag="numbers"):
    """The integers in a leaf, logged before a run while a batch is computed."""

    t: Address
    values: tuple[Wide, ...]


class MaskTold(RecordEvent, frozen=True, kw_only=True, tag="mask"):
    """A mask, logged while a batch is computed. Each row lists the ranges of its finite columns; a
    range is two numbers, its first column and the column after its last column.
    """

    t: Address
    rows: tuple[tuple[Count, ...], ...]


AnyEvent = (
    Start | BufferTold | BufferFreed | ContextGone | TensorTold | GraphTold | ThereAgain | Planned | SchedulerReset
    | Reserved | BareLeafs | GraphAsked | OptStep | HostWrote | HostRead | ElementsTold
    | RunBegins | RunEnded | Waited | ActorEnded | EventRecorded | EventWaited | BackendTold | SchedulerAsked
    | RowFilled | BatchBegins | BatchEnded | ResultsTaken | SequenceAsked | NumbersTold | MaskTold
)  # fmt: skip
