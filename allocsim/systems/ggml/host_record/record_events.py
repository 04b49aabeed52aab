"""The lines of a log of the recorder, as types; the reader refuses any other line.

Contract: addresses are numbers and are never dereferenced. Events have numbers `n` in the order in
which they happened. What this module does not see: the effect of an event.
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
    """What every line has."""

    n: Count = 0


class Start(RecordEvent, frozen=True, kw_only=True, tag="start"):
    """The first line: version of ggml, ops that it takes in place, version of the recorder."""

    ggml: str
    inplace_ops: tuple[str, ...]
    recorder: Annotated[int, msgspec.Meta(ge=1, le=6)] = 1
    """Version: 1 said of the restoring of a state its end alone, 2 when it begins, 3 says when
    schedulers, backends and events end, 4 resets, reserves and steps, 5 what schedulers ask, 6 what
    is there again.
    """


class BufferTold(RecordEvent, frozen=True, kw_only=True, tag="buffer"):
    """A buffer of a backend, when it is first seen."""

    at: Address
    base: Address
    size: Count
    usage: int
    alignment: Count
    name: str


class BufferFreed(RecordEvent, frozen=True, kw_only=True, tag="free"):
    """A buffer is given back."""

    at: Address


class ContextGone(RecordEvent, frozen=True, kw_only=True, tag="gone", rename={"start": "from", "stop": "to"}):
    """The memory of a context is given back: its tensors and graphs are no more."""

    start: Address
    stop: Address


class TensorTold(RecordEvent, frozen=True, kw_only=True, tag="tensor"):
    """A `ggml_tensor`, told when it is first seen and whenever it has changed."""

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
    """Leafs and nodes of a `ggml_cgraph`, told when the lists have changed."""

    at: Address
    leafs: tuple[Address, ...]
    nodes: tuple[Address, ...]


class ThereAgain(RecordEvent, frozen=True, kw_only=True, tag="again"):
    """What lies where it lay when its memory was given back, and is as it was."""

    tensors: tuple[Address, ...] | None = None
    """None: those that were last told with this graph."""
    graph: Address = 0


class Planned(RecordEvent, frozen=True, kw_only=True, tag="plan", rename={"scheduler": "for"}):
    """An allocator laid out a graph, for a scheduler or for itself (0)."""

    by: Address
    graph: Address
    scheduler: Address = 0


class SchedulerReset(RecordEvent, frozen=True, kw_only=True, tag="reset"):
    """A scheduler gave up what it had laid out: that lies in memory that is not its own."""

    by: Address


class Reserved(RecordEvent, frozen=True, kw_only=True, tag="reserve"):
    """Room was made for a graph: the sizes of the buffers behind it."""

    by: Address
    graph: Address
    done: bool
    sizes: tuple[Count, ...]


class BareLeafs(RecordEvent, frozen=True, kw_only=True, tag="bare"):
    """Before a run: leafs that have no memory when a scheduler is asked to compute."""

    by: Address
    leafs: tuple[Address, ...]


class GraphAsked(RecordEvent, frozen=True, kw_only=True, tag="asked"):
    """Before a run: a scheduler that holds another graph, and computes it, is given this."""

    by: Address
    graph: Address


class OptStep(RecordEvent, frozen=True, kw_only=True, tag="opt"):
    """A step of ggml_opt."""

    by: Address
    word: Literal["alloc", "eval", "done"]
    backward: bool


class HostWrote(RecordEvent, frozen=True, kw_only=True, tag="set", rename={"start": "from"}):
    """The host wrote into a tensor; by a backend: without waiting."""

    t: Address
    start: Count
    size: Count
    by: Address = 0


class HostRead(RecordEvent, frozen=True, kw_only=True, tag="get", rename={"start": "from"}):
    """The host read from a tensor, into an address; by a backend: without waiting."""

    t: Address
    start: Count
    size: Count
    by: Address = 0
    into: Address = 0


class ElementsTold(RecordEvent, frozen=True, kw_only=True, tag="elements"):
    """What a leaf holds, in base64, where that is other than was told to lie there last."""

    t: Address
    bytes: str


class RunBegins(RecordEvent, frozen=True, kw_only=True, tag="run"):
    """A graph is computed. `waits`: the call waits for the end; `changed`, `same`: leafs whose
    bytes are other than, or as, the last run or call left them.
    """

    by: Address
    graph: Address
    waits: bool
    changed: tuple[Address, ...]
    same: tuple[Address, ...]
    thread: int = 0
    backends: tuple[Address, ...] = ()


class RunEnded(RecordEvent, frozen=True, kw_only=True, tag="ran"):
    """The call that computed came back."""

    by: Address


class Waited(RecordEvent, frozen=True, kw_only=True, tag="sync"):
    """The host waited for a backend, or for a scheduler and its backends."""

    by: Address
    backends: tuple[Address, ...] = ()


class ActorEnded(RecordEvent, frozen=True, kw_only=True, tag="ended"):
    """A scheduler, a backend or an event is no more: what lies there later is another."""

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
    """A backend of a scheduler with several: whether what is asked of it is `seen`, and whether it
    `queues`; else what it is asked for has ended when the call comes back.
    """

    at: Address
    name: str
    seen: bool
    queues: bool


class SchedulerAsked(RecordEvent, frozen=True, kw_only=True, tag="inside", rename={"scheduler": "in"}):
    """What a scheduler asks: `by` a backend to compute a `split` of nodes, from the `first` to the
    `last`; `by` one to `copy` a tensor, which lies with an`other`, to another tensor, later; the
    host `copied` into the last; by a backend later, or by the host, `count` bytes from the `last`
    byte on of the `first` are `sent` from an`other` address, or `fetched` into it; an event is `by`
    which a backend, the `other`, says where it is (`record`), or for which it, or the host (0),
    has to `wait`; the host waits for all that a backend was given (`sync`).
    """

    scheduler: Address
    word: Literal["split", "copy", "copied", "got", "sent", "fetched", "record", "wait", "sync"]
    by: Address
    other: Address
    first: Address
    last: Address
    count: Count


class RowFilled(RecordEvent, frozen=True, kw_only=True, tag="row"):
    """llama.cpp: a batch is filled row by row."""

    by: Address
    word: Literal["add", "share", "position", "clear"]
    at: Number
    value: Number


class BatchBegins(RecordEvent, frozen=True, kw_only=True, tag="batch"):
    """llama.cpp: a batch is computed; rows are of position and sequences."""

    by: Address
    thread: int
    rows: tuple[Annotated[tuple[Number | None, ...], msgspec.Meta(min_length=1)], ...] = ()
    filled: Address = 0


class BatchEnded(RecordEvent, frozen=True, kw_only=True, tag="batched"):
    """llama.cpp: the call that computed a batch came back."""

    by: Address
    thread: int
    status: int


class ResultsTaken(RecordEvent, frozen=True, kw_only=True, tag="taken"):
    """llama.cpp: the host was given results."""

    at: Address


class SequenceAsked(RecordEvent, frozen=True, kw_only=True, tag="sequence", rename={"start": "from", "stop": "to"}):
    """llama.cpp: the host asked a memory for something."""

    by: Address
    word: Literal["remove", "copy", "keep", "add", "divide", "clear", "restore", "restored", "saved"]
    one: Number
    other: Number
    start: Number
    stop: Number
    number: Number
    digest: Count = 0
    """Of a state: by its bytes; 0 where it is not known."""


class NumbersTold(RecordEvent, frozen=True, kw_only=True, tag="numbers"):
    """While a batch is computed, before a run: whole numbers of a leaf."""

    t: Address
    values: tuple[Wide, ...]


class MaskTold(RecordEvent, frozen=True, kw_only=True, tag="mask"):
    """While a batch is computed: the finite columns of each row, as ends of ranges."""

    t: Address
    rows: tuple[tuple[Count, ...], ...]


AnyEvent = (
    Start | BufferTold | BufferFreed | ContextGone | TensorTold | GraphTold | ThereAgain | Planned | SchedulerReset
    | Reserved | BareLeafs | GraphAsked | OptStep | HostWrote | HostRead | ElementsTold
    | RunBegins | RunEnded | Waited | ActorEnded | EventRecorded | EventWaited | BackendTold | SchedulerAsked
    | RowFilled | BatchBegins | BatchEnded | ResultsTaken | SequenceAsked | NumbersTold | MaskTold
)  # fmt: skip
