"""A campaign in a process of its own: a target that hangs or ends its process is a finding.

The child says which sequence it runs in shared memory; the parent looks there and at its pipe.
What a killed sequence was is drawn again from the seed. The campaign goes on behind it, at most
`RESTARTS` times.

What this module does not see: what is drawn and judged.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from allocsim.errors import AllocsimError
from allocsim.files.signals import signal_name
from allocsim.online.campaign import Finding, Judge, Result, campaign
from allocsim.online.held_memory import Broken
from allocsim.online.protocol import Abilities, find
from allocsim.online.sequences import drawn

SECONDS: Final = 10.0
"""Wall time that one sequence may take, its shrinking apart."""

RESTARTS: Final = 3


def isolated(
    name: str,
    options: dict[str, Any],
    *,
    seconds: float = SECONDS,
    tell: Callable[[Finding], None] | None = None,
) -> Result:
    """Run `campaign(Judge(make=find(name)), **options)` in a child; `options` has those of both.

    Raises AllocsimError as the campaign does.
    """
    whole, first = Result(), 0
    end = None if options.get("seconds") is None else time.monotonic() + options["seconds"]
    for _ in range(RESTARTS + 1):
        left = {**options, "first": first}
        if end is not None:
            left["seconds"] = max(end - time.monotonic(), 0.0)
        ended = _child(name, left, whole, seconds, tell)
        if ended is None or any(finding.key == ended.key for finding in whole.findings):
            break
        whole.findings.append(ended)
        if tell is not None:
            tell(ended)
        first = ended.index + 1
        if options["examples"] is not None and first >= options["examples"]:
            break
    return whole


def _child(
    name: str, options: dict[str, Any], whole: Result, seconds: float, tell: Callable[[Finding], None] | None
) -> Finding | None:
    """Run one child to its end; return what it died of."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    at = context.Value("q", -1, lock=False)
    child = context.Process(target=_work, args=(name, options, theirs, at), daemon=True)
    child.start()
    theirs.close()
    seen, since, abilities = -1, time.monotonic(), None
    try:
        while True:
            if ours.poll(min(seconds, 0.2)):
                word, said = ours.recv()
                if word == "error":
                    raise AllocsimError(said)
                if word == "abilities":
                    abilities = said
                elif word == "finding":
                    since = time.monotonic()
                    whole.findings.append(said)
                    if tell is not None:
                        tell(said)
                else:
                    _add(whole, said)
                    return None
            elif at.value != seen:
                seen, since = at.value, time.monotonic()
            elif time.monotonic() - since > seconds and seen >= 0:
                return _ended(whole, options, seen, abilities, cause="hangs", how=f"no answer in {seconds:g} s")
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = signal_name(-code) if code < 0 else f"exit status {code}"
        if at.value < 0:
            raise AllocsimError(f"online allocator {name!r} ended its process when it was made: {how}") from None
        return _ended(whole, options, at.value, abilities, cause="ends its process", how=how)
    finally:
        child.kill()
        child.join()
        ours.close()


def _work(name: str, options: dict[str, Any], pipe: Connection, at: Any) -> None:
    def started(index: int) -> None:
        at.value = index

    try:
        judge = Judge(make=find(name), deterministic=options.pop("deterministic"), waste=options.pop("waste"))
        pipe.send(("abilities", judge.abilities()))
        tell = lambda finding: pipe.send(("finding", finding))  # noqa: E731 - one line
        result = campaign(judge, **options, started=started, tell=tell)
    except AllocsimError as error:
        pipe.send(("error", str(error)))
    else:
        pipe.send(("result", result))


def _ended(
    whole: Result, options: dict[str, Any], index: int, abilities: Abilities | None, *, cause: str, how: str
) -> Finding:
    """Return what a child died of, and count what it ran: all that a seed draws up to there."""
    assert abilities is not None
    for number in range(options["first"], index + 1):
        whole.tally(drawn(options["seed"], number, abilities))
    broken = Broken("answers", f"the target {cause}", f"the target {cause}: {how}")
    return Finding(index, drawn(options["seed"], index, abilities), broken, died=True)


def _add(whole: Result, part: Result) -> None:
    whole.sequences += part.sequences
    whole.calls += part.calls
    for mine, theirs in ((whole.shapes, part.shapes), (whole.words, part.words)):
        for word, many in theirs.items():
            mine[word] = mine.get(word, 0) + many
