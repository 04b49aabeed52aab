"""`allocsim trace EVENTS -o OUT`: what a caching allocator gave out, as a document that can be
judged.

EVENTS is a file of JSON lines, an event each (`allocsim.programs.allocator_trace`); `-` reads
standard input.

What this module does not see: what events mean.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim.cli.output import print_line, show_path
from allocsim.document import write
from allocsim.errors import DocumentError, ModelError
from allocsim.files.gate import content, stream_content
from allocsim.model import Document
from allocsim.programs.allocator_trace import trace as document_of


def trace(
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="JSON lines, an event each; - reads standard input.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="OUT", help="The document to write.")],
) -> int:
    """A trace of a caching allocator with its streams becomes a document.

    Allocsim check judges it.
    """
    document = read(events)
    write(document, out)
    print_line(f"wrote {show_path(out)}: {document!r}")
    return 0


def read(events: str) -> Document:
    """Return the document of a file of events, `-` for standard input.

    Raises DocumentError, with the line, where it is none.
    """
    source = "standard input" if events == "-" else events
    numbers: list[int] = []
    try:
        return document_of(_events(_bytes(events, source), source, numbers), name=Path(events).stem or "trace")
    except ModelError as error:
        raise _placed(error, source, numbers) from None


def _bytes(events: str, source: str) -> bytes:
    return stream_content(sys.stdin.buffer, source) if events == "-" else content(events)


def _events(data: bytes, source: str, numbers: list[int]) -> Iterator[Any]:
    """Yield the events; `numbers` gets the line of each."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        numbers.append(number)
        try:
            yield json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise DocumentError(source, f"line {number}", "is not UTF-8") from None
        except (ValueError, RecursionError) as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
            raise DocumentError(source, f"line {number}", f"is not JSON: {said}") from None


def _placed(error: ModelError, source: str, numbers: list[int]) -> DocumentError:
    """Return the error with the line in place of the event's number."""
    event, _, rest = error.place.partition("]")
    if not event.startswith("events["):
        return DocumentError(source, error.place, error.rule)
    return DocumentError(source, f"line {numbers[int(event.removeprefix('events['))]}{rest}", error.rule)
