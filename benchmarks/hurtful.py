"""The commands on documents made to hurt: each must come to an end, with a verdict or with one line.

    python benchmarks/hurtful.py [--size N] [--case NAME...] [--command NAME...] [--seconds S] [--out FILE]

Every document of `tests/hurtful.py` is written to a file, and every command is run on it as a user runs it: a process of its own, of which CPU seconds, the most
memory and the exit status are recorded. A row is `bad` where the process did not end within `--seconds` of wall time, ended by a signal or with another status
than 0, 1 or 2, or showed a traceback. The exit status is how many are. A document that is refused takes its place too: status 2, and the line.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # this checkout, installed or not

import hurtful  # noqa: E402 - after the path above

from allocsim.document import write  # noqa: E402
from allocsim.verdict.evidence import Evidence, save  # noqa: E402

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


def main() -> int:
    """Run every command on every document, print, write; return how many rows are bad."""
    parser = argparse.ArgumentParser(description="The commands on documents made to hurt.")
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--case", nargs="*", choices=list(BUILDERS), default=list(BUILDERS))
    parser.add_argument("--command", nargs="*", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "hurtful.json")
    options, _ = parser.parse_known_args()
    rows: list[Row] = []
    for case in options.case:
        with tempfile.TemporaryDirectory() as folder:
            size = made(case, options.size, Path(folder))
            for command in options.command:
                row = {"case": case, "size": options.size, "mebibytes": size, "command": command}
                rows.append(row | run(COMMANDS[command], Path(folder), options.seconds))
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        temporary = options.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        temporary.replace(options.out)
    return sum(row["bad"] for row in rows)


def made(case: str, size: int, folder: Path) -> int:
    """Write a document, and the evidence a verdict is made from, in a process that gives its memory back; return the mebibytes it has."""
    child = os.fork()
    if not child:
        document = BUILDERS[case](size)
        write(document, folder / "document.json")
        save(Evidence(document=document), folder / "evidence")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert not status
    return (folder / "document.json").stat().st_size >> 20


def run(command: list[str], folder: Path, seconds: float) -> Row:
    """Run one command and say what became of it."""
    words = [word.format(document=folder / "document.json", folder=folder) for word in command]
    out, err = folder / "out.txt", folder / "err.txt"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "allocsim", *words],
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        until, ended = time.monotonic() + seconds, 0
        while not ended and time.monotonic() < until:
            time.sleep(0.02)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not ended:
            process.send_signal(signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    said = [line for path in (err, out) for line in path.read_text(errors="replace").splitlines() if line.strip()]
    shown = said[0].strip().replace(f"{folder}/", "")[:160] if said else ""
    return {
        "seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "most_mebibytes": usage.ru_maxrss >> 10,
        "status": code,
        "bad": not ended or code not in {0, 1, 2} or any("Traceback" in line for line in said),
        "said": shown,
    }


if __name__ == "__main__":
    sys.exit(main())
