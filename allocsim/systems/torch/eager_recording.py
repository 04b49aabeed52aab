"""Record what an eager PyTorch program does with memory.

    with allocsim.systems.torch.record(model) as r:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    r.document                      # program, belief and plan: what `allocsim check` judges
    print(*r.lines(), sep=chr(10))  # peak, bound, who is alive and why

A dispatch mode sees each operator below autograd: forward, backward and optimizer alike. Schemas
say what is written, storages say where things lie (`data_ptr`, `nbytes`), a weak reference to each
says when it is given back. `allocsim.systems.torch.ledger` makes a document of it.

Time: operators in the order in which the host calls them. On a CUDA device each runs on the stream
that is current when it is called, and waits for what events, `wait_stream` and synchronisation say
(`allocsim.systems.torch.device_streams`); the host is a stream of its own. So memory that went back
and was taken on another stream, or while another stream used it, is found to race where nothing
orders the two. A copy between host and device is over when the call returns, unless it is
`non_blocking` and the host's side is pinned; a scalar of the host is read in the call. What a
backward pass made and then uses on another stream is taken as told to the allocator: autograd does
that for gradients, without an operator, and not for what the forward pass saved. Tried on tensors
of the CPU with stream numbers given and torch's callbacks fired, and with lists of calls; never on
a GPU, and no copy between host and device or between devices. On other accelerators the host's
order stands for all.

In place. An operator that the schema says writes an operand is a mutation, as the caller wrote it,
and may lie exactly on that operand. Other operands may lie exactly on a result where the operator
is tagged pointwise, and not where it reads them often (`operators.READ_OFTEN`); of the others
nobody knows, and an exact alias is let pass and counted.

The host's own writes. Memory of the host that an operator gave out unwritten (`empty`) is marked in
its first bytes: where the mark is gone when it is first read, the host wrote it by itself; where it
is there, nobody did.

Ranks. A collective of `torch.distributed` says in its `meta` where ranks meet, and the program how
many there are and their groups, so that `allocsim join` makes one document of the recordings of all
ranks. One that goes on behind its caller (`async_op=True`) runs on a stream of its group until the
caller waits for it; what C++ calls, as DDP's reducer does, is taken as done where it is called
(`allocsim.systems.torch.pending_collectives`).

What this module does not see: memory that kernels take while they run; tensors without a storage
(sparse, fake, meta), of which `unseen` counts the operands; what the host reads through `.numpy()`;
tensors that no operator touched; writes that a schema does not mark (the running statistics of
`native_batch_norm` in training); a storage that was resized away and back to where it lay; that
tensors over several live pieces of one NumPy array share it (they are told as overlapping).
Compiled regions (`torch.compile`) do not run under a dispatch mode; read their wrappers
(docs/plans.md).
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
"""Frames of a call that are looked through for the caller's own line."""

_MARK: Final = 4096
"""Bytes at the beginning of new memory of the host that are marked."""

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
        """Begin nothing yet; `with` does.

        Args:
            named: a module, or tensors by name, whose memory and gradients get these names.
            name: of the program.
            lines: whether each op remembers the caller's line, `file.py:12 function`, in its meta.
            streams: what says on which stream operators run; None for those of CUDA, if there is
                any.
        """
        self._named: dict[str, Any] = dict(_tensors(named))
        self._ledger = Ledger(name)
        self._lines = lines
        self._mode: Any = None
        self._streams = streams
        self._listening: Listening | None = None
        self._watched: dict[object, weakref.ref[Any]] = {}
        self._thread = get_ident()
        """That of the operator before."""
        self._returned: deque[int] = deque()
        """Storages that other threads gave back, which the ledger has not heard of yet."""
        self._gradients: set[int] = set()
        """Blocks that a backward pass made."""
        self._pending = PendingCollectives(self._ledger, self._current)
        self._groups: dict[str, tuple[tuple[int, ...], ...]] = {}
        """The groups in which ranks met."""
        self._uneven = False
        """Whether ranks met in an operator to which not all bring as much."""
        self._marked: dict[int, tuple[int, int]] = {}
        """Blocks of the host's memory that no operator wrote yet -> address and bytes of a mark."""
        self._document: Document | None = None
        self._words: dict[Any, str] = {}
        """torch's dtype -> the document's; empty where that has none, and bytes are recorded."""
        self.unseen = 0
        """Operands and results that have no storage."""

    def __enter__(self) -> Self:
        """Begin to record. Raises AllocsimError where torch is missing, or a second time."""
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
        """Stop recording; after an exception too, up to which the document goes."""
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
        """Program, belief and plan. Raises AllocsimError before the recording has ended."""
        if self._document is None:
            raise AllocsimError("the recording has not ended")
        return self._document

    def lines(self, most: int = 12) -> list[str]:
        """Return the peak, the bound, who is alive at the peak and why, and what other plans and
        orders need, in lines of text. O(ops^2) at worst for the order; `most` rows.
        """
        from allocsim.systems.torch.peak_lines import lines_of  # noqa: PLC0415 - planners are not needed to record

        return lines_of(self.document, most)

    # --- one operator

    def _dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and write it down."""
        import torch  # noqa: PLC0415 - optional

        self._thread = get_ident()
        self._take_back()
        schema = func._schema  # noqa: SLF001 - the one place where schemas are
        name = schema.name.rpartition("::")[2]
        given = [tensor for _, tensor in _operands(schema, args, kwargs)]
        self._go_to(given)
        if name in NO_ACCESS or torch.Tag.inplace_view in func.tags:
            result = func(*args, **kwargs)
            for tensor in given:  # where they lie now
                if self._key(tensor) in self._ledger.alive:
                    self._block(tensor, name)
            if name == "record_stream":
                self._lend(given, args[1] if len(args) > 1 else kwargs["s"])
            return result
        for tensor in given:
            self._block(tensor, name)  # all of them first: a block may grow by what is met
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
            return result  # a view: whoever reads it will say what it reads
        writes = [  # where they lie now: `out=` may have been resized
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
        """Return what an operator reads, and the tensors that it writes, each with its position."""
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
        """Add an operator to the ledger; one by which the host looks at elements is its read."""
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
        """Return what an operator says of where ranks meet in it
        (`allocsim.programs.rank_meetings`), and keep the group.
        """
        if met is None:
            return {}
        self._uneven |= not met.even
        self._groups[met.group] = (met.ranks,)
        return {"collective": met.group}

    def _made(self, fresh: "list[torch.Tensor]", name: str) -> list[Touched]:
        """Return what an operator made, a block for each new storage; where several results share
        one, the whole of it.
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
        """Fill the first bytes of the host's memory that nobody wrote yet: where they are gone when
        it is read, the host has written it, by `.numpy()` or as DDP's reducer does.
        """
        for tensor in fresh:
            block = self._ledger.alive.get(self._key(tensor))
            if block is not None and tensor.device.type == "cpu" and block.nbytes:
                nbytes = min(block.nbytes, _MARK)
                ctypes.memset(block.address, _MARKED, nbytes)
                self._marked[block.index] = block.address, nbytes

    def _look(self, block: Block) -> None:
        """Note a write of the host where a block that no operator wrote is read, and has none of
        its mark any more.
        """
        address, nbytes = self._marked.get(block.index, (0, 0))
        if nbytes and (block.written or ctypes.string_at(address, nbytes) != bytes([_MARKED]) * nbytes):
            del self._marked[block.index]
            if not block.written:
                self._ledger.filled(block)

    # --- streams

    def _go_to(self, tensors: "list[torch.Tensor]") -> list[Hashable]:
        """Set the stream of what is written down from now on; return all streams that an operator
        on these tensors touches, where they are several.
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
        """Note that the allocator was told of a use on another stream."""
        if self._streams is not None:
            for tensor in tensors:
                block = self._block(tensor, "record_stream")
                if block is not None:
                    self._ledger.lend(block, self._streams.named(stream))

    def _read_in_the_call(
        self, reads: list[tuple[Touched, int]], given: "list[torch.Tensor]"
    ) -> list[tuple[Touched, int]]:
        """Let the host read its operands of what runs on a device; return the others."""
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
        """Write an operator down in the order that torch gives it beside what events say.

        `carried` are the tensors of which the host's may be in use while a device runs, `goes_on`
        is `_goes_on`.
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
        """Yield the blocks that these tensors lie in, of those that are known."""
        found = (self._ledger.alive.get(self._key(tensor)) for tensor in tensors)
        return (block for block in found if block is not None)

    def _key(self, tensor: "torch.Tensor") -> int | None:
        """Return what tells a storage from others, None for a tensor that has none."""
        try:
            storage = tensor.untyped_storage()
            if "meta" in (tensor.device.type, storage.device.type):  # the second: a fake one
                return None
            storage.data_ptr()
            key: int = storage._cdata  # noqa: SLF001 - as above
        except (NotImplementedError, RuntimeError):
            return None
        return key

    def _touched(self, tensor: "torch.Tensor", name: str) -> Touched | None:
        """Return block and part of an operand."""
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
        """Move each live block on whose bytes a storage lies now, if its own lies elsewhere."""
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
        """Return the block of a storage that was resized: as many bytes as both have came along.

        Where it lies over its old bytes it was given back in between, and nothing came along.
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
        if known:  # what nobody wrote is no content
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
            else:  # a thread of gloo, which had the last hold of it
                self._returned.append(key)

        watched[key] = weakref.ref(storage, gone)

    def _take_back(self) -> None:
        """Tell the ledger of what other threads gave back."""
        while self._returned:
            self._ledger.free(self._returned.popleft())

    def _part(self, tensor: "torch.Tensor", block: Block) -> Extent:
        """Return the elements of a tensor in its block."""
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
        """Return names by block: those of the tensors given, and of their gradients."""
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
    """Return a recording (`EagerRecording`); the program runs as it always does, only slower."""
    return EagerRecording(named, name=name, lines=lines, streams=streams)


def _mode(recording: EagerRecording) -> Any:
    """Return a dispatch mode that tells a recording each operator."""
    try:
        from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - optional
    except ImportError as error:
        raise AllocsimError(f"a recording needs torch, which cannot be imported: {error}") from None

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is optional
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                return NotImplemented  # a wrapper, such as DTensor: what it does to its parts comes here
            return recording._dispatched(func, args, kwargs or {})  # noqa: SLF001 - its own mode

    return Mode()


def _tensors(named: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and tensors of a module or a mapping."""
    if named is None:
        return
    if isinstance(named, Mapping):
        yield from named.items()
        return
    for part in ("named_parameters", "named_buffers"):
        if not hasattr(named, part):
            raise ModelError("named", f"{type(named).__name__} is neither a module nor tensors by name")
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

    return bool(torch._C._current_graph_task_id() >= 0)  # noqa: SLF001 - nothing else says so


def _is_written(argument: Any, name: str) -> bool:
    """Return whether an operator writes an argument: by its schema, or by the table of those whose
    schemas do not say it.
    """
    if argument.alias_info is not None:
        return bool(argument.alias_info.is_write)
    return str(argument.name).startswith(UNMARKED.get(name, ("-",)))


def _is_filled(argument: Any, name: str) -> bool:
    """Return whether an operator overwrites all of an argument that it writes, and reads none."""
    if argument.alias_info is not None:
        return bool(argument.is_out) or name in OVERWRITING
    return argument.name != "tensors" or name in RECEIVED


def _goes_on(name: str, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Return whether the call may return before a device has done it, though the host's memory
    takes part; None where the host waits for every such operator.
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
    """Yield the pairs (operand, result) of which one is the part of this rank in the other: a
    collective may be given what it gathers in its place, and leave what it scatters there. Source:
    NCCL's guide, "In-place Operations".
    """
    for result, ((block, written), _) in enumerate(writes):
        for operand, ((other, read), _) in enumerate(reads):
            small, large = sorted((read, written), key=_nbytes)
            length = _nbytes(small)
            fits = _nbytes(large) == len(met.ranks) * length and small.offset - large.offset == met.place * length
            if block is other and fits:
                yield operand, result, "whole"


def _nbytes(part: Extent) -> int:
    """Return the bytes of dense elements."""
    return dense_nbytes(part.shape, int(WIDTHS[dtype_code("dtype", part.dtype)]))


def _pairs(
    name: str, reads: list[tuple[Touched, int]], writes: list[tuple[Touched, int]], *, pointwise: bool
) -> list[Pair] | None:
    """Return the pairs (operand, result) that may lie on each other exactly; None where an operand
    lies exactly on a result and nobody knows.
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
    """Return whether a storage lies beyond its block by now, or has no byte of it any more."""
    address, nbytes = int(storage.data_ptr()), int(storage.nbytes())
    if not nbytes:
        return block.nbytes > 0
    return address < block.address or block.address + block.nbytes < address + nbytes


def _laps(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Return whether elements may share bytes; True also where only a closer look would tell."""
    reach = size
    for stride, length in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (length - 1)
    return False


def _line() -> str:
    """Return `file.py:12 function` of the innermost frame that is not the library's."""
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
