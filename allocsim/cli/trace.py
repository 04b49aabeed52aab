"""`allocsim trace EVENTS [-o OUT]`: what an allocator gave out while a program ran, judged, or as a
document.

EVENTS is a file of JSON lines, an event each (`allocsim.programs.allocator_trace`); `-` reads
standard input. Without `-o` the recording is judged, however long it is; a last line that is not
whole (the program was killed) is left out, and that is said.

What this module does not see: what events mean.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import msgspec
import typer

from allocsim.cli.output import print_json, print_line, show_path
from allocsim.document import write
from allocsim.errors import DocumentError, ModelError
from allocsim.files.gate import INPUT, file_lines
from allocsim.model import Document
from allocsim.programs.allocator_trace import trace as document_of
from allocsim.recordings import JudgedRecording, judge

WIDTH = 80


def trace(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="JSON lines, an event each; - reads standard input.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="OUT", help="Write the document and judge nothing.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A recording of an allocator, with its streams and steps, is judged or becomes a document.

    Exit status 1 where something is wrong with it.

    Example: allocsim trace events.jsonl
    """
    if out is not None:
        document = read(events)
        write(document, out)
        print_line(f"wrote {show_path(out)}: {document!r}")
        return 0
    lines = _Lines(events, torn=True)
    try:
        judged = judge(lines)
    except ModelError as error:
        raise lines.placed(error) from None
    if not judged.events:
        raise DocumentError(lines.source, "", "holds no event")
    if lines.torn:
        judged.assumed["last lines, which are not whole, tell nothing"] += 1
    if as_json:
        print_json(record_of_recording(lines.source, judged))
    else:
        say_recording(lines.source, judged)
    return int(bool(judged.findings))


def read(events: str) -> Document:
    """Return the document of a file of events, `-` for standard input.

    Raises DocumentError, with the line, where it is none.
    """
    lines = _Lines(events)
    try:
        return document_of(lines, name=Path(events).stem or "trace")
    except ModelError as error:
        raise lines.placed(error) from None


class _Lines:
    """The events of a file, read once, a few thousand lines at a time."""

    def __init__(self, events: str, *, torn: bool = False) -> None:
        self.source = "standard input" if events == INPUT else events
        self.torn = False
        """Whether the last line was left out."""
        self._path = events
        self._may_be_torn = torn
        self._blank: list[list[int]] = []
        """First and last numbers of lines that follow each other and have no event."""

    def __iter__(self) -> Iterator[Any]:
        decode, number = msgspec.json.Decoder().decode, 0
        for lines in file_lines(self._path, self.source):
            if b"".join(lines).isspace():
                self._without(number + 1, number + len(lines))
                number += len(lines)
                continue
            for line in lines:
                number += 1
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    if not line.strip(b"\xef\xbb\xbf \t\r\n"):
                        self._without(number, number)
                    elif line[:3] == b"\xef\xbb\xbf":
                        yield self._decoded(line[3:], number)
                    elif self._may_be_torn and not line.endswith(b"\n"):
                        self.torn = True
                    else:
                        raise self._refused(number, error) from None

    def _without(self, first: int, last: int) -> None:
        if self._blank and self._blank[-1][1] == first - 1:
            self._blank[-1][1] = last
        else:
            self._blank.append([first, last])

    def _decoded(self, line: bytes, number: int) -> Any:
        try:
            return msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._refused(number, error) from None

    def _refused(self, number: int, error: Exception) -> DocumentError:
        if isinstance(error, UnicodeDecodeError) or "utf-8" in str(error).lower():
            return DocumentError(self.source, f"line {number}", "is not UTF-8")
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return DocumentError(self.source, f"line {number}", f"is not JSON: {said}")

    def placed(self, error: ModelError) -> DocumentError:
        """Return an error with the line in place of the event's number."""
        event, _, rest = error.place.partition("]")
        if not event.startswith("events["):
            return DocumentError(self.source, error.place, error.rule)
        line = int(event.removeprefix("events[")) + 1
        for first, last in self._blank:
            line += last - first + 1 if first <= line else 0
        return DocumentError(self.source, f"line {line}{rest}", error.rule)


def say_recording(source: str, judged: JudgedRecording, places: Sequence[str] = ()) -> None:
    """Print what the judge says of a recording; of each finding its place, where it has one of its
    own.
    """
    many = len(judged.findings)
    nothing = "nothing found in the windows that were judged, of" if judged.unjudged else "nothing found in"
    found = f"{many} finding{'s'[: many != 1]} in" if many else nothing
    print_line(f"{show_path(source)}: {found} {judged.events} events, {judged.ops} ops")
    for number, finding in enumerate(judged.findings, 1):
        place = places[number - 1] if places else f"event {finding.event}"
        where = f"{finding.places} places, first at" if finding.places > 1 else "at"
        print_line(f"{number}. {finding.class_} {finding.party}, {where} {place}")
        _print(finding.text, "   ")
        _print(f"cure: {finding.cure}", "   ")
    for text, count in judged.assumed.items():
        _print(f"assumed: {text} ({count})", "")
    if judged.unjudged:
        print_line(f"not judged: {judged.unjudged} more windows of events that may be wrong")


def _print(text: str, indent: str) -> None:
    for line in wrap(text, WIDTH, initial_indent=indent, subsequent_indent="   "):
        print_line(line)


def record_of_recording(source: str, judged: JudgedRecording) -> dict[str, Any]:
    """Return the same as data."""
    keys = ("class", "party", "text", "cure", "event", "places")
    return {
        "file": source,
        "events": judged.events,
        "ops": judged.ops,
        "windows": {"all": judged.windows, "judged": judged.judged, "not_judged": judged.unjudged},
        "assumed": judged.assumed,
        "findings": [dict(zip(keys, (*finding[:5], finding.places), strict=True)) for finding in judged.findings],
    }
