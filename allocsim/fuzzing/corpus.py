"""The corpus: a folder with the findings and the progress of a campaign, to resume it from.

    DIR/findings/<key>.json     a finding for each cause, the smallest so far: a native document
    DIR/journal.jsonl           a line for the campaign, then one for each chunk that is done, with the `count` of cases it was asked for;
                                of two lines for one chunk the later one holds

Files of findings appear whole or not at all; a line of the journal that was cut short by a crash is
passed over, and its chunk done again. A chunk is deterministic, so nothing is lost by that and
nothing counted twice.

A corpus belongs to one target and one source of cases with one seed. Opened with another it is
refused, since its chunks would not be what it says.

What this module does not see: what a finding means.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from allocsim.document import dumps, read
from allocsim.errors import AllocsimError, ModelError, OutputError
from allocsim.files import write_atomic
from allocsim.fuzzing.broken_property import BrokenProperty

JOURNAL: Final = "journal.jsonl"
FINDINGS: Final = "findings"


class Corpus:
    """The folder of one campaign."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Open or make the folder.

        Raises OutputError where it cannot be written, ModelError where it is another campaign's.
        """
        self.folder = folder
        self.done: dict[int, dict[str, Any]] = {}
        """What the journal says of each chunk that is done."""
        try:
            (folder / FINDINGS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror or error}") from None
        lines = list(self._lines())
        if not lines:
            write_atomic(folder / JOURNAL, json.dumps({"campaign": dict(identity)}).encode() + b"\n")
            return
        theirs = lines[0].get("campaign")
        if theirs != dict(identity):
            differs = [key for key in identity if not isinstance(theirs, dict) or theirs.get(key) != identity[key]]
            what = ", ".join(f"{key} {theirs.get(key) if isinstance(theirs, dict) else None!r}" for key in differs)
            raise ModelError("", f"{folder} is the corpus of another campaign ({what}); use another folder")
        self.done = {line["chunk"]: line for line in lines[1:] if "chunk" in line}

    def keep(self, finding: BrokenProperty) -> bool:
        """Keep a finding as `keep_in` does."""
        return keep_in(self.folder, finding)

    def note(self, chunk: int, record: Mapping[str, Any]) -> None:
        """Say that a chunk is done. Raises OutputError."""
        line = json.dumps({"chunk": chunk, **record}).encode() + b"\n"
        try:
            with (self.folder / JOURNAL).open("ab") as journal:
                journal.write(line)
                journal.flush()
                os.fsync(journal.fileno())
        except OSError as error:
            raise OutputError(f"{self.folder / JOURNAL}: cannot be written: {error.strerror or error}") from None
        self.done[chunk] = {"chunk": chunk, **record}

    def findings(self) -> dict[str, BrokenProperty]:
        """Return what is kept, by key; files that are no findings are passed over."""
        found = (_read(path) for path in sorted((self.folder / FINDINGS).glob("*.json")))
        return {finding.key: finding for finding in found if finding is not None}

    def _lines(self) -> Iterator[dict[str, Any]]:
        path = self.folder / JOURNAL
        if not path.exists():
            return
        for line in path.read_bytes().split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def keep_in(folder: Path, finding: BrokenProperty) -> bool:
    """Write a finding unless one as good is there already; return whether it was written.

    Raises OutputError.
    """
    path = folder / FINDINGS / f"{finding.key}.json"
    known = _read(path)
    if known is not None and not finding.better_than(known):
        return False
    write_atomic(path, dumps(finding.as_document()))
    return True


def _read(path: Path) -> BrokenProperty | None:
    try:
        return BrokenProperty.of(read(path))
    except (AllocsimError, OSError):
        return None


__all__ = ["Corpus", "keep_in"]
