"""What each version of ggml gets wrong: pairs of op and source, races, and ops that break their contract, in one table.

    python benchmarks/ggml_versions.py LIBRARY... [--page docs/ggml.md] [--out FILE]
    python benchmarks/ggml_versions.py --page docs/ggml.md    # the table again, of what was measured

LIBRARY is a wheel (a file, which is unpacked and not installed), `before`, `after`, or what `allocsim audit --ggml` takes. Each is a column, by its version; what is
refused is kept with the reason; a wheel that is not there, or is none, is misuse: a line, exit status 2, and nothing is measured. The table goes where the page has the lines `<!-- versions -->` and `<!-- end of versions -->`.
"""

import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from harness import RESULTS, Found, kept, run

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.child import Child
from allocsim.systems.ggml.access.library import WHEELS
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.k_audit.guarded_audit import audit_guarded
from allocsim.systems.ggml.k_audit.library_audit import audit

DOES: Final = {
    "Overrun": "writes outside its result",
    "OperandWritten": "writes an operand",
    "ResultUnwritten": "leaves bytes of its result",
    "UndeclaredRead": "reads outside its operands",
    "OldRead": "reads what lay in its result",
    "Threads": "depends on the number of threads",
    "Hang": "does not end",
    "Crash": "ends the process",
}
"""Kind of misdeed (`allocsim.systems.ggml.k_audit.guarded_kernels`) -> what the table says an op does."""

MARKS: Final = re.compile(r"(?<=<!-- versions -->\n)(.*?)(?=<!-- end of versions -->)", re.DOTALL)


def measure(*libraries: str, page: str = "", out: Path = RESULTS / "ggml_versions.json") -> Iterator[Found]:
    """Audit each library; yield the columns so far. Raises EngineError before that for a wheel that cannot be unpacked."""
    for library in libraries:
        if library.endswith(".whl") and not zipfile.is_zipfile(library):
            raise EngineError(f"{library}: no such wheel" if not Path(library).exists() else f"{library}: is no wheel")
    found: Found = {key: dict(kept(out).get(key, {})) for key in ("columns", "refused")}
    for library in libraries:
        wheel = wheel_of(library)
        for of_before in found.values():
            of_before.pop(wheel, None)
        try:
            found["columns"][wheel] = column(library)
            found["columns"] = dict(sorted(found["columns"].items(), key=lambda item: number(item[1]["ggml"])))
        except EngineError as error:
            found["refused"][wheel] = re.sub(r"'/\S+'", "", str(error)).replace("  ", " ")
        print(wheel, found["columns"].get(wheel, found["refused"].get(wheel)), flush=True)
        yield found
    if page:
        text = Path(page).read_text(encoding="utf-8")
        Path(page).write_text(MARKS.sub(lambda _: "\n".join(["", *table(found["columns"]), "", ""]), text))
    yield found


def number(text: str) -> tuple[int, ...]:
    """Return a version as what sorts."""
    return tuple(map(int, re.findall(r"\d+", text)))


def wheel_of(library: str) -> str:
    """Return the wheel of a library as `name version`; its path where it comes from none."""
    if library in WHEELS:
        return f"{WHEELS[library][0]} {version(WHEELS[library][0])}"
    return " ".join(Path(library).name.split("-")[:2]) if library.endswith(".whl") else library


def column(library: str) -> dict[str, Any]:
    """Return what one library shows."""
    with TemporaryDirectory(prefix="allocsim.") as folder:
        if library.endswith(".whl"):
            with zipfile.ZipFile(library) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if ".so" in name])
        with open_library(folder if library.endswith(".whl") else library) as child:
            return measured(child)


def measured(child: Child) -> dict[str, Any]:
    """Return the pairs of a library that are wrong, those that are safe, the ops that break their contract, and all that ran."""
    pairs, contracts = audit(child, threads=(1, 2)), audit_guarded(child, threads=(4,)).rows
    wrong = {f"{row['op']} over source {row['source']}": fault(row) for row in pairs.unsafe}
    return {
        "ggml": pairs.version,
        "pairs": wrong,
        "safe": sorted({f"{row['op']} over source {row['source']}" for row in pairs.rows} - {*wrong}),
        "contracts": {
            f"{row.op} {DOES[kind]}": f"{count} of {row.forms} forms"
            for row in contracts
            for kind, (count, *_) in row.misdeeds.items()
        },
        "ran": [row.op for row in contracts],
    }


def fault(row: dict[str, Any]) -> str:
    """Return how a pair is wrong: with one thread, by a race of several, or both."""
    raced = f"races at {row['races_at']} threads"
    return raced if row["threads"] == row["races_at"] else f"unsafe, {raced}" if row["races_at"] else "unsafe"


def table(columns: dict[str, dict[str, Any]]) -> list[str]:
    """Return the columns in lines of Markdown: a row for each pair and each misdeed that one of them shows."""
    rows = [
        ["ggml", *(one["ggml"] for one in columns.values())],
        ["---"] * (len(columns) + 1),
        ["wheel", *columns],
    ]
    for kind, right, known, absent in (("pairs", "safe", "safe", "not in place"), ("contracts", "no", "ran", "no op")):
        for what in sorted({what for one in columns.values() for what in one[kind]}):
            name = what if kind == "pairs" else what.split(" ")[0]
            cells = [one[kind].get(what, right if name in one[known] else absent) for one in columns.values()]
            rows.append([what, *cells])
    return [f"| {' | '.join(cells)} |" for cells in rows]


if __name__ == "__main__":
    run(measure)
