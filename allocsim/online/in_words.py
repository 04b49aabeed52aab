"""A finding in words, and as a test to paste.

What this module does not see: how findings come about.
"""

from typing import Final

from allocsim.online.campaign import Finding
from allocsim.online.driver import Call

WORDS: Final = {
    "alloc": "alloc h{0}: {1} bytes, alignment {2}, for stream {3}",
    "free": "free h{0}, told of other streams: {1}",
    "part": "free {2} pages of h{0} from page {1} on",
    "realloc": "realloc h{0} to {1} bytes",
    "share": "share h{1} as h{0}, pages: {2} (0: all)",
    "write": "h{0} is to be written: copy on write",
    "begin": "step {0} begins on stream {1}",
    "end": "step {0} ends",
    "count": "count the holders of h{0}",
    "reserve": "reserve {0} bytes for stream {1}",
    "evict": "evict {0} bytes",
    "synchronize": "the host waits for stream {0}",
    "fork": "a child that is forked asks for as much as is held, and frees all",
    "advance": "stream {0} does what it was given",
}


def lines(finding: Finding, seed: int) -> list[str]:
    """Return a finding in lines: what is broken, by what, and the calls that show it."""
    sequence, broken = finding.sequence, finding.broken
    room = "no capacity" if sequence.capacity is None else f"{sequence.capacity} bytes"
    return [
        f"{broken.property}: {broken.cause} (sequence {finding.index} of seed {seed}, {sequence.shape})",
        f"  {broken.sentence}",
        f"  a target of {room}, alignment {sequence.alignment}, {sequence.streams} stream{'s'[: sequence.streams != 1]}:",
        *(f"  {number}. {said(call)}" for number, call in enumerate(sequence.calls, 1)),
        *(["  then all is freed"] if broken.property == "returned" else []),
    ]


def said(call: Call) -> str:
    """Return a call in words."""
    word, *arguments = call
    if word == "thread":
        return f"on thread {arguments[0]}: {said(arguments[1])}"
    if word in {"use", "begin"}:
        handles = ", ".join(f"h{handle}" for handle in (arguments[1] if word == "use" else arguments[2]))
        return (
            f"stream {arguments[0]} uses {handles}"
            if word == "use"
            else f"{WORDS[word].format(*arguments)} with {handles}"
        )
    return str(WORDS.get(word, word)).format(*arguments)


def script(finding: Finding, name: str, waste: float | None = None) -> str:
    """Return a test that fails as long as the promise is broken."""
    sequence = finding.sequence
    calls = "".join(f"        {call!r},  # {said(call)}\n" for call in sequence.calls)
    return f'''"""{finding.broken.property}: {finding.broken.cause}."""

from allocsim.online import Judge, Sequence, find


def test_the_promise_is_kept():
    calls = (
{calls}    )
    sequence = Sequence(
        shape={sequence.shape!r}, capacity={sequence.capacity!r}, alignment={sequence.alignment!r}, streams={sequence.streams!r},
        calls=calls,
    )
    broken = Judge(make=find({name!r}), deterministic={finding.broken.property == "deterministic"!r}, waste={waste!r}).judge(sequence)
    assert broken is None, broken.sentence
'''
