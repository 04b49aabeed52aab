"""Collectives of `torch.distributed` that go on behind the caller: on which stream each runs, and
when the program waits for it.

    pending = PendingCollectives(ledger, current)
    with pending.behind(met, device) as collective:  # None: it is done where it is called
        ...                                          # the ledger writes it on its stream
    pending.begun(collective, result, blocks, made)
    pending.waited_for(block)                        # `wait_tensor` of a functional one
    pending.end()

| the program | what becomes of it |
|---|---|
| a function of `torch.distributed` with `async_op=True`, `isend`, `irecv` | on a stream of its group, until a method of its `Work` waits |
| `Work.wait` | what comes next on the caller's stream comes after it |
| `synchronize`, `block_current_stream` | the same on a device; the host itself does not wait |
| `result` | the host knows it to be done; on a device nothing |
| `Work.is_completed`, `is_success` that say yes | the host knows it to be done |
| `Work.get_future` | the same: whom a future tells is not followed |
| an operator of `_c10d_functional` | on a stream of its group, until `wait_tensor` of what it returned |
| every other: without `async_op`, from C++ (DDP's reducer), coalesced, of a `ProcessGroup` itself | done where it is called |

A group of gloo has several threads, so that two of its collectives that nobody waited for are in no
order; those of other libraries are in the order in which they were called (NCCL: one stream a
group; another for each further group of the same ranks). A collective comes after what its caller's
stream was given before. A stream of gloo takes the next one where all that it was given comes
before: it was waited for, or the allocator gave its memory out again.

A `Work` is told from others by identity: the Python object of the one that an operator returned is
made here, and kept until the next operator, so that the caller's is the same.

What this module does not see: what a future's callbacks do; when a collective whose `Work` was
dropped is done, but by its memory, which the allocator has again only then; which thread of the
host waits: all are taken as one.
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
"""Methods of a `Work` after which a stream of a device comes after it. Gloo's on the CPU return at
once.
"""

TAKING: Final = ("result",)
"""Those that give out what it brought: gloo's raises before that is there, others wait for
nothing.
"""

KNOWING: Final = ("is_completed", "is_success", "get_future")
"""Methods after whose yes the host takes it as done."""

ALWAYS_BEHIND: Final = ("isend", "irecv")
"""Functions that have no `async_op`, and return before they are done."""

TOGETHER: Final = ("batch_isend_irecv", "_coalescing_manager")
"""Functions that give the caller another `Work` than those of their operators."""

UNORDERED: Final = ("gloo",)
"""Libraries that run collectives of one group at once. Source: torch/csrc/distributed/c10d/
ProcessGroupGloo.hpp (`Options::threads`).
"""


@dataclass(frozen=True, slots=True)
class PendingCollective:
    """A collective that nobody waited for yet."""

    mark: Hashable
    stream: Hashable
    device: "torch.device | None"
    """That of its tensors; None where it has none."""


class PendingCollectives:
    """The collectives of a recording that may still run."""

    def __init__(self, ledger: Ledger, current: "Callable[[torch.device | None], Hashable]") -> None:
        """`current` says which stream of a device is the current one."""
        self._ledger = ledger
        self._current = current
        self._works: weakref.WeakKeyDictionary[Any, PendingCollective] = weakref.WeakKeyDictionary()
        self._results: dict[int, PendingCollective] = {}
        """Block of what a functional one returned -> it."""
        self._groups: dict[Hashable, str] = {}
        """Stream -> the process group whose it is."""
        self._count = 0
        self._kept: Any = None
        """The `Work` of the operator before."""
        self._replaced: list[tuple[type, str, Any]] = []

    def end(self) -> None:
        """Leave `Work` as it was."""
        self._kept = None
        while self._replaced:
            kind, name, method = self._replaced.pop()
            setattr(kind, name, method)

    @contextmanager
    def behind(self, met: GroupMeeting | None, device: "torch.device | None") -> Iterator[PendingCollective | None]:
        """Let the ledger write on the stream of a collective that goes on behind its caller, which
        is given; None for all else. `device` is that of its tensors.
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
        """Note that a collective was written down: `result` is what its operator returned,
        `returned` the blocks of that.
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
        """Note that the caller waited for what a functional collective returned."""
        for block in blocks:
            collective = self._results.pop(block.index, None)
            if collective is not None:
                self._wait(collective)

    def _free_stream(self, met: GroupMeeting, device: "torch.device | None", caller: int) -> Hashable:
        """Return a stream of a process group on which nothing runs that its caller is not behind,
        or its only one where all run in order.
        """
        number, name = 1, f"collectives of {met.group}"
        ordered = met.library(device) not in UNORDERED
        while not (self._groups.setdefault(name, met.name) == met.name and (ordered or self._is_done(name, caller))):
            number += 1
            name = f"collectives of {met.group} ({number})"
        return name

    def _is_done(self, name: Hashable, caller: int) -> bool:
        """Return whether all that a stream was given comes before what its caller is given next."""
        order = self._ledger.order
        stream = order.stream(name)
        last = order.front(stream).get(stream, -1)
        return max(order.known.all.get(stream, -1), order.before(caller).get(stream, -1)) >= last

    def _wait(self, collective: PendingCollective, *, host: bool | None = None) -> None:
        """Put what comes next behind a collective, if it comes on the host or on a device, as
        said.
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
        """Let a kind of `Work` tell of waits."""
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
    """Return the `Work` among what an operator returned, None where there is none."""
    import torch  # noqa: PLC0415 - optional

    unbox = getattr(torch.distributed.Work, "unbox", None)
    parts = result if isinstance(result, tuple) else (result,)
    found = next((part for part in parts if isinstance(part, torch.ScriptObject)), None)
    return None if found is None or unbox is None else unbox(found)


def _is_behind() -> bool:
    """Return whether the operator that is called now gives a `Work` before it is done."""
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
    """Yield the code of each function that is being called, innermost first, and what gives its
    variables.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - a traceback without its cost
    while frame is not None:
        yield frame.f_code, partial(getattr, frame, "f_locals")
        frame = frame.f_back


__all__ = ["PendingCollective", "PendingCollectives"]
