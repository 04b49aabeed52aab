"""Asynchronous collectives of `torch.distributed`: on which stream each runs, and when the program
waits for it.

    pending = PendingCollectives(ledger, current)
    with pending.behind(met, device) as collective:  # None: it is synchronous
        ...                                          # the ledger writes it on its stream
    pending.begun(collective, result, blocks, made)
    pending.waited_for(block)                        # `wait_tensor` of a functional collective
    pending.end()

| the program calls | the recorded order |
|---|---|
| a function of `torch.distributed` with `async_op=True`, `isend`, `irecv` | on a stream of its group, until a method of its `Work` waits |
| `Work.wait` | the next ops of the caller's stream come after it |
| `synchronize`, `block_current_stream` | the same on a device; the host itself does not wait |
| `result` | the host comes after it; on a device nothing |
| `Work.is_completed`, `is_success` that return True | the host comes after it |
| `Work.get_future` | the same: the callbacks of a future are not followed |
| an operator of `_c10d_functional` | on a stream of its group, until `wait_tensor` of its result |
| any other: without `async_op`, from C++ (DDP's reducer), coalesced, of a `ProcessGroup` itself | done where it is called |

A group of gloo has several threads, so two of its collectives are unordered until the program waits
for one. Those of other libraries run in the order of the calls (NCCL: one stream for each group,
also for each of two groups of the same ranks). A collective comes after the earlier ops of its
caller's stream. A stream of gloo is used again once all its collectives come before the next one:
the program waited for them, or the allocator gave their memory out again.

A `Work` is recognised by identity: this module makes the Python object of the `Work` that an
operator returned, and keeps it until the next operator, so the caller gets the same object.

What this module does not see: the callbacks of a future; the end of a collective whose `Work` was
dropped, except that its memory is freed only then; which thread of the host waits: all threads are
taken as one.
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
"""Methods of a `Work` that order a device's stream after the collective. On the CPU gloo's return
at once.
"""

TAKING: Final = ("result",)
"""Methods that return the collective's result: gloo's raises before the result is there, those of
other libraries do not wait.
"""

KNOWING: Final = ("is_completed", "is_success", "get_future")
"""Methods that tell the host that the collective is done, unless they return False."""

ALWAYS_BEHIND: Final = ("isend", "irecv")
"""Asynchronous functions that have no parameter `async_op`."""

TOGETHER: Final = ("batch_isend_irecv", "_coalescing_manager")
"""Functions that return another `Work` than their operators do."""

UNORDERED: Final = ("gloo",)
"""Libraries that run collectives of one group concurrently. Source: torch/csrc/distributed/c10d/
ProcessGroupGloo.hpp (`Options::threads`).
"""


@dataclass(frozen=True, slots=True)
class PendingCollective:
    """A collective that the program has not waited for yet."""

    mark: Hashable
    stream: Hashable
    device: "torch.device | None"
    """The device of its tensors; None for a collective without tensors."""


class PendingCollectives:
    """The collectives of a recording that may still run."""

    def __init__(self, ledger: Ledger, current: "Callable[[torch.device | None], Hashable]") -> None:
        """Take the ledger to write to; `current` returns the current stream of a device."""
        self._ledger = ledger
        self._current = current
        self._works: weakref.WeakKeyDictionary[Any, PendingCollective] = weakref.WeakKeyDictionary()
        self._results: dict[int, PendingCollective] = {}
        """Number of a block that a functional collective returned -> the collective."""
        self._groups: dict[Hashable, str] = {}
        """Stream -> the process group that it belongs to."""
        self._count = 0
        self._kept: Any = None
        """The `Work` of the last operator."""
        self._replaced: list[tuple[type, str, Any]] = []

    def end(self) -> None:
        """Restore the methods of `Work`."""
        self._kept = None
        while self._replaced:
            kind, name, method = self._replaced.pop()
            setattr(kind, name, method)

    @contextmanager
    def behind(self, met: GroupMeeting | None, device: "torch.device | None") -> Iterator[PendingCollective | None]:
        """Yield an asynchronous collective, while the ledger writes on its stream; None for any
        other operator. `device` is that of its tensors.
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
        """Note that a collective was recorded. `result` is the return value of its operator,
        `touched` has the blocks that it uses, `returned` those of its result.
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
        """Note that the caller waited for a functional collective, by the blocks it returned."""
        for block in blocks:
            collective = self._results.pop(block.index, None)
            if collective is not None:
                self._wait(collective)

    def _free_stream(self, met: GroupMeeting, device: "torch.device | None", caller: int) -> Hashable:
        """Return a stream of a process group: its only one where collectives run in order, else
        one whose collectives all come before the caller's next op.
        """
        number, name = 1, f"collectives of {met.group}"
        ordered = met.library(device) not in UNORDERED
        while not (self._groups.setdefault(name, met.name) == met.name and (ordered or self._is_done(name, caller))):
            number += 1
            name = f"collectives of {met.group} ({number})"
        return name

    def _is_done(self, name: Hashable, caller: int) -> bool:
        """Return whether all ops of a stream come before the caller's next op."""
        order = self._ledger.order
        stream = order.stream(name)
        last = order.front(stream).get(stream, -1)
        return max(order.known.all.get(stream, -1), order.before(caller).get(stream, -1)) >= last

    def _wait(self, collective: PendingCollective, *, host: bool | None = None) -> None:
        """Order the next ops after a collective. With `host` given, only if the current stream is
        the host's (True) or a device's (False).
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
        """Wrap the methods of a class of `Work`, so that they report waits."""
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
    """Return the `Work` in an operator's return value, None where there is none."""
    import torch  # noqa: PLC0415 - optional

    unbox = getattr(torch.distributed.Work, "unbox", None)
    parts = result if isinstance(result, tuple) else (result,)
    found = next((part for part in parts if isinstance(part, torch.ScriptObject)), None)
    return None if found is None or unbox is None else unbox(found)


def _is_behind() -> bool:
    """Return whether the operator being called now is asynchronous, by the functions calling it."""
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
    """Yield, innermost first, the code of each function on the call stack and a function that
    returns its variables.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - a traceback without its cost
    while frame is not None:
        yield frame.f_code, partial(getattr, frame, "f_locals")
        frame = frame.f_back


__all__ = ["PendingCollective", "PendingCollectives"]
