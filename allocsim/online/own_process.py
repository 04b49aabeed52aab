"""A campaign in a process of its own: a target that hangs or ends its process is a finding.

What a command leaves behind is the child's, which ends it; the child ends with this process.

The child says which sequence it runs in shared memory; the parent looks there and at its pipe.
What a killed sequence was is drawn again from the seed. The campaign goes on behind it, at most
`RESTARTS` times.

The child is started with room for static thread-local storage (`ROOM`): a malloc that was built to
be there from the start, as jemalloc is, asks for more of it than glibc keeps for libraries that are
loaded later.

What this module does not see: what is drawn and judged.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from allocsim.errors import AllocsimError
from allocsim.files.signals import adopt_orphans, die_with_parent, end_all, end_orphans, how_ended
from allocsim.online.campaign import Finding, Judge, Result, campaign
from allocsim.online.given_out import trace_of
from allocsim.online.held_memory import Broken
from allocsim.online.pools_by_command import COMMAND
from allocsim.online.protocol import Abilities, find
from allocsim.online.sequences import drawn

Tell = Callable[[Finding, list[dict[str, Any]]], None]

SECONDS: Final = 10.0
"""Wall time that one sequence may take, its shrinking apart."""

SHRINKING: Final = 60.0
"""Wall time that a finding may be made small in; after that it stays as it was found."""

STARTING: Final = 30.0
"""Wall time for the child itself to start, on a busy machine."""

RESTARTS: Final = 3

ROOM: Final = "glibc.rtld.optional_static_tls"
"""What glibc calls that room, in `GLIBC_TUNABLES`; jemalloc 5.3.0 needs 2,632 bytes."""

ROOM_BYTES: Final = 1 << 16


def isolated(
    name: str,
    options: dict[str, Any],
    *,
    seconds: float = SECONDS,
    tell: Tell | None = None,
) -> Result:
    """Run `campaign(Judge(make=find(name)), **options)` in a child; `options` has those of both.

    `tell` is called with each finding as it comes, and the events of its sequence run once more,
    none where the process did not live through it.

    Raises AllocsimError as the campaign does.
    """
    whole, first = Result(), 0
    end = None if options.get("seconds") is None else time.monotonic() + options["seconds"]
    for _ in range(RESTARTS + 1):
        left = {**options, "first": first}
        if end is not None:
            left["seconds"] = max(end - time.monotonic(), 0.0)
        left["seen"] = frozenset(finding.key for finding in whole.findings)
        watched = _Watched(name, left, whole, seconds, tell)
        ended = _child(watched)
        if ended is None:
            return whole
        assert watched.abilities is not None  # else it could not have begun
        for number in range(first, ended.index + 1):  # what the child ran, it did not come to tell
            whole.tally(drawn(options["seed"], number, watched.abilities))
        if ended.key not in left["seen"]:
            whole.findings.append(ended)
            if tell is not None:
                tell(ended, [])
        first = ended.index + 1
        if options["examples"] is not None and first >= options["examples"]:
            return whole
    whole.stopped = f"stopped behind sequence {first - 1}, after its process ended or hung {RESTARTS + 1} times"
    return whole


@dataclass(slots=True)
class _Watched:
    """A child that runs a campaign, and what is known of it."""

    name: str
    options: dict[str, Any]
    whole: Result
    seconds: float
    tell: Tell | None
    since: float = 0.0
    """When it was last heard of."""
    seen: int = -1
    """The last sequence that it began."""
    abilities: Abilities | None = None
    shrinking: Finding | None = None
    """What it is making small."""
    done: bool = False

    def hear(self, word: str, said: Any) -> None:
        """Take in what the child says. Raises AllocsimError where it could not begin."""
        self.since = time.monotonic()
        match word:
            case "error":
                raise AllocsimError(said)
            case "abilities":
                self.abilities = said
            case "broken":
                self.shrinking = said
            case "finding":
                finding, events = said
                self.shrinking = None
                self.whole.findings.append(finding)
                if self.tell is not None:
                    self.tell(finding, events)
            case _:
                self.whole.add(said)
                self.done = True

    def late(self) -> Finding | None:
        """Return what it is stopped for, if it was not heard of for too long."""
        silent = time.monotonic() - self.since
        if self.shrinking is not None:
            return self.shrinking if silent > SHRINKING else None
        if silent <= self.seconds:
            return None
        if self.abilities is None:
            raise AllocsimError(f"online allocator {self.name!r}: no answer in {self.seconds:g} s when it was made")
        return self.ended(self.seen, cause="hangs", how=f"no answer in {self.seconds:g} s")

    def ended(self, index: int, *, cause: str, how: str) -> Finding:
        """Return what a child died of."""
        if self.abilities is None:
            raise AllocsimError(f"online allocator {self.name!r} ended its process when it was made: {how}")
        if self.shrinking is not None:
            return self.shrinking
        broken = Broken("answers", f"the target {cause}", f"the target {cause}: {how}")
        return Finding(index, drawn(self.options["seed"], index, self.abilities), broken, died=True)


def _child(watched: _Watched) -> Finding | None:
    """Run one child to its end; return what it died of."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    at = context.Value("q", -1, lock=False)
    child = context.Process(target=_work, args=(watched.name, watched.options, theirs, at, os.getpid()), daemon=True)
    with _with_room():
        child.start()
    theirs.close()
    watched.since = time.monotonic() + STARTING
    try:
        while not watched.done:
            if ours.poll(min(watched.seconds, 0.2)):
                watched.hear(*ours.recv())
            elif at.value != watched.seen:
                watched.seen, watched.since = at.value, time.monotonic()
            elif (stopped := watched.late()) is not None:
                return stopped
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = how_ended(code)
        return watched.ended(at.value, cause="ends its process", how=how)
    finally:
        if child.pid is not None and child.is_alive():
            with contextlib.suppress(OSError):
                os.kill(child.pid, signal.SIGSTOP)  # it begins nothing more
            end_all(child.pid)
        child.kill()
        child.join()
        ours.close()
    return None


@contextlib.contextmanager
def _with_room() -> Iterator[None]:
    """Let what is started here have room for static thread-local storage."""
    before = os.environ.get("GLIBC_TUNABLES")
    os.environ["GLIBC_TUNABLES"] = f"{ROOM}={ROOM_BYTES}" + (f":{before}" if before else "")
    try:
        yield
    finally:
        del os.environ["GLIBC_TUNABLES"]
        if before is not None:
            os.environ["GLIBC_TUNABLES"] = before


def _end(*_: object) -> None:
    """End all that was begun here, and this process."""
    end_orphans()
    os._exit(0)


def _work(name: str, options: dict[str, Any], pipe: Connection, at: Any, parent: int) -> None:
    def started(index: int) -> None:
        at.value = index

    if name.startswith(COMMAND):
        adopt_orphans()
        signal.signal(signal.SIGTERM, _end)
        die_with_parent(signal.SIGTERM)
    else:
        die_with_parent()
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: whoever began this ends it
    try:
        judge = Judge(
            make=find(name),
            deterministic=options.pop("deterministic"),
            waste=options.pop("waste"),
            quick=not name.startswith(COMMAND),  # most of its time is the command's: one run of each sequence
        )
        pipe.send(("abilities", judge.abilities()))

        def tell(finding: Finding) -> None:
            pipe.send(("finding", (finding, [] if finding.died else trace_of(judge, finding.sequence, again=True))))

        found = lambda finding: pipe.send(("broken", finding))  # noqa: E731 - one line
        result = campaign(judge, **options, started=started, tell=tell, found=found)
    except AllocsimError as error:
        pipe.send(("error", str(error)))
    else:
        pipe.send(("result", result))
