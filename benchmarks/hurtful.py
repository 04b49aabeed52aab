"""The commands on documents made to hurt: each must come to an end, with a verdict or with one line.

    python benchmarks/hurtful.py [--size N] [--case NAME,...] [--command NAME,...] [--seconds S] [--out FILE]

Every document of `tests/hurtful.py` is written to a file, and every command is run on it as a user runs it: a process of its own, of which CPU seconds, the most
memory and the exit status are recorded. A row is `bad` where the process did not end within `--seconds` of wall time, ended by a signal or with another status
than 0, 1 or 2, or showed a traceback. Exit status 1 where one is. A document that is refused takes its place too: status 2, and the line.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Found, forked, run, took

import hurtful

from allocsim.document import write
from allocsim.verdict.evidence import Evidence, save

Row = dict[str, Any]

COMMANDS: dict[str, list[str]] = {
    "check": ["check", "{document}"],
    "check --explain": ["check", "--explain", "2", "--limit", "100", "{document}"],
    "check --sarif": ["check", "--sarif", "{folder}/out.sarif", "--junit", "{folder}/out.xml", "{document}"],
    "verdict": ["verdict", "{folder}/evidence"],
    "explain": ["explain", "{document}", "0"],
    "diff": ["diff", "{document}", "{document}"],
    "plot map": ["plot", "{document}", "--kind", "map", "-o", "{folder}/map.png"],
    "plot lifetimes": ["plot", "{document}", "--kind", "lifetimes", "-o", "{folder}/lifetimes.png"],
    "plot live": ["plot", "{document}", "--kind", "live", "-o", "{folder}/live.png"],
}
BUILDERS = {**{name: case.build for name, case in hurtful.CASES.items()}, "all at once": hurtful.all_at_once}


def measure(
    *,
    size: int = 1_000_000,
    case: tuple[str, ...] = tuple(BUILDERS),
    command: tuple[str, ...] = tuple(COMMANDS),
    seconds: float = 300.0,
) -> Iterator[Found]:
    """Run every command on every document."""
    rows: list[Row] = []
    for name in case:
        with tempfile.TemporaryDirectory() as folder:
            nbytes, _ = forked(lambda name=name, folder=folder: made(name, size, Path(folder)))
            for each in command:
                row = {"case": name, "size": size, "mebibytes": nbytes >> 20, "command": each}
                rows.append(row | became(COMMANDS[each], folder, seconds))
                print(rows[-1], flush=True)
        yield {"rows": rows, "bad": sum(row["bad"] for row in rows)}


def made(case: str, size: int, folder: Path) -> int:
    """Write a document, and the evidence a verdict is made from; return its bytes."""
    document = BUILDERS[case](size)
    write(document, folder / "document.json")
    save(Evidence(document=document), folder / "evidence")
    return (folder / "document.json").stat().st_size


def became(command: list[str], folder: str, seconds: float) -> Row:
    """Run one command and say what became of it."""
    words = [word.format(document=f"{folder}/document.json", folder=folder) for word in command]
    ran = took(sys.executable, "-m", "allocsim", *words, seconds=seconds)
    said = [line for text in (ran["err"], ran["out"]) for line in text.splitlines() if line.strip()]
    return {
        "seconds": round(ran["cpu"], 2),
        "most_mebibytes": ran["peak_mib"],
        "status": ran["status"],
        "bad": ran["status"] not in {0, 1, 2} or any("Traceback" in line for line in said),
        "said": said[0].strip().replace(f"{folder}/", "")[:160] if said else "",
    }


if __name__ == "__main__":
    run(measure, failed="bad", known={"case": BUILDERS, "command": COMMANDS})
