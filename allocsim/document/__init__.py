"""Read and write the native document: a JSON file with programs, problems, plans and a session.

    document = read("plan.json")          # allocsim.model.Document, or DocumentError with the exact place
    write(document, "copy.json")          # atomically; reading it back gives equal columns

Reading never runs code, and checks every number. A fault is reported in one line that names file,
place and rule: `plan.json: programs[0].ops[17].operands[1]: value 99 does not exist; there are 42`.
Writing omits defaults, puts one row on each line and produces the same bytes for the same document.
A document is written as version 2 only if the document uses a feature that version 1 does not have.

    rows      the objects of the file as types; the schema is generated from them
    decoding  bytes -> rows: JSON, types, bounds, repeated keys, depth
    reader    rows -> model: columns and defaults
    writer    model -> bytes
    versions  the features of version 2 that version 1 does not have

This package does not read other formats (`allocsim.systems`), and does not check whether a plan is
sound (`allocsim.judge`).
"""

import re
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from allocsim.allowances import metered
from allocsim.collector import paused
from allocsim.document.decoding import MAX_BYTES, MAX_DEPTH, parse
from allocsim.document.reader import document_from
from allocsim.document.writer import encode
from allocsim.errors import DocumentError, ModelError
from allocsim.files import write_atomic
from allocsim.files.gate import content
from allocsim.model import Document

__all__ = ["MAX_BYTES", "MAX_DEPTH", "dumps", "loads", "may_begin", "read", "schema", "write"]

BLANKS: Final = 1 << 16
"""A file that begins with this many blanks is not a document; the rest is not read."""

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@metered
def loads(data: bytes | str, source: str = "document") -> Document:
    """Return the document in `data` (UTF-8 JSON); `source` is the document's name in errors.

    O(size). Raises DocumentError, with place and rule, if `data` is not a well-formed document.
    """
    try:
        with paused():  # no garbage collection: rows form no cycles
            return document_from(parse(data.encode() if isinstance(data, str) else data, source))
    except DocumentError:
        raise
    except ModelError as error:
        raise DocumentError(source, error.place, error.rule) from None


def read(path: str | Path) -> Document:
    """Return the document in a file.

    Raises DocumentError as `loads` does, and if the file cannot be read.
    """
    return loads(content(path, begins=may_begin), str(path))


def may_begin(head: bytes) -> bool:
    """Return whether a document may begin with `head`, a file's first bytes (at most 64 KiB)."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return first == b"{" or (not first and len(head) < BLANKS)


def dumps(document: Document) -> bytes:
    """Return the document as UTF-8 JSON without defaults; equal documents give equal bytes.

    Raises OutputError if a `meta` cannot be written as JSON.
    """
    return encode(document)


def write(document: Document, path: str | Path) -> None:
    """Write the document to a file atomically: the file is complete or unchanged.

    Raises OutputError if the file cannot be written.
    """
    write_atomic(path, dumps(document))


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a document; `allocsim/schema.json` holds the same."""
    import msgspec  # noqa: PLC0415  # imported here, since only the schema needs it

    from allocsim.document.rows import PUBLIC_NAMES, DocumentRow, PairRow  # noqa: PLC0415  # as above

    _, defs = msgspec.json.schema_components([DocumentRow], ref_template="#/$defs/{name}")
    text = msgspec.json.encode(defs).decode()
    for row, name in PUBLIC_NAMES.items():
        text = re.sub(rf'(?<=["/]){row.__name__}(?=")', name, text)
    definitions = msgspec.json.decode(text)
    for row in definitions.values():  # before Python 3.13, docstrings keep their indentation
        row["description"] = cleandoc(row["description"])
    pair = definitions.pop(PairRow.__name__)
    definitions["Op"]["properties"]["in_place"]["anyOf"][0]["items"] = {
        key: pair[key] for key in pair if key != "title"
    }
    root = definitions.pop("Document")
    return {"$schema": SCHEMA_DIALECT, **root, "title": "allocsim document, versions 1 and 2", "$defs": definitions}
