"""An outcome in words, at most 80 columns wide: first the causes, then the violations that show
them, then the detectors that ran.

    plan.json: 1 cause in 3 violations; kernels not examined
    1. C12 plan, 3 places, first at op 3 'host.read_3' of run 0
         cure: place z at 512, +256 B
      4 ops, 3 buffers, 1 run; peak 512 B, at least 768 B
      S found: 4 ops; L clean: 3 believed buffers
      P, D, K not run: ...

The first line never claims more than was examined: it says "S and L clean", and which detectors did
not run. Names come from files; each is put on one line before text is wrapped. Wrapping only
replaces blanks between words, so a long name makes a long line.

What this module does not see: the terminal, and how violations are found.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from allocsim.files.sizes import in_bytes, in_growth
from allocsim.judge.violations import Report, Violation
from allocsim.model import Program
from allocsim.outcomes import FiledViolation, Outcome, denial
from allocsim.outcomes.examined import (
    CLEAN,
    NO_PLAN,
    NOT_RUN,
    Examined,
    assumed_returns,
    counted,
    kept_outside,
    unaudited,
    unseen,
)
from allocsim.printable import one_line
from allocsim.verdict.records import Cause, FirstPlace

if TYPE_CHECKING:
    from allocsim.cure import Cure
    from allocsim.outcomes.confirmation import Confirmation

WIDTH: Final = 80

NOT_ASKED: Final = (
    "for some wrong reads, several possible causes were not tried one by one: the steps are spent; "
    "the writer found is believed"
)
"""A line that is printed once, if not all causes were `asked`."""

NOT_SOUGHT: Final = "; a cure was not looked for to the end: the steps set for cures are spent"

MAKE_A_PLAN: Final = "`allocsim plan FILE --allocator greedy_by_size -o planned.json` makes one"

CHEAPER: Final = "; cheaper ones were not looked for to the end"


def headline(outcome: Outcome) -> str:
    """Return the first line without the name of the file: the findings or the clean detectors, and
    the detectors that did not run.
    """
    return "; ".join(_head_parts(outcome))


def _head_parts(outcome: Outcome) -> list[str]:
    if outcome.report is None:
        return [outcome.error or "cannot be judged"]
    parts = [_found(outcome, outcome.report)]
    if outcome.examined["S"].state == NOT_RUN:
        parts.insert(0, NO_PLAN)
    if outcome.document is not None and (assumed := assumed_returns(outcome.document)):
        parts.append(f"{counted(assumed, 'return')} assumed")
    if outcome.document is not None and (hidden := unseen(outcome.document)):
        parts.append(f"not to be seen here: {hidden[0]}" + (f", and {len(hidden) - 1} more" if hidden[1:] else ""))
    if outcome.examined["K"].state == NOT_RUN and _has_kernels(outcome.examined):
        parts.append("kernels not examined")
    elif (
        outcome.evidence is not None
        and outcome.examined["D"].state == NOT_RUN  # D runs every kernel, also those that K left out
        and (left := unaudited(outcome.evidence))
    ):
        parts.append(f"{counted(len(left), 'kind')} of kernels not examined")
    executed = [letter for letter in "PDK" if outcome.examined[letter].state != NOT_RUN]
    if executed and outcome.executed_by:
        parts.append(f"{_listed(executed)} by {outcome.executed_by}")
    if outcome.unvouched:
        pairs = "an in-place pair" if outcome.unvouched == 1 else f"{outcome.unvouched:,} in-place pairs"
        parts.append(f"{pairs} that nobody vouches for")
    if outcome.unexamined:
        parts.append(f"{_listed(outcome.unexamined)} required and not run")
    return [part for part in parts if part]


def lines_of(outcome: Outcome, *, violations: bool = True) -> Iterator[str]:
    """Yield the outcome as lines: the headline, a line or two for each cause, the violations under
    their causes, sizes, and the detectors.
    """
    yield from _head_lines(outcome)
    if outcome.report is None:
        return
    known = known_by_cause(outcome)
    for cause in outcome.causes:
        yield from cause_lines(outcome, cause, known[id(cause)])
    if any(not cause.asked for cause in outcome.causes):
        yield from wrapped(NOT_ASKED, "  ", "    ")
    if outcome.failed:
        yield from wrapped(outcome.failed, "", "  ")
    if outcome.denied:
        yield from wrapped(denial(outcome), "", "  ")
    elif outcome.confirmation is not None and not outcome.confirmation.whole:
        yield from wrapped(_confirmed_in_part(outcome.confirmation), "  ", "    ")
    yield from _size_lines(outcome, outcome.report)
    yield from examined_lines(outcome.examined)
    if outcome.replay is not None:
        for line in outcome.replay.lines():
            yield from wrapped(line, "  ", "    ")
    if outcome.examined["S"].why == NO_PLAN:
        yield f"  {MAKE_A_PLAN}"
    for what in outcome.report.unexamined:
        yield from wrapped(
            f"not examined: {what}; the steps allowed for this check are spent (--unbounded)", "  ", "    "
        )
    if violations:
        yield from _grouped(outcome, outcome.report)


def _confirmed_in_part(said: "Confirmation") -> str:
    """Say how many violations of a large document the plain judge looked for, and found."""
    where = "" if not said.asked else f", each on a cut of the document, and finds {said.found}"
    return f"the plain judge was asked for {said.asked:,} of {counted(said.listed, 'violation')} listed{where}"


def _head_lines(outcome: Outcome) -> Iterator[str]:
    """Yield the lines of the headline, which begins with the name of the file: as many of its parts
    as fit into each line, and always one in the first line.
    """
    first, *others = _head_parts(outcome)
    line = f"{one_line(outcome.file)}: {one_line(first)}"
    for part in others:
        if len(line) + len(part) + 2 <= WIDTH:
            line = f"{line}; {part}"
            continue
        yield f"{line};"
        line = f"  {part}"
    yield line


def known_by_cause(outcome: Outcome) -> Counter[int]:
    """Return `id(cause)` -> how many of the violations under the cause are known."""
    return Counter(id(finding.cause.cause) for finding in outcome.findings if finding.known)


def cause_lines(outcome: Outcome, cause: Cause, known: int) -> Iterator[str]:
    """Yield the lines of one cause: class, party, number of places and first place, how many of its
    violations are known, then cure and price.
    """
    head = f"{cause.number}. {cause.class_} {cause.party}, {counted(cause.places, 'place')}"
    head += f" in {len(cause.turns)} turns or ways" if cause.turns else ""
    first = first_place(outcome, cause)
    yield from wrapped(f"{head}, first {first}" if first else head, "", "   ")
    if known:
        yield f"   {known} of them known"
    yield from wrapped(f"{mended(cause)}", "   ", "     ")


def mended(cause: Cause) -> str:
    """Return the cure of a cause with its price; if there is none, the mend that is needed."""
    if cause.cure is None:
        why = "" if cause.sought else NOT_SOUGHT
        return f"to mend: {cause.mend}{why}"
    said = f"cure: {'; '.join(cause.cure.words)}, {price(cause.cure)}"
    other = cause.cure.alternative
    return said if other is None else f"{said}; or {'; '.join(other.words)}, {price(other)}"


def price(cure: "Cure") -> str:
    """Return the price of a cure: bytes, and the overlap that is lost if it adds waits."""
    nbytes = in_growth(cure.nbytes)
    waits = f", {counted(cure.overlap, 'pair')} of ops can no longer overlap" if cure.overlap else ""
    unverified = "" if cure.verified else ", not verified"
    return f"{nbytes}{waits}{unverified}{CHEAPER if cure.cut else ''}"


def examined_lines(examined: Mapping[str, Examined]) -> Iterator[str]:
    """Yield lines with the detectors that ran, on what, and those that did not, with the reason.

    Detectors with the same reason share a line.
    """
    ran = [f"{letter} {row.state}: {row.of}" for letter, row in examined.items() if row.state != NOT_RUN]
    if ran:
        yield from wrapped("; ".join(ran), "  ", "    ")
    for letter, row in examined.items():
        if row.state != NOT_RUN and row.why:
            yield from wrapped(f"{letter}: {row.why}", "  ", "    ")
    whys: dict[str, list[str]] = {}
    for letter, row in examined.items():
        if row.state == NOT_RUN:
            whys.setdefault(row.why, []).append(letter)
    for why, letters in whys.items():
        yield from wrapped(f"{', '.join(letters)} not run: {why}", "  ", "    ")


def _found(outcome: Outcome, report: Report) -> str:
    if outcome.causes:
        said = counted(len(outcome.causes), "cause")
        if report.count:
            said += f" in {'over ' if report.truncated else ''}{counted(report.count, 'violation')}"
        return said
    if report.count:
        return f"{'over ' if report.truncated else ''}{counted(report.count, 'violation')}"
    clean = [letter for letter, row in outcome.examined.items() if row.state == CLEAN]
    return f"{_listed(clean)} clean" if clean else ""


def _has_kernels(examined: Mapping[str, Examined]) -> bool:
    return examined["K"].why not in {"no kernels in it", NO_PLAN}


def first_place(outcome: Outcome, cause: Cause) -> str:
    """Return the first place at which a cause shows, in words."""
    assert outcome.document is not None
    place, document = cause.first, outcome.document
    if place.op is not None:
        program = document.runs[place.run].program if place.run is not None else _program_of(outcome, cause)
        name = "" if program is None else f" {program.ops.called(place.op)!r}"
        run = f" of run {place.run}" if place.run is not None and len(document.runs) > 1 else ""
        return f"at op {place.op}{name}{run}"
    return _at_buffer(outcome, cause, place)


def _at_buffer(outcome: Outcome, cause: Cause, place: FirstPlace) -> str:
    program = _program_of(outcome, cause)
    if place.buffer is None or program is None:
        return ""
    step = "" if place.step is None else f" in step {place.step}"
    return f"at buffer {place.buffer} {program.buffers.names[place.buffer]!r}{step}"


def _program_of(outcome: Outcome, cause: Cause) -> Program | None:
    assert outcome.document is not None
    index = next((v.program for v in cause.violations if v.program is not None), None)
    return None if index is None else outcome.document.programs[index]


def _size_lines(outcome: Outcome, report: Report) -> Iterator[str]:
    assert outcome.document is not None
    stats, runs = report.stats, len(outcome.document.runs)
    said = f"{counted(stats.ops, 'op')}, {counted(stats.buffers, 'buffer')}"
    if runs:
        sizes = f"peak {in_bytes(stats.peak_bytes)}, at least {in_bytes(stats.lower_bound_bytes)}"
        said += f", {counted(runs, 'run')}; {sizes}"
        if stats.peak_bytes < stats.lower_bound_bytes:
            said += ": below the bound, bytes are shared that live at once"
    yield from wrapped(said, "  ", "    ")
    buffers, nbytes = kept_outside(outcome.document)
    if buffers:
        yield from wrapped(
            f"{counted(buffers, 'buffer')} of {in_bytes(nbytes)} in no arena and in no peak", "  ", "    "
        )
    if outcome.over_peak and outcome.max_peak is not None:
        peak, most = stats.peak_bytes, outcome.max_peak
        text = f"the plan needs {in_bytes(peak)} ({peak} bytes); at most {in_bytes(most)} ({most} bytes) are allowed"
        yield from wrapped(text, "  ", "    ")


def _grouped(outcome: Outcome, report: Report) -> Iterator[str]:
    """Yield the listed violations, each under its cause, then warnings, then the number of
    violations not listed.
    """
    by_cause: dict[int, list[FiledViolation]] = {}
    for finding in outcome.findings:
        by_cause.setdefault(id(finding.cause.cause), []).append(finding)
    several = outcome.document is not None and len(outcome.document.runs) > 1
    under = _filed(outcome.causes)
    for at, cause in enumerate(outcome.causes):
        yield ""
        words = cause.evidence if cause.violations and cause.text.startswith(cause.evidence) else cause.text
        yield from wrapped(f"{cause.number}. {cause.charge}: {words}", "", "   ")
        for finding in by_cause.get(id(cause), ()):
            yield from _violation(finding.violation, several=several, mark="known" if finding.known else "")
        if outcome.replay is not None and outcome.replay.numbers:
            yield from wrapped(f"Numbers: {outcome.replay.numbers[at]}", "   ", "     ")
        for number, count in under[id(cause)].items():
            yield f"   also {count:,} of the violations under {number}"
    loose = by_cause.get(id(None), []) if outcome.causes or outcome.findings else []
    bare = report.violations if not outcome.findings else [finding.violation for finding in loose]
    if bare or report.warnings:
        yield ""
    for v in bare:
        yield from _violation(v, several=several)
    alike: dict[tuple[Any, ...], list[Violation]] = {}  # programs that are alike have the same warnings
    for v in report.warnings:
        alike.setdefault((v.kind, v.run if several else None, v.message), []).append(v)
    for same in alike.values():
        times = f", {len(same)} times" if len(same) > 1 else ""
        yield from _violation(same[0], several=several, mark=f"warning{times}")
    if report.count > len(report.violations):
        yield f"  {report.count - len(report.violations)} more are not listed (--limit)"


def _filed(causes: Sequence[Cause]) -> Mapping[int, Mapping[int, int]]:
    """Return, for each cause, the number of another cause -> how many of its violations are listed
    under that one.
    """
    from allocsim.cure.defects import key_of  # noqa: PLC0415 - a clean outcome does not wait for it
    from allocsim.verdict.causes import causes_by_violation  # noqa: PLC0415 - as above

    listed = causes_by_violation(causes)
    return {
        id(cause): Counter(other.number for v in cause.violations if (other := listed[key_of(v)]) is not cause)
        for cause in causes
    }


def _violation(v: Violation, *, several: bool, mark: str = "") -> Iterator[str]:
    run = f" in run {v.run}" if several and v.run is not None else ""
    yield from wrapped(f"{v.kind}{f' ({mark})' if mark else ''}{run}: {v.message}", "   ", "     ")


def _listed(letters: Sequence[str]) -> str:
    return letters[0] if len(letters) == 1 else f"{', '.join(letters[:-1])} and {letters[-1]}"


def wrapped(text: str, first: str = "", other: str = "") -> list[str]:
    """Return one paragraph as lines of at most `WIDTH` columns; only a longer word exceeds them."""
    joined = re.sub(r"(?<=\d) (?=(?:[KMGTP]i)?B\b)", "\N{NO-BREAK SPACE}", one_line(text))
    lines = textwrap.wrap(
        joined, WIDTH, initial_indent=first, subsequent_indent=other, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [first]


__all__ = [
    "WIDTH",
    "cause_lines",
    "examined_lines",
    "first_place",
    "headline",
    "known_by_cause",
    "lines_of",
    "mended",
    "price",
    "wrapped",
]
