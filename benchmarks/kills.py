"""Commands killed at random moments, and with disks that fail: resumed to the same bits, or refused in one line, nothing half written.

    python benchmarks/kills.py [--count N] [--seed S] [--command NAME ...] [--again] [--out FILE]

Each command is run once to its end; what it leaves is the measure. Then, N times: it is begun in a fresh folder in a fork and killed (SIGKILL) after a
random part of that time, or its disk fails at a random call (fsync says EIO; write says ENOSPC; the process is killed between the rename and the
sync of the folder). What is there then is read: a file is whole or not there. The command is run again, as often as it is refused for what the first one
left, going on where it can, and what it leaves is compared with the measure byte by byte; entries that say how long something took are left out.
Temporary files must be gone at the end. Exit status 1 where anything is otherwise.

What was tried is written every `KEPT` times; a command that was tried less than N times goes on from there, with `--again` it begins anew.
"""

import argparse
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from hostile import TOML  # noqa: E402 - after the paths above
from safetensors import safe_open  # noqa: E402

from allocsim import files  # noqa: E402
from allocsim.cli import main as command  # noqa: E402
from allocsim.files import MARK, write_atomic  # noqa: E402
from engine.training.checkpoint import DIGEST  # noqa: E402

CASE = ROOT / "tests" / "data" / "cases" / "missed-reader-with-calls.json"
LONG = TOML.replace("epochs = 1", "epochs = 6\nsave_every = 1").replace("points = 20", "points = 60")


@dataclass(frozen=True)
class Killed:
    """A command that is killed."""

    arguments: Callable[[Path], list[str]]
    """Of a folder; a second call in the same folder goes on."""
    measured: Callable[[Path], dict[str, Any]]
    """What it leaves, without times."""


def _train(folder: Path) -> list[str]:
    out = folder / "out"
    (folder / "t.toml").write_text(LONG)
    resume = ["--resume"] if (out / "checkpoint.safetensors").exists() else []
    return ["train", str(folder / "t.toml"), "--out", str(out), "--json", *resume]


def _trained(folder: Path) -> dict[str, Any]:
    """Weights, losses, and the digest over all of the checkpoint: the order of its metadata is the writer's whim."""
    with safe_open(folder / "out" / "checkpoint.safetensors", framework="numpy") as file:
        digest = file.metadata()[DIGEST]
    return {"checkpoint": digest, **_bytes("out/weights.safetensors", "out/losses.csv")(folder)}


def _bytes(*names: str) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {name: (folder / name).read_bytes().hex() for name in names}


def _campaign(folder: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in (folder / "c" / "journal.jsonl").read_text().splitlines()[1:]]
    kept = {path.name: path.read_text() for path in sorted((folder / "c" / "findings").glob("*.json"))}
    timeless = {"microseconds", "digest", "noted"}
    return {
        "rows": {row["chunk"]: {k: v for k, v in row.items() if k not in timeless} for row in rows},
        "findings": kept,
    }


COMMANDS = {
    "train": Killed(_train, _trained),
    "fuzz": Killed(
        lambda folder: [
            "fuzz",
            "linear_scan",
            "--examples",
            "20",
            "--seed",
            "3",
            "--corpus",
            str(folder / "c"),
            "--json",
        ],
        _campaign,
    ),
    "replay": Killed(lambda folder: ["replay", str(CASE), "-o", str(folder / "r"), "--json"], _bytes("r/replay.jsonl")),
    "report": Killed(lambda folder: ["report", str(CASE), "-o", str(folder / "x.html")], _bytes("x.html")),
    "plan": Killed(
        lambda folder: ["plan", str(CASE), "--allocator", "ggml", "-o", str(folder / "p.json")], _bytes("p.json")
    ),
    "repro": Killed(
        lambda folder: ["repro", "run", "match-cast", "--out", str(folder / "out")],
        _bytes("out/report.json", "out/report.md", "out/evidence.json", "out/session.json", "out/figures/map.png"),
    ),
    "check": Killed(lambda folder: ["check", str(CASE), "--write-baseline", str(folder / "b.json")], _bytes("b.json")),
}

ENDS = ("ended before", "killed", "refused")
"""What became of a command."""

KEPT = 10
"""Times between two writings of the table."""

WAYS = ("kill", "kill", "fsync fails", "no space", "between rename and sync")


def run(
    arguments: list[str], *, after: float | None = None, fault: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run a command in a fork, killed after some seconds; return its exit status (below 0: the signal), and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        process = os.fork()
        if process == 0:
            status = 70
            try:
                os.dup2(said.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                if fault is not None:
                    fault()
                status = command(arguments)
                sys.stderr.flush()
            finally:
                os._exit(status)
        until = None if after is None else time.monotonic() + after
        while True:
            done, status = os.waitpid(process, 0 if until is None else os.WNOHANG)
            if done:
                break
            if until is not None and time.monotonic() >= until:
                os.kill(process, signal.SIGKILL)
                until = None
            else:
                time.sleep(0.0005)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


class _Full:
    """A file that is written at its end, on a disk that is full at some time."""

    def __init__(self, file: Any, spent: Callable[[], bool]) -> None:
        self._file, self._spent = file, spent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        """Write all, or half of it and fail."""
        if self._spent():
            self._file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self._file.write(data))


def fault_of(way: str, generator: random.Random) -> Callable[[], None] | None:
    """Return what makes a disk fail at a random call, None where nothing of it does."""
    left = [generator.randrange(1, 12)]

    def spent() -> bool:
        left[0] -= 1
        return left[0] <= 0

    if way == "fsync fails":
        true_sync = os.fsync

        def sync(handle: int) -> None:
            if spent():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            true_sync(handle)

        return lambda: setattr(os, "fsync", sync)
    if way == "no space":
        true_write, true_open = Path.write_bytes, Path.open

        def write(self: Path, data: bytes) -> int:
            if spent():
                true_write(self, data[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return true_write(self, data)

        def opened(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
            file = true_open(self, mode, *more, **named)
            return _Full(file, spent) if mode == "ab" else file  # as a journal grows

        def fill() -> None:
            Path.write_bytes, Path.open = write, opened  # type: ignore[method-assign]

        return fill
    if way == "between rename and sync":
        true_replace = Path.replace

        def replace(self: Path, target: Path) -> Path:
            moved = true_replace(self, target)
            if spent():
                os.kill(os.getpid(), signal.SIGKILL)
            return moved

        return lambda: setattr(Path, "replace", replace)
    return None


def tried(name: str, count: int, seed: int, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Kill one command `count` times, those of an earlier row among them; yield its row, as it grows."""
    killed, counts, wrong = (
        COMMANDS[name],
        Counter({way: before.get(way, 0) for way in ENDS}),
        before.get("wrong_ones", []),
    )
    with tempfile.TemporaryDirectory() as base:
        whole = Path(base) / "whole"
        whole.mkdir()
        with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
            command(killed.arguments(whole))  # what it loads and compiles, forks need not
        shutil.rmtree(whole)
        whole.mkdir()
        begun = time.monotonic()
        status, said = run(killed.arguments(whole))
        seconds = time.monotonic() - begun
        assert status in (0, 1), said
        measure = killed.measured(whole)
        for number in range(counts.total(), count):
            generator = random.Random(f"{name} {seed} {number}")  # noqa: S311 - moments, no secrets
            folder = Path(base) / "w"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            way = WAYS[number % len(WAYS)]
            after = generator.uniform(0, seconds) if way == "kill" else None
            first, said = run(killed.arguments(folder), after=after, fault=fault_of(way, generator))
            counts["ended before" if first in (0, 1) else "killed" if first < 0 else "refused"] += 1
            problem = _problem(killed, folder, measure, first, said)
            if problem:
                wrong.append({"number": number, "way": way, "says": problem[:300]})
            if counts.total() in {count, *range(0, count, KEPT)}:
                yield {
                    "command": name,
                    "tried": counts.total(),
                    "seconds": round(seconds, 3),
                    **counts,
                    "wrong": len(wrong),
                    "wrong_ones": wrong,
                }


def _problem(killed: Killed, folder: Path, measure: dict[str, Any], first: int, said: str) -> str:
    """Run the command again; return what is not as it ought to be, empty where all is."""
    if first not in (0, 1) and first >= 0 and (first != 2 or said.count("\n") != 1):
        return f"exit status {first}: {said}"
    second, said = run(killed.arguments(folder))
    if second not in (0, 1):
        return f"again, exit status {second}: {said}"
    found = killed.measured(folder)
    if found != measure:
        return f"other bytes in {[key for key in measure if found.get(key) != measure[key]]}"
    left = [path.name for path in folder.rglob("*") if MARK in path.name]
    return f"left {left}" if left else ""


def main() -> int:
    """Kill all commands, print and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Commands killed at random moments.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", action="append", choices=list(COMMANDS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kills.json")
    options = parser.parse_args()
    out = options.out.absolute()
    assert files.LOCKS, "without locks nothing is swept"
    kept = json.loads(out.read_text()) if out.exists() else {"seed": options.seed, "commands": []}
    rows = {row["command"]: row for row in kept["commands"]}
    for name in options.command or list(COMMANDS):
        goes_on = not options.again and kept["seed"] == options.seed
        with contextlib.chdir(tempfile.gettempdir()):
            for row in tried(name, options.count, options.seed, rows.get(name, {}) if goes_on else {}):
                rows[name] = row
                table = {"seed": options.seed, "commands": [rows[name] for name in COMMANDS if name in rows]}
                write_atomic(out, json.dumps(table, indent=1).encode() + b"\n")
        print(json.dumps(rows[name]), flush=True)
    return int(any(row["wrong"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
