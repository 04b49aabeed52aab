"""Follows the asynchronous collectives of `torch.distributed`: the stream on which each collective
runs, and the point at which the program waits for the collective.

    pending = PendingCollectives(ledger, current)
    with pending.behind(met, device) as collective:  # None if synchronous
        ...                                          # calls are recorded on its stream
    pending.begun(collective, result, blocks, made)
    pending.waited_for(block)                        # after `wait_tensor`
    pending.end()

| the program calls | the recorded order |
|---|---|
| a function of `torch.distributed` with `async_op=True`, `isend`, `irecv` | the collective is on a stream of its group until a method of its `Work` waits |
| `Work.wait` | the next ops of the caller's stream come after the collective |
| `synchronize`, `block_current_stream` | on a device, the same as `Work.wait`; on the CPU, no order |
| `result` | on the CPU, the host's next ops come after the collective; on a device, no order |
| `Work.is_completed`, `is_success` that return True | the host's next ops come after the collective |
| `Work.get_future` | the same, because the callbacks of a future are not followed |
| an operator of `_c10d_functional` | the collective is on a stream of its group until `wait_tensor` of its result |
| any other collective: without `async_op`, from C++ (DDP's reducer), coalesced, or called on a `ProcessGroup` | the collective has ended when its call returns |

A group of gloo has several threads, so two of its collectives are unordered until the program waits
for one of them. Collectives of other libraries run in the order of the calls. NCCL has one stream
for each group, even if two groups have the same ranks. A collective comes after the earlier ops of
its caller's stream. A stream of a gloo group is used again if the program waited for all its
collectives, or if the allocator allocated their memory again. In both cases the old collectives
come before the next collective.

A `Work` is recognised by the identity of its Python object. This module makes the Python object of
the `Work` that an operator returned, and keeps it until the next operator, so the caller gets the
same object.

What this module does not see: the callbacks of a future; the thread of the host that waits, because
all threads are treated as one. If the program drops a `Work` without waiting, this module does not
see when the collective ends, except that memory of the collective is freed only after its end.
"""

import os
import sys
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile, takewhile
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

from allocsim.systems.torch.ledger import HOST, Block, Ledger
from allocsim.systems.torch.process_groups import GroupMeeting

if TYPE_CHECKING:
    import torch

ORDERING: Final = ("synchronize", "block_current_stream")
"""Methods of a `Work` that order a device's stream after the collective. On the CPU, gloo's methods
of these names return at once."""

TAKING: Final = ("result",)
"""Methods of a `Work` that return the collective's result. Gloo's method raises an error if the
collective has not ended. The methods of other libraries do not wait."""

KNOWING: Final = ("is_completed", "is_success", "get_future")
"""Methods of a `Work` that show the host that the collective ended, unless they return False."""

ALWAYS_BEHIND: Final = ("isend", "irecv")
"""Asynchronous functions that have no parameter `async_op`."""

TOGETHER: Final = ("batch_isend_irecv", "_coalescing_manager")
"""Functions that return a different `Work` than the operators that they call."""

UNORDERED: Final = ("gloo",)
"""Libraries that run the collectives of one group concurrently. Source: `Options::threads` in
torch/csrc/distributed/c10d/ProcessGroupGloo.hpp."""


@dataclass(frozen=True, slots=True)
class PendingCollective:
    """An asynchronous collective, with its mark in the recorded order."""

    mark: Hashable
    stream: Hashable
    device: "torch.device | None"
    """The device of the collective's tensors; None for a collective without tensors."""


class PendingCollectives:
    """The asynchronous collectives of a recording, and the waits of the program for them."""

    def __init__(self, ledger: Ledger, current: "Callable[[torch.device | None], Hashable]") -> None:
        """Calls are recorded in `ledger`; `current` returns the current stream of a device."""
        self._ledger = ledger
        self._current = current
        self._works: weakref.WeakKeyDictionary[Any, PendingCollective] = weakref.WeakKeyDictionary()
        self._results: dict[int, PendingCollective] = {}
        """Index of a block that a functional collective returned -> the collective."""
        self._groups: dict[Hashable, str] = {}
        """Name of a stream -> torch's name of the process group that the stream belongs to."""
        self._count = 0
        self._kept: Any = None
        """The `Work` that the last operator returned."""
        self._replaced: list[tuple[type, str, Any]] = []

    def end(self) -> None:
        """Restore the replaced methods of `Work` classes."""
        self._kept = None
        while self._replaced:
            kind, name, method = self._replaced.pop()
            setattr(kind, name, method)

    @contextmanager
    def behind(self, met: GroupMeeting | None, device: "torch.device | None") -> Iterator[PendingCollective | None]:
        """Yield an asynchronous collective; inside the `with` block, the ledger records calls on
        its stream. Yield None for any other operator. `device` is the device of the tensors.
        """
        self._kept = None
        if met is None or not (met.functional or _is_behind()):
            yield None
            return
        ledger, order = self._ledger, self._ledger.order
        caller = ledger.stream
        stream = self._free_stream(met, device, order.stream(caller))
        if caller != HOST:
            order.join([order.stream(stream)], behind=[order.stream(caller)])
        self._count += 1
        ledger.stream = stream
        try:
            yield PendingCollective(("collective", self._count), stream, device)
        finally:
            ledger.stream = caller
        order.record(("collective", self._count), order.stream(stream))

    def begun(
        self, collective: PendingCollective, result: Any, touched: Iterable[Block], returned: Iterable[Block]
    ) -> None:
        """Store a recorded collective, so that a later wait finds it. `result` is the return value
        of its operator, `touched` has the blocks that it uses, `returned` the blocks of its
        result.
        """
        for block in touched:
            self._ledger.lend(block, collective.stream)
        work = _work_of(result)
        if work is None:
            self._results |= {block.index: collective for block in returned}
            return
        self._hear(type(work))
        self._works[work] = collective
        self._kept = work

    def waited_for(self, blocks: Iterable[Block]) -> None:
        """Record that the caller waited for the functional collectives that returned `blocks`."""
        for block in blocks:
            collective = self._results.pop(block.index, None)
            if collective is not None:
                self._wait(collective)

    def _free_stream(self, met: GroupMeeting, device: "torch.device | None", caller: int) -> Hashable:
        """Return a stream for a collective of a process group. If the library runs collectives in
        order, the group has only one stream. Otherwise, return the first stream on which all
        earlier collectives come before the caller's next op.
        """
        number, name = 1, f"collectives of {met.group}"
        ordered = met.library(device) not in UNORDERED
        while not (self._groups.setdefault(name, met.name) == met.name and (ordered or self._is_done(name, caller))):
            number += 1
            name = f"collectives of {met.group} ({number})"
        return name

    def _is_done(self, name: Hashable, caller: int) -> bool:
        """Return whether all ops of stream `name` come before the next op of stream `caller`."""
        order = self._ledger.order
        stream = order.stream(name)
        last = order.front(stream).get(stream, -1)
        return max(order.known.all.get(stream, -1), order.before(caller).get(stream, -1)) >= last

    def _wait(self, collective: PendingCollective, *, host: bool | None = None) -> None:
        """Order the next ops of the current stream after a collective. With `host=True`,
        do nothing if the current stream is a device's; with `host=False`, if it is the host's.
        """
        order, current = self._ledger.order, self._current(collective.device)
        if host == (current != HOST):
            return
        if current == HOST:
            self._know(collective)
        else:
            order.wait(collective.mark, order.stream(current))

    def _know(self, collective: PendingCollective) -> None:
        self._ledger.order.synchronize_mark(collective.mark)

    def _hear(self, kind: type) -> None:
        """Wrap the methods of a `Work` class so that they report waits."""
        host, device = partial(self._wait, host=True), partial(self._wait, host=False)
        for names, tell in ((("wait",), self._wait), (ORDERING, device), (TAKING, host), (KNOWING, self._know)):
            for name in names:
                owner = next((base for base in kind.__mro__ if name in vars(base)), None)
                if owner is not None and not any(one[:2] == (owner, name) for one in self._replaced):
                    self._replaced.append((owner, name, vars(owner)[name]))
                    setattr(owner, name, self._telling(vars(owner)[name], tell))

    def _telling(self, method: Callable[..., Any], tell: Callable[[PendingCollective], None]) -> Callable[..., Any]:
        def told(work: Any, *args: Any, **kwargs: Any) -> Any:
            answer = method(work, *args, **kwargs)
            collective = self._works.get(work)
            if collective is not None and answer is not False:
                tell(collective)
            return answer

        return told


def _work_of(result: Any) -> Any:
    """Return the `Work` in an operator's return value, or None if the value has no `Work`."""
    import torch  # noqa: PLC0415 - optional

    unbox = getattr(torch.distributed.Work, "unbox", None)
    parts = result if isinstance(result, tuple) else (result,)
    found = next((part for part in parts if isinstance(part, torch.ScriptObject)), None)
    return None if found is None or unbox is None else unbox(found)


def _is_behind() -> bool:
    """Return whether the current operator is asynchronous, by the functions that called it."""
    import torch  # noqa: PLC0415 - optional
    import torch.distributed.distributed_c10d  # noqa: PLC0415 - as above

    if not hasattr(torch.distributed.Work, "unbox"):
        return False
    library = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared as text with the paths of frames
    calls = dropwhile(lambda code: not code[0].co_filename.startswith(library), _callers())
    behind = False
    for code, values in takewhile(lambda code: code[0].co_filename.startswith(library), calls):
        if code.co_filename != torch.distributed.distributed_c10d.__file__:
            continue
        if code.co_name in TOGETHER:
            return False
        behind = behind or code.co_name in ALWAYS_BEHIND or bool(values().get("async_op"))
    return behind


def _callers() -> Iterator[tuple[CodeType, Callable[[], Mapping[str, Any]]]]:
    """Yield the functions on the call stack, innermost first. Each function is
    yielded as a pair: its code, and a callable that returns its local variables.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - cheaper than a traceback
    while frame is not None:
        yield frame.f_code, partial(getattr, frame, "f_locals")
        frame = frame.f_back


__all__ = ["PendingCollective", "PendingCollectives"]
