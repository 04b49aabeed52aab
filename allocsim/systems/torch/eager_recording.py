"""Record what an eager PyTorch program does with memory.

    with allocsim.systems.torch.record(model) as r:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    r.document                      # program, belief and plan: what `allocsim check` judges
    print(*r.lines(), sep=chr(10))  # peak, lower bound, the buffers alive at the peak and why

A dispatch mode sees each operator below autograd: forward, backward and optimizer alike. The schema
of an operator gives the operands that it writes. A tensor's storage gives address and size
(`data_ptr`, `nbytes`); a weak reference to the storage shows when it is freed.
`allocsim.systems.torch.ledger` makes a document of these calls.

Time: operators in the order in which the host calls them. On a CUDA device an operator runs on the
current stream and waits as events, `wait_stream` and synchronisations order it
(`allocsim.systems.torch.device_streams`); the host is a stream of its own. So a race is found where
memory is freed and taken again on another stream, or while another stream uses it, without a wait
between the two. A copy between host and device is done when the call returns, unless it is
`non_blocking` and the host's tensor is pinned; a scalar of the host is read during the call. Where
a backward pass uses one of its own tensors on another stream, `record_stream` is assumed: autograd
calls it for gradients, without an operator, but not for tensors that the forward pass saved. Tested
with CPU tensors, given stream numbers and fired callbacks of torch; never on a GPU, and with no
copy between host and device or between devices. On other accelerators the host's order is used.

In place. An operator whose schema marks an operand as written is a mutation, and its result may lie
exactly on that operand. Another operand may lie exactly on a result if the operator is tagged
pointwise, and may not if it is in `operators.READ_OFTEN`. Of any other operator the pairs are
unknown: the judge lets an exact alias pass and counts it.

The host's own writes. Host memory that an operator allocates without writing it (`empty`) gets a
mark in its first bytes. If the mark is gone at the first read, the host wrote the memory outside of
any operator; if it is there, the memory is unwritten.

Ranks. A collective of `torch.distributed` names its group of ranks in its `meta`, and the program
lists ranks and groups, so `allocsim join` can make one document of the recordings of all ranks. An
asynchronous collective (`async_op=True`) runs on a stream of its group until the caller waits for
it; one that C++ calls, as DDP's reducer does, is recorded as done where it is called
(`allocsim.systems.torch.pending_collectives`).

What this module does not see: scratch memory of kernels; tensors without a storage (sparse, fake,
meta; `unseen` counts such operands); the host's reads through `.numpy()`; tensors that no operator
touches; writes that a schema does not mark (the running statistics of `native_batch_norm` in
training); a storage that was resized and came back to its old address; that tensors over several
live pieces of one NumPy array share it (they are recorded as overlapping buffers). Compiled regions
(`torch.compile`) do not run under a dispatch mode; read their wrappers (docs/plans.md).
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
"""The most frames that are searched for the caller's own line."""

_MARK: Final = 4096
"""Bytes that are marked at the beginning of unwritten host memory."""

_MARKED: Final = 0xA5

_HERE: Final = os.path.dirname(__file__)  # noqa: PTH120 - compared as text with the paths of frames


class EagerRecording:
    """A run while it is recorded, and its document afterwards."""

    def __init__(
        self,
        named: "torch.nn.Module | Mapping[str, torch.Tensor] | None" = None,
        *,
        name: str = "torch eager",
        lines: bool = True,
        streams: DeviceStreams | None = None,
    ) -> None:
        """Prepare a recording; `with` starts it.

        Args:
            named: a module, or tensors by name, whose buffers and gradients get these names.
            name: the name of the program.
            lines: whether the meta of each op has the caller's line, `file.py:12 function`.
            streams: answers on which stream an operator runs; None for CUDA's streams where there
                is a CUDA device.
        """
        self._named: dict[str, Any] = dict(_tensors(named))
        self._ledger = Ledger(name)
        self._lines = lines
        self._mode: Any = None
        self._streams = streams
        self._listening: Listening | None = None
        self._watched: dict[object, weakref.ref[Any]] = {}
        self._thread = get_ident()
        """The thread that called the operator before."""
        self._returned: deque[int] = deque()
        """Keys of storages that other threads freed, which the ledger does not know of yet."""
        self._gradients: set[int] = set()
        """Numbers of the blocks that a backward pass allocated."""
        self._pending = PendingCollectives(self._ledger, self._current)
        self._groups: dict[str, tuple[tuple[int, ...], ...]] = {}
        """Name of a group -> the ranks that met in its collectives."""
        self._uneven = False
        """Whether there was a collective in which ranks bring different sizes."""
        self._marked: dict[int, tuple[int, int]] = {}
        """Number of an unwritten host block -> address and size in bytes of its mark."""
        self._document: Document | None = None
        self._words: dict[Any, str] = {}
        """torch's dtype -> the document's, "" where it has none: its elements become bytes."""
        self.unseen = 0
        """How many operands and results had no storage."""

    def __enter__(self) -> Self:
        """Start recording. Raises AllocsimError without torch, and on a second start."""
        if self._mode is not None or self._document is not None:
            raise AllocsimError("a recording records once; make another")
        self._mode = _mode(self)
        import torch  # noqa: PLC0415 - optional; the line before says so where it is missing

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
        """Stop recording. After an exception the document ends with the last operator before it."""
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
        """Program, belief and plan of the run. Raises AllocsimError while it is being recorded."""
        if self._document is None:
            raise AllocsimError("the recording has not ended")
        return self._document

    def lines(self, most: int = 12) -> list[str]:
        """Return lines of text: the peak, the lower bound, at most `most` buffers alive at the peak
        and why, and the peaks of other plans and orders. O(ops^2) at worst for the order.
        """
        from allocsim.systems.torch.peak_lines import lines_of  # noqa: PLC0415 - planners are not needed to record

        return lines_of(self.document, most)

    # --- one operator

    def _dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and record it."""
        import torch  # noqa: PLC0415 - optional

        self._thread = get_ident()
        self._take_back()
        schema = func._schema  # noqa: SLF001 - the one place where schemas are
        name = schema.name.rpartition("::")[2]
        given = [tensor for _, tensor in _operands(schema, args, kwargs)]
        self._go_to(given)
        if name in NO_ACCESS or torch.Tag.inplace_view in func.tags:
            result = func(*args, **kwargs)
            for tensor in given:  # where their storages lie now
                if self._key(tensor) in self._ledger.alive:
                    self._block(tensor, name)
            if name == "record_stream":
                self._lend(given, args[1] if len(args) > 1 else kwargs["s"])
            return result
        for tensor in given:
            self._block(tensor, name)  # all of them first: a block may grow when another is met
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
            return result  # a view: the operator that reads it records the read
        writes = [  # where their storages lie now: `out=` may have been resized
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
        """Return an operator's reads and the tensors that it writes, each with its position."""
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
        """Add an operator to the ledger; an operator of `LOOKING` becomes a read by the host."""
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
        """Return the `meta` of a collective's op: the name of its group
        (`allocsim.programs.rank_meetings`). Keeps the group for the program's `meta`.
        """
        if met is None:
            return {}
        self._uneven |= not met.even
        self._groups[met.group] = (met.ranks,)
        return {"collective": met.group}

    def _made(self, fresh: "list[torch.Tensor]", name: str) -> list[Touched]:
        """Return an operator's new results: a block for each new storage, with the result's part
        of it, or the whole block where several results share it.
        """
        found: dict[int, list[Touched]] = {}
        for tensor in fresh:
            storage = tensor.untyped_storage()
            key = storage._cdata  # noqa: SLF001 - what StorageWeakRef uses
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

    # --- memory that the host writes by itself

    def _mark(self, fresh: "list[torch.Tensor]") -> None:
        """Mark the first bytes of unwritten host memory. If the mark is gone when the memory is
        read, the host has written it, by `.numpy()` or from C++ as DDP's reducer does.
        """
        for tensor in fresh:
            block = self._ledger.alive.get(self._key(tensor))
            if block is not None and tensor.device.type == "cpu" and block.nbytes:
                nbytes = min(block.nbytes, _MARK)
                ctypes.memset(block.address, _MARKED, nbytes)
                self._marked[block.index] = block.address, nbytes

    def _look(self, block: Block) -> None:
        """Record a write of the host, where an operator reads a block that no operator wrote and
        whose mark has changed.
        """
        address, nbytes = self._marked.get(block.index, (0, 0))
        if nbytes and (block.written or ctypes.string_at(address, nbytes) != bytes([_MARKED]) * nbytes):
            del self._marked[block.index]
            if not block.written:
                self._ledger.filled(block)

    # --- streams

    def _go_to(self, tensors: "list[torch.Tensor]") -> list[Hashable]:
        """Set the stream of the calls recorded next, from the devices of an operator's tensors;
        return all streams of these devices if there are several, else nothing.
        """
        if self._streams is None:
            return []
        names = list(dict.fromkeys(self._streams.current(device) for device in {t.device: None for t in tensors}))
        away = [name for name in names if name != HOST]
        self._ledger.stream = away[0] if away else HOST
        return names if len(names) > 1 else []

    def _current(self, device: "torch.device | None") -> Hashable:
        """Return the stream of a device on which an operator would run now."""
        return HOST if self._streams is None or device is None else self._streams.current(device)

    def _lend(self, tensors: "list[torch.Tensor]", stream: "torch.Stream") -> None:
        """Record that the program told the allocator of a use on another stream."""
        if self._streams is not None:
            for tensor in tensors:
                block = self._block(tensor, "record_stream")
                if block is not None:
                    self._ledger.lend(block, self._streams.named(stream))

    def _read_in_the_call(
        self, reads: list[tuple[Touched, int]], given: "list[torch.Tensor]"
    ) -> list[tuple[Touched, int]]:
        """Record that the host reads the host's operands of a device op; return the other reads."""
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
        """Record an operator with the order that torch itself ensures, beside events.

        `carried` are the operator's tensors; a device may still use those of the host after the
        call. `goes_on` is the answer of `_goes_on`.
        """
        ledger, order = self._ledger, self._ledger.order
        if self._streams is None or ledger.stream == HOST:
            yield
            return
        away = [order.stream(name) for name in crossing if name != HOST] or [order.stream(ledger.stream)]
        own = [t for t in carried if HOST in crossing and self._streams.current(t.device) == HOST]
        on_behind = bool(own) and bool(goes_on) and all(tensor.is_pinned() for tensor in own)
        if len(away) > 1:  # a copy between devices: both streams wait for each other, before and after
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
        """Yield the blocks in the ledger that these tensors lie in."""
        found = (self._ledger.alive.get(self._key(tensor)) for tensor in tensors)
        return (block for block in found if block is not None)

    def _key(self, tensor: "torch.Tensor") -> int | None:
        """Return the key of a tensor's storage, None for a tensor without one."""
        try:
            storage = tensor.untyped_storage()
            if "meta" in (tensor.device.type, storage.device.type):  # a fake tensor: its storage alone
                return None
            storage.data_ptr()
            key: int = storage._cdata  # noqa: SLF001 - as above
        except (NotImplementedError, RuntimeError):
            return None
        return key

    def _touched(self, tensor: "torch.Tensor", name: str) -> Touched | None:
        """Return an operand's block and part of it; None, counted in `unseen`, without storage."""
        block = self._block(tensor, name)
        if block is None:
            self.unseen += 1
            return None
        return block, self._part(tensor, block)

    def _block(self, tensor: "torch.Tensor", name: str) -> Block | None:
        """Return the block of an operand, None for one without a storage."""
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
        """Move each block on whose bytes a storage lies now, if its own storage has moved."""
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
        """Return the new block of a resized storage, with the old block's bytes copied into it.

        A storage that lies over its old bytes was freed in between, and no byte was copied.
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
        if known:  # unwritten bytes are no content
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
            else:  # a thread of gloo, which held the last reference
                self._returned.append(key)

        watched[key] = weakref.ref(storage, gone)

    def _take_back(self) -> None:
        """Pass the storages that other threads freed on to the ledger."""
        while self._returned:
            self._ledger.free(self._returned.popleft())

    def _part(self, tensor: "torch.Tensor", block: Block) -> Extent:
        """Return the elements of a tensor in its block; bytes where elements may overlap."""
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
        """Return block number -> name, for the tensors of `named` and their gradients."""
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
    """Return a recording (`EagerRecording`). The program computes the same results, slower."""
    return EagerRecording(named, name=name, lines=lines, streams=streams)


def _mode(recording: EagerRecording) -> Any:
    """Return a dispatch mode that passes each operator to a recording."""
    try:
        from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - optional
    except ImportError as error:
        raise AllocsimError(f"a recording needs torch, which cannot be imported: {error}") from None

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is optional
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                return NotImplemented  # a wrapper, such as DTensor: the operators on its parts come here
            return recording._dispatched(func, args, kwargs or {})  # noqa: SLF001 - its own mode

    return Mode()


def _tensors(named: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, tensor) of a module or a mapping."""
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
    """Yield each tensor among the arguments with its argument in the schema."""
    for place, argument in enumerate(schema.arguments):
        given = args[place] if place < len(args) else kwargs.get(argument.name)
        for tensor in _leaves(given):
            yield argument, tensor


def _leaves(given: Any) -> "Iterator[torch.Tensor]":
    """Yield the tensors in lists and tuples."""
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
    """Return whether an operator writes an argument: by its schema, or by `UNMARKED` where the
    schema does not say it.
    """
    if argument.alias_info is not None:
        return bool(argument.alias_info.is_write)
    return str(argument.name).startswith(UNMARKED.get(name, ("-",)))


def _is_filled(argument: Any, name: str) -> bool:
    """Return whether an operator overwrites all of an argument and reads none of it."""
    if argument.alias_info is not None:
        return bool(argument.is_out) or name in OVERWRITING
    return argument.name != "tensors" or name in RECEIVED


def _goes_on(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Return whether the call may return before the device has finished with the host's memory;
    None for an operator of `LOOKING`, for which the host always waits.
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
    """Yield the in-place pairs (operand, result) of a collective: one of the two is this rank's
    part of the other, as NCCL allows for a gather's operand and a scatter's result. Source: NCCL's
    guide, "In-place Operations".
    """
    for result, ((block, written), _) in enumerate(writes):
        for operand, ((other, read), _) in enumerate(reads):
            small, large = sorted((read, written), key=_nbytes)
            length = _nbytes(small)
            fits = _nbytes(large) == len(met.ranks) * length and small.offset - large.offset == met.place * length
            if block is other and fits:
                yield operand, result, "whole"


def _nbytes(part: Extent) -> int:
    """Return the size in bytes of a part whose elements are dense."""
    return dense_nbytes(part.shape, int(WIDTHS[dtype_code("dtype", part.dtype)]))


def _pairs(
    name: str, reads: list[tuple[Touched, int]], writes: list[tuple[Touched, int]], *, pointwise: bool
) -> list[Pair] | None:
    """Return the pairs (operand, result) that may lie on each other exactly; None where an operand
    lies exactly on a result and it is unknown whether it may.
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
    """Return whether a storage now lies partly outside its recorded block, or has become empty."""
    address, nbytes = int(storage.data_ptr()), int(storage.nbytes())
    if not nbytes:
        return block.nbytes > 0
    return address < block.address or block.address + block.nbytes < address + nbytes


def _laps(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Return whether elements may share bytes. The test is conservative: True may be wrong."""
    reach = size
    for stride, length in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (length - 1)
    return False


def _line() -> str:
    """Return `file.py:12 function` of the innermost frame outside torch and this package."""
    import torch  # noqa: PLC0415 - optional

    library = (_HERE + os.sep, os.path.dirname(torch.__file__) + os.sep, "<")  # noqa: PTH120 - as above
    frame = sys._getframe(2)  # noqa: SLF001 - a traceback without its cost
    for _ in range(_FRAMES):
        code = frame.f_code
        if not code.co_filename.startswith(library):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"  # noqa: PTH119 - text, no path
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return ""


__all__ = ["EagerRecording", "record"]
