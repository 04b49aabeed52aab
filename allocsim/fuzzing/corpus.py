"""The corpus: a folder with the findings and the progress of a campaign, to resume it from.

    DIR/findings/<key>.json     a finding for each cause, the smallest so far: a native document
    DIR/journal.jsonl           a line for the campaign, then one for each chunk that is done, with the `count` of cases it was asked for;
                                of two lines for one chunk the later one holds

Files of findings appear whole or not at all, and one that is no finding is refused; the last line
of the journal, cut short by a crash, is taken off, and its chunk done again. A chunk is
deterministic, so nothing is lost by that and nothing counted twice. A journal that is not as it was
written (`allocsim.files.journal`), or whose counts cannot be, is refused.

A corpus belongs to one target and one source of cases with one seed. Opened with another it is
refused, since its chunks would not be what it says.

What this module does not see: what a finding means.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta

from allocsim.document import dumps, read
from allocsim.errors import AllocsimError, OutputError
from allocsim.files import write_atomic
from allocsim.files.journal import Journal
from allocsim.fuzzing.broken_property import BrokenProperty

JOURNAL: Final = "journal.jsonl"
FINDINGS: Final = "findings"

AHEAD: Final = 1 << 16
"""A chunk's number is at most that of lines and this: no campaign has more of them under way."""

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Mask = Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")]


class ChunkRow(TypedDict, total=False):
    """A line of the journal: a chunk that is done, and its tally (`Tally.as_json`)."""

    chunk: Count
    count: Count
    programs: Count
    questions: Count
    plans: Count
    refusals: Count
    executed: Count
    judged: dict[str, Count]
    broken: dict[str, Count]
    features: dict[Mask, Count]
    pairs: dict[Mask, Count]
    told: dict[str, Count]
    sizes: dict[str, Count]
    arcs: dict[str, Count]
    noted: dict[str, Count]
    microseconds: dict[str, Count]


class Corpus:
    """The folder of one campaign."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Open or make the folder.

        Raises OutputError where it cannot be written, is another campaign's, or is not as it was
        written.
        """
        self.folder = folder
        try:
            (folder / FINDINGS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror or error}") from None
        self._journal: Journal[ChunkRow] = Journal(
            folder / JOURNAL, {"campaign": dict(identity)}, ChunkRow, what="campaign"
        )
        most = len(self._journal.rows) + AHEAD
        for number, row in enumerate(self._journal.rows, 2):
            _check(row, f"{folder / JOURNAL}: line {number}", most)
        self.done: dict[int, Mapping[str, Any]] = {row["chunk"]: row for row in self._journal.rows}
        """What the journal says of each chunk that is done."""

    def note(self, chunk: int, record: Mapping[str, Any]) -> None:
        """Say that a chunk is done. Raises OutputError."""
        self._journal.add({"chunk": chunk, **record})
        self.done[chunk] = {"chunk": chunk, **record}

    def findings(self) -> dict[str, BrokenProperty]:
        """Return what is kept, by key. Raises OutputError for a file that is no finding."""
        found: dict[str, BrokenProperty] = {}
        for path in sorted((self.folder / FINDINGS).glob("*.json")):
            finding = _read(path)
            if finding is None or finding.key != path.stem:
                raise OutputError(f"{path} is damaged: it is not the finding it is called by")
            found[finding.key] = finding
        return found


def _check(row: ChunkRow, source: str, most: int) -> None:
    """Raise OutputError for a line whose numbers no campaign can have written."""
    if "chunk" not in row or "count" not in row:
        raise OutputError(f"{source}: is no line of a chunk; name another folder")
    if row["chunk"] > most:
        raise OutputError(
            f"{source}: chunk {row['chunk']} cannot be done, with {most - AHEAD} lines; name another folder"
        )
    programs = row.get("programs", 0)
    for name, number in (("programs", programs), *row.get("judged", {}).items()):
        limit = row["count"] if name == "programs" else programs
        if number > limit:
            raise OutputError(f"{source}: counts {number} {name} of {limit}; name another folder")


def keep_in(folder: Path, finding: BrokenProperty) -> None:
    """Write a finding unless one as good is there. Raises OutputError."""
    path = folder / FINDINGS / f"{finding.key}.json"
    known = _read(path)
    if known is None or finding.better_than(known):
        write_atomic(path, dumps(finding.as_document()))


def _read(path: Path) -> BrokenProperty | None:
    try:
        return BrokenProperty.of(read(path))
    except (AllocsimError, OSError):
        return None
