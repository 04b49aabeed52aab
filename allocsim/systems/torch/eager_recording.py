"""Record what an eager PyTorch program does with memory.

    with allocsim.systems.torch.record(model) as r:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    r.document                      # program, belief and plan, as `allocsim check` judges them
    print(*r.lines(), sep=chr(10))  # peak, lower bound, the buffers alive at the peak and why

A dispatch mode sees each operator below autograd, whether the forward pass, the backward pass or
the optimizer calls it. The schema of an operator names the operands that the operator writes. The
storage of a tensor has its address and size (`data_ptr`, `nbytes`); a weak reference to the storage
shows when the storage is freed. `allocsim.systems.torch.ledger` makes a document of these calls.

Time is the order in which the host calls the operators. On a CUDA device an operator runs on the
current stream. Events, `wait_stream` and synchronisations order it after other ops
(`allocsim.systems.torch.device_streams`). The host is a separate stream. The judge therefore finds
a race if freed memory is allocated again on another stream, or while another stream still uses it,
and no wait orders the two uses. A copy between host and device has ended when the call returns,
unless the copy is `non_blocking` and the host's tensor is pinned. A host scalar that is an operand
of a device op is read during the call. If a backward pass allocated a tensor and uses it on another
stream, the recording assumes a call of `record_stream`. Autograd makes this call for gradients
without an operator, but not for tensors that the forward pass saved. The tests use CPU tensors,
made-up stream numbers and simulated callbacks of torch. No test uses a GPU, a copy between host and
device, or a copy between devices. On other accelerators the host's order is recorded.

In place. If the schema of an operator marks an operand as written, the operator is a mutation, and
its result may have exactly the bytes of that operand. Another operand may have exactly the bytes of
a result if the operator is tagged pointwise. Operands that `operators.READ_OFTEN` lists may not
overlap a result. For any other operator, the schema does not tell which operands may share bytes
with a result. The judge then accepts an exact alias and counts it as an assumption.

Writes of the host. If an operator allocates host memory without writing it (`empty`), the recording
fills the first bytes with a mark. If the mark has changed at the first read, the host wrote the
memory outside of any operator. If the mark is unchanged, the memory is unwritten.

Ranks. A collective of `torch.distributed` names its group of ranks in its `meta`, and the program
lists ranks and groups. `allocsim join` can therefore make one document of the recordings of all
ranks. An asynchronous collective (`async_op=True`) runs on a stream of its group until the caller
waits for the collective. A collective that C++ code (such as DDP's reducer) calls is recorded as
finished at its call (`allocsim.systems.torch.pending_collectives`).

What this module does not see: scratch memory of kernels; tensors without a storage (sparse, fake
and meta tensors; `unseen` counts such operands); reads of the host through `.numpy()`; tensors that
no operator uses; writes that a schema does not mark (the running statistics of `native_batch_norm`
in training); a storage that was resized and is back at its old address. If tensors use several live
pieces of one NumPy array, the pieces are recorded as overlapping buffers. Compiled regions
(`torch.compile`) do not run under a dispatch mode; import their wrappers instead (docs/plans.md).
"""

import ctypes
import os
import sys
import weakref
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from allocsim.errors import AllocsimError, ModelError
from allocsim.model import HOST_READ, WIDTHS, Document
from allocsim.model.layout import dense_nbytes
from allocsim.programs.dtype_names import dtype_code, dtype_of
from allocsim.programs.rank_meetings import in_meta
from allocsim.systems.torch.device_streams import CudaStreams, DeviceStreams, Listening
from allocsim.systems.torch.ledger import HOST, Block, Extent, Ledger, Pair, Touched
from allocsim.systems.torch.operators import (
    BARRIER,
    COLLECTIVES,
    COPYING,
    LOOKING,
    NO_ACCESS,
    OVERWRITING,
    READ_OFTEN,
    RECEIVED,
    UNMARKED,
    UNWRITTEN,
)
from allocsim.systems.torch.pending_collectives import PendingCollectives
from allocsim.systems.torch.process_groups import WAIT, GroupMeeting, meeting_of, world

if TYPE_CHECKING:
    import torch

_FRAMES: Final = 60
"""The most stack frames that are searched for the line of the user's program."""

_MARK: Final = 4096
"""The size in bytes of the mark at the beginning of unwritten host memory."""

_MARKED: Final = 0xA5

_HERE: Final = os.path.dirname(__file__)  # noqa: PTH120 - compared as text with the paths of frames


class EagerRecording:
    """Records one run of a program; holds the document of the run afterwards."""

    def __init__(
        self,
        named: "torch.nn.Module | Mapping[str, torch.Tensor] | None" = None,
        *,
        name: str = "torch eager",
        lines: bool = True,
        streams: DeviceStreams | None = None,
    ) -> None:
        """Prepare a recording; the `with` statement starts it.

        Args:
            named: a module, or tensors by name, whose buffers and gradients get these names.
            name: the name of the program.
            lines: whether the meta of each op names the calling line, as `file.py:12 function`.
            streams: finds the stream on which an operator runs; None uses CUDA's streams if
                there is a CUDA device.
        """
        self._named: dict[str, Any] = dict(_tensors(named))
        self._ledger = Ledger(name)
        self._lines = lines
        self._mode: Any = None
        self._streams = streams
        self._listening: Listening | None = None
        self._watched: dict[object, weakref.ref[Any]] = {}
        self._thread = get_ident()
        """The thread that called the most recent operator."""
        self._returned: deque[int] = deque()
        """Keys of storages that other threads freed and that are not yet reported to the ledger."""
        self._gradients: set[int] = set()
        """Indices of the blocks that a backward pass allocated."""
        self._pending = PendingCollectives(self._ledger, self._current)
        self._groups: dict[str, tuple[tuple[int, ...], ...]] = {}
        """Name of a group -> the ranks that met in its collectives."""
        self._uneven = False
        """Whether, in a collective, ranks may have passed different sizes or not taken part."""
        self._marked: dict[int, tuple[int, int]] = {}
        """Index of an unwritten host block -> address and size in bytes of its mark."""
        self._document: Document | None = None
        self._words: dict[Any, str] = {}
        """torch's dtype -> the document's dtype; "" if there is none and bytes are recorded."""
        self.unseen = 0
        """How many operands and results had no storage."""

    def __enter__(self) -> Self:
        """Start recording. Raises AllocsimError without torch, and at a second start."""
        if self._mode is not None or self._document is not None:
            raise AllocsimError("a recording can be started only once; make a new recording")
        self._mode = _mode(self)
        import torch  # noqa: PLC0415 - optional; the line before raises if torch is missing

        if self._streams is None and torch.cuda.is_available():
            self._streams = CudaStreams()
        if self._streams is not None:
            self._listening = Listening(self._ledger.order, self._streams)
            self._listening.begin()
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop recording. After an exception, the document has the operators before it."""
        mode, self._mode = self._mode, None
        mode.__exit__(kind, error, trace)
        if self._listening is not None:
            self._listening.end()
        self._pending.end()
        names = self._names()
        self._watched.clear()
        self._take_back()
        told = self._groups and not self._uneven
        self._document = self._ledger.document(names, {"ranks": in_meta(world(), self._groups)} if told else None)

    @property
    def document(self) -> Document:
        """Program, belief and plan of the run. Raises AllocsimError before the recording ends."""
        if self._document is None:
            raise AllocsimError("the recording has not ended")
        return self._document

    def lines(self, most: int = 12) -> list[str]:
        """Return lines of text: the peak, the lower bound, and the peaks of other plans and orders.
        The lines list at most `most` buffers that are alive at the peak, with the reason for each.
        The search for a better order takes O(ops^2) time at worst.
        """
        from allocsim.systems.torch.peak_lines import lines_of  # noqa: PLC0415 - planners are not needed to record

        return lines_of(self.document, most)

    # --- one operator

    def _dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and record it."""
        import torch  # noqa: PLC0415 - optional

        self._thread = get_ident()
        self._take_back()
        schema = func._schema  # noqa: SLF001 - torch has no public attribute for the schema
        name = schema.name.rpartition("::")[2]
        given = [tensor for _, tensor in _operands(schema, args, kwargs)]
        self._go_to(given)
        if name in NO_ACCESS or torch.Tag.inplace_view in func.tags:
            result = func(*args, **kwargs)
            for tensor in given:  # a storage may have a new address after the call
                if self._key(tensor) in self._ledger.alive:
                    self._block(tensor, name)
            if name == "record_stream":
                self._lend(given, args[1] if len(args) > 1 else kwargs["s"])
            return result
        for tensor in given:
            self._block(tensor, name)  # all blocks first: a block may grow when another block is met
        reads, written = self._accesses(name, schema, args, kwargs)
        met = meeting_of(schema, args, kwargs)
        result = func(*args, **kwargs)
        self._take_back()
        leaves = list(_leaves(result))
        crossing = self._go_to([*given, *leaves])
        fresh = [t for t in leaves if self._key(t) is not None and self._key(t) not in self._ledger.alive]
        if name == WAIT:
            self._pending.waited_for(self._alive(given))
        if not written and not fresh and name not in LOOKING and name not in COLLECTIVES:
            return result  # the result is a view: the operator that reads the view records the read
        writes = [  # looked up after the call, because the call may have resized an `out=` tensor
            (touched, position) for tensor, position in written if (touched := self._touched(tensor, name)) is not None
        ]
        if crossing and name not in COPYING:
            reads = self._read_in_the_call(reads, given)
        made = self._made(fresh, name)
        if name in UNWRITTEN:
            self._mark(fresh)
            if self._ledger.stream != HOST:
                self._ledger.take(name, [block for block, _ in made])
            return result
        carried = [*fresh, *(given if name in COPYING else (tensor for tensor, _ in written))]
        with (
            self._pending.behind(met, given[0].device if given else None) as pending,
            self._ordered(given, carried, crossing, goes_on=_goes_on(name, schema, args, kwargs)),
        ):
            self._write_down(name, reads, writes, made, met, pointwise=torch.Tag.pointwise in func.tags)
        if pending is not None:
            self._pending.begun(pending, result, self._alive([*given, *leaves]), self._alive(leaves))
        return result

    def _accesses(
        self, name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[tuple[Touched, int]], "list[tuple[torch.Tensor, int]]"]:
        """Return an operator's reads and written tensors, each with its operand position."""
        reads: list[tuple[Touched, int]] = []
        written: list[tuple[torch.Tensor, int]] = []
        for position, (argument, tensor) in enumerate(() if name == BARRIER else _operands(schema, args, kwargs)):
            touched = self._touched(tensor, name)
            if touched is None:
                continue
            is_written = _is_written(argument, name)
            if is_written:
                written.append((tensor, position))
            if not is_written or not _is_filled(argument, name):
                self._look(touched[0])
                reads.append((touched, position))
        return reads, written

    def _write_down(
        self,
        name: str,
        reads: list[tuple[Touched, int]],
        writes: list[tuple[Touched, int]],
        made: list[Touched],
        met: GroupMeeting | None,
        *,
        pointwise: bool,
    ) -> None:
        """Add an operator to the ledger; an operator of `LOOKING` is recorded as a host read."""
        line = _line() if self._lines else ""
        meta = {**({"at": line} if line else {}), **self._met(met)} or None
        operands = [self._ledger.read(block, part) for (block, part), _ in reads]
        if name in LOOKING:
            self._ledger.call(HOST_READ, operands, (), meta=meta)
            return
        pairs = _pairs(name, reads, writes, pointwise=pointwise)
        if met is not None and pairs is not None:
            pairs += _own_parts(reads, writes, met)
        self._ledger.call(name, operands, [*(touched for touched, _ in writes), *made], in_place=pairs, meta=meta)

    def _met(self, met: GroupMeeting | None) -> dict[str, Any]:
        """Return the `meta` entry of a collective: the name of its group
        (`allocsim.programs.rank_meetings`). Also store the group for the program's `meta`.
        """
        if met is None:
            return {}
        self._uneven |= not met.even
        self._groups[met.group] = (met.ranks,)
        return {"collective": met.group}

    def _made(self, fresh: "list[torch.Tensor]", name: str) -> list[Touched]:
        """Record a block for each new storage among an operator's results; return each block with
        the part that the result uses. If several results share a block, return the whole block.
        """
        found: dict[int, list[Touched]] = {}
        for tensor in fresh:
            storage = tensor.untyped_storage()
            key = storage._cdata  # noqa: SLF001 - the same key as torch's StorageWeakRef
            block = self._ledger.alive.get(key)
            if block is None:
                self._settle(str(tensor.device), storage, name)
                label = f"{name} {self._ledger.step}"
                if self._streams is not None and self._streams.gave_back(tensor.device):
                    self._ledger.order.synchronize()
                block = self._ledger.give(key, str(tensor.device), storage.data_ptr(), storage.nbytes(), label)
                self._watch(key, storage)
                if self._streams is not None and _in_backward():
                    self._gradients.add(block.index)
            found.setdefault(block.index, []).append((block, self._part(tensor, block)))
        return [
            rows[0] if len(rows) == 1 else (rows[0][0], Extent("u8", (rows[0][0].nbytes,), (1,), 0))
            for rows in found.values()
        ]

    # --- memory that the host writes outside of operators

    def _mark(self, fresh: "list[torch.Tensor]") -> None:
        """Fill the first bytes of unwritten host memory with a mark. If the mark has changed when
        an operator reads the memory, the host wrote it, through `.numpy()` or in C++ code such as
        DDP's reducer.
        """
        for tensor in fresh:
            block = self._ledger.alive.get(self._key(tensor))
            if block is not None and tensor.device.type == "cpu" and block.nbytes:
                nbytes = min(block.nbytes, _MARK)
                ctypes.memset(block.address, _MARKED, nbytes)
                self._marked[block.index] = block.address, nbytes

    def _look(self, block: Block) -> None:
        """Record a write of the host if no operator wrote a block and the mark of the block has
        changed. Called when an operator reads the block.
        """
        address, nbytes = self._marked.get(block.index, (0, 0))
        if nbytes and (block.written or ctypes.string_at(address, nbytes) != bytes([_MARKED]) * nbytes):
            del self._marked[block.index]
            if not block.written:
                self._ledger.filled(block)

    # --- streams

    def _go_to(self, tensors: "list[torch.Tensor]") -> list[Hashable]:
        """Set the stream of the next recorded calls by the devices of an operator's tensors. Return
        the streams of these devices if there are several, otherwise an empty list.
        """
        if self._streams is None:
            return []
        names = list(dict.fromkeys(self._streams.current(device) for device in {t.device: None for t in tensors}))
        away = [name for name in names if name != HOST]
        self._ledger.stream = away[0] if away else HOST
        return names if len(names) > 1 else []

    def _current(self, device: "torch.device | None") -> Hashable:
        """Return the current stream of a device, or `HOST` if no streams are recorded."""
        return HOST if self._streams is None or device is None else self._streams.current(device)

    def _lend(self, tensors: "list[torch.Tensor]", stream: "torch.Stream") -> None:
        """Record that the program called `record_stream` for tensors: `stream` uses them too."""
        if self._streams is not None:
            for tensor in tensors:
                block = self._block(tensor, "record_stream")
                if block is not None:
                    self._ledger.lend(block, self._streams.named(stream))

    def _read_in_the_call(
        self, reads: list[tuple[Touched, int]], given: "list[torch.Tensor]"
    ) -> list[tuple[Touched, int]]:
        """Record a device op's reads of host memory as host reads; return its other reads."""
        assert self._streams is not None
        own = {at for at, tensor in enumerate(given) if self._streams.current(tensor.device) == HOST}
        stream, self._ledger.stream = self._ledger.stream, HOST
        operands = [self._ledger.read(block, part) for (block, part), position in reads if position in own]
        if operands:
            self._ledger.call(HOST_READ, operands, ())
        self._ledger.stream = stream
        return [row for row in reads if row[1] not in own]

    @contextmanager
    def _ordered(
        self,
        given: "list[torch.Tensor]",
        carried: "list[torch.Tensor]",
        crossing: list[Hashable],
        *,
        goes_on: bool | None,
    ) -> Iterator[None]:
        """Add the waits that torch ensures without events, before and after the `with` block, which
        records an operator.

        `carried` has tensors of the operator; a device may use those in host memory after the call
        returns. `goes_on` is the result of `_goes_on`.
        """
        ledger, order = self._ledger, self._ledger.order
        if self._streams is None or ledger.stream == HOST:
            yield
            return
        away = [order.stream(name) for name in crossing if name != HOST] or [order.stream(ledger.stream)]
        own = [t for t in carried if HOST in crossing and self._streams.current(t.device) == HOST]
        on_behind = bool(own) and bool(goes_on) and all(tensor.is_pinned() for tensor in own)
        if len(away) > 1:  # a copy between devices: the streams wait for each other before and after it
            order.join(away)
        yield
        if len(away) > 1:
            order.join(away)
        gradients = (block for block in self._alive(given) if block.index in self._gradients)
        for block in (*(gradients if _in_backward() else ()), *(self._alive(own) if on_behind else ())):
            ledger.lend(block, ledger.stream)
        if goes_on is None or (own and not on_behind):
            order.synchronize(*away)

    # --- tensors and storages

    def _alive(self, tensors: "list[torch.Tensor]") -> Iterator[Block]:
        """Yield the block in the ledger of each tensor; skip tensors without a live block."""
        found = (self._ledger.alive.get(self._key(tensor)) for tensor in tensors)
        return (block for block in found if block is not None)

    def _key(self, tensor: "torch.Tensor") -> int | None:
        """Return the key of a tensor's storage, or None for a tensor without a storage."""
        try:
            storage = tensor.untyped_storage()
            # the storage of a fake tensor is on the meta device, but the tensor is not
            if "meta" in (tensor.device.type, storage.device.type):
                return None
            storage.data_ptr()
            key: int = storage._cdata  # noqa: SLF001 - as above
        except (NotImplementedError, RuntimeError):
            return None
        return key

    def _touched(self, tensor: "torch.Tensor", name: str) -> Touched | None:
        """Return an operand's block and the part of the block that the operand covers. If the
        operand has no storage, count it in `unseen` and return None.
        """
        block = self._block(tensor, name)
        if block is None:
            self.unseen += 1
            return None
        return block, self._part(tensor, block)

    def _block(self, tensor: "torch.Tensor", name: str) -> Block | None:
        """Return an operand's block, or None without storage. A moved storage gets a new block."""
        key = self._key(tensor)
        if key is None:
            return None
        storage, device = tensor.untyped_storage(), str(tensor.device)
        block = self._ledger.alive.get(key)
        if block is not None and not _left(block, storage):
            return block
        self._settle(device, storage, name)
        if block is not None:
            return self._moved(key, storage, device, name)
        block = self._ledger.meet(key, device, storage.data_ptr(), storage.nbytes())
        self._watch(key, storage)
        return block

    def _settle(self, device: str, storage: "torch.UntypedStorage", name: str) -> None:
        """Move each block that overlaps a storage's bytes and no longer holds its own storage.

        The same is done for the new bytes of each moved storage.
        """
        ranges = [storage]
        stale: dict[Any, Any] = {storage._cdata: storage}  # noqa: SLF001 - as above
        while ranges:
            low = (here := ranges.pop()).data_ptr()
            for key, block in self._ledger.over(device, low, low + here.nbytes()):
                watched = None if key in stale else self._watched.get(key)
                its = None if watched is None else watched()
                if its is not None and _left(block, its):
                    stale[key] = its
                    ranges.append(its)
        for key, its in reversed(list(stale.items())[1:]):
            self._moved(key, its, device, name)

    def _moved(self, key: int, storage: "torch.UntypedStorage", device: str, name: str) -> Block:
        """Return the new block of a resized storage; record the copy of the old block's bytes.

        If the new bytes of the storage overlap its old bytes, the old bytes were freed before the
        new allocation. In that case no copy is recorded.
        """
        ledger, nbytes, address = self._ledger, storage.nbytes(), storage.data_ptr()
        old = ledger.alive[key]
        apart = address + nbytes <= old.address or old.address + old.nbytes <= address
        both = Extent("u8", (min(nbytes, old.nbytes) if apart else 0,), (1,), 0)
        if not both.shape[0]:
            ledger.free(key)
            return ledger.give(key, device, address, nbytes, f"{name} {ledger.step}")
        known = old.latest is not None
        operand = ledger.read(old, both) if known else 0
        block = ledger.give(key, device, address, nbytes, f"{name} {ledger.step}")
        if known:  # nothing is copied from an unwritten block
            ledger.call("resize", [operand], [(block, both)], in_place=None)
        ledger.end(old)
        return block

    def _watch(self, key: int, storage: "torch.UntypedStorage") -> None:
        ledger, watched = self._ledger, self._watched

        def gone(_: object) -> None:
            if watched.pop(key, None) is None:
                return
            if get_ident() == self._thread:
                ledger.free(key)
            else:  # a thread of gloo held the last reference
                self._returned.append(key)

        watched[key] = weakref.ref(storage, gone)

    def _take_back(self) -> None:
        """Report to the ledger the storages that other threads freed."""
        while self._returned:
            self._ledger.free(self._returned.popleft())

    def _part(self, tensor: "torch.Tensor", block: Block) -> Extent:
        """Return the elements of a tensor as a part of its block. If elements may overlap, the part
        is the range of bytes from the first element to the last.
        """
        size = tensor.element_size()
        dtype = self._words.get(tensor.dtype)
        if dtype is None:
            dtype = self._words[tensor.dtype] = dtype_of(tensor.dtype) or ""
        shape = tuple(int(n) for n in tensor.shape)
        strides = tuple(int(n) * size for n in tensor.stride())
        offset = int(tensor.data_ptr()) - block.address if 0 not in shape else 0
        if not dtype:
            dtype, shape, strides = "u8", (*shape, size), (*strides, 1)
        if _laps(shape, strides, size):
            reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + size
            return Extent("u8", (reach,), (1,), offset)
        return Extent(dtype, shape, strides, offset)

    def _names(self) -> dict[int, str]:
        """Return block index -> name, for the tensors of `named` and their gradients."""
        names: dict[int, str] = {}
        for name, tensor in self._named.items():
            for label, found in ((name, tensor), (f"{name}.grad", tensor.grad if tensor.is_leaf else None)):
                key = None if found is None else self._key(found)
                block = None if key is None else self._ledger.alive.get(key)
                if block is not None:
                    names.setdefault(block.index, label)
        return names


def record(
    named: "torch.nn.Module | Mapping[str, torch.Tensor] | None" = None,
    *,
    name: str = "torch eager",
    lines: bool = True,
    streams: DeviceStreams | None = None,
) -> EagerRecording:
    """Return a new recording. While it records, a program gives the same results, but slower."""
    return EagerRecording(named, name=name, lines=lines, streams=streams)


def _mode(recording: EagerRecording) -> Any:
    """Return a dispatch mode that passes each operator to a recording."""
    try:
        from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - optional
    except ImportError as error:
        raise AllocsimError(f"a recording needs torch, but torch cannot be imported: {error}") from None

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is optional
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                return NotImplemented  # a wrapper such as DTensor: the operators on its parts are dispatched here
            return recording._dispatched(func, args, kwargs or {})  # noqa: SLF001 - this mode belongs to the recording

    return Mode()


def _tensors(named: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, tensor) for the parameters and buffers of a module or the items of a mapping."""
    if named is None:
        return
    if isinstance(named, Mapping):
        yield from named.items()
        return
    for part in ("named_parameters", "named_buffers"):
        if not hasattr(named, part):
            raise ModelError("named", f"{type(named).__name__} is neither a module nor a mapping of names to tensors")
        yield from getattr(named, part)()


def _operands(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (schema argument, tensor) for each tensor among the arguments of a call."""
    for place, argument in enumerate(schema.arguments):
        given = args[place] if place < len(args) else kwargs.get(argument.name)
        for tensor in _leaves(given):
            yield argument, tensor


def _leaves(given: Any) -> "Iterator[torch.Tensor]":
    """Yield each tensor in `given`: a tensor, or nested lists and tuples of tensors."""
    import torch  # noqa: PLC0415 - optional

    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, list | tuple):
        for part in given:
            yield from _leaves(part)


def _in_backward() -> bool:
    import torch  # noqa: PLC0415 - optional

    return bool(torch._C._current_graph_task_id() >= 0)  # noqa: SLF001 - torch has no public call


def _is_written(argument: Any, name: str) -> bool:
    """Return whether an operator writes an argument. The schema decides if it has alias information
    for the argument; otherwise `UNMARKED` decides.
    """
    if argument.alias_info is not None:
        return bool(argument.alias_info.is_write)
    return str(argument.name).startswith(UNMARKED.get(name, ("-",)))


def _is_filled(argument: Any, name: str) -> bool:
    """Return whether an operator overwrites a written argument completely without reading it."""
    if argument.alias_info is not None:
        return bool(argument.is_out) or name in OVERWRITING
    return argument.name != "tensors" or name in RECEIVED


def _goes_on(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Return whether a call may return while the device still accesses the host's memory. Return
    None for an operator of `LOOKING`: the host always waits for such an operator.
    """
    if name in LOOKING:
        return None
    asked = (
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.name == "non_blocking"
    )
    return name in COPYING and any(asked)


def _own_parts(
    reads: list[tuple[Touched, int]], writes: list[tuple[Touched, int]], met: GroupMeeting
) -> Iterator[tuple[int, int, str]]:
    """Yield the in-place pairs (operand, result) of a collective. In such a pair, the operand is
    this rank's part of the result, or the result is this rank's part of the operand. NCCL allows
    the first kind for a gather and the second for a scatter. Source: NCCL's guide, "In-place
    Operations".
    """
    for result, ((block, written), _) in enumerate(writes):
        for operand, ((other, read), _) in enumerate(reads):
            small, large = sorted((read, written), key=_nbytes)
            length = _nbytes(small)
            fits = _nbytes(large) == len(met.ranks) * length and small.offset - large.offset == met.place * length
            if block is other and fits:
                yield operand, result, "whole"


def _nbytes(part: Extent) -> int:
    """Return the size in bytes of a part, assuming that its elements are dense."""
    return dense_nbytes(part.shape, int(WIDTHS[dtype_code("dtype", part.dtype)]))


def _pairs(
    name: str, reads: list[tuple[Touched, int]], writes: list[tuple[Touched, int]], *, pointwise: bool
) -> list[Pair] | None:
    """Return the pairs (operand, result) that may have exactly the same bytes. Return None if an
    operand has the same bytes as a result and it is unknown whether the operator allows this.
    """
    often = READ_OFTEN.get(name.rstrip("_"))
    pairs: list[Pair] = []
    for result, (written, its) in enumerate(writes):
        for operand, (read, position) in enumerate(reads):
            if read != written:
                continue
            if position == its or pointwise or (often is not None and position not in often):
                pairs.append((operand, result))
            elif often is None:
                return None
    return pairs


def _left(block: Block, storage: "torch.UntypedStorage") -> bool:
    """Return whether a storage has bytes outside its recorded block, or has become empty."""
    address, nbytes = int(storage.data_ptr()), int(storage.nbytes())
    if not nbytes:
        return block.nbytes > 0
    return address < block.address or block.address + block.nbytes < address + nbytes


def _laps(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Return whether elements may share bytes; True is possible even if they are disjoint."""
    reach = size
    for stride, length in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (length - 1)
    return False


def _line() -> str:
    """Return `file.py:12 function` of the innermost frame outside torch and this package, or "" if
    none of the first `_FRAMES` frames is outside.
    """
    import torch  # noqa: PLC0415 - optional

    library = (_HERE + os.sep, os.path.dirname(torch.__file__) + os.sep, "<")  # noqa: PTH120 - as above
    frame = sys._getframe(2)  # noqa: SLF001 - cheaper than a traceback
    for _ in range(_FRAMES):
        code = frame.f_code
        if not code.co_filename.startswith(library):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"  # noqa: PTH119 - only text, not used as a path
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return ""


__all__ = ["EagerRecording", "record"]
