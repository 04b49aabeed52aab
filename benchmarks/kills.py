"""Commands killed at random moments, and with disks that fail: resumed to the same bits, or refused in one line, nothing half written.

    python benchmarks/kills.py [--count N] [--seed S] [--command NAME,...] [--again] [--out FILE]

Each command is run once to its end; what it leaves is the measure. Then, N times: it is begun in a fresh folder in a fork and killed (SIGKILL) after a
random part of that time, every second time on a disk whose fsync says EIO from a random call on; beside these, write says ENOSPC, or the process is killed
between the rename and the sync of the folder (`WAYS`). What is there then is read: a file is whole or not there, one that grows is the beginning of the
whole. The command is run again, as often as it is refused for what the first one left, going on where it can, and what it leaves is compared with the measure
byte by byte; entries that say how long something took are left out. Temporary files must be gone at the end. Exit status 1 where anything is otherwise.

The commands are small, so that many moments can be tried, and write all that such a command writes: six epochs of training with a checkpoint after each; a
scenario's whole report; a campaign of twelve programs in two chunks against a planner held to a promise that it does not give, whose finding is kept, reduced,
drawn and made a test; a replay's journal; a graph captured from ggml with its evidence; a page of a document of some ops with all its pictures.

A moment is a part of the time in which the machine let the command run or it waited for a disk or a process of its own (`ran`), so that a busy machine
moves no moment behind the end. Pictures are drawn once, before the forks, which write them: how they are drawn is not what is killed here, and most moments
fall where files are written.

What was tried is written every `KEPT` times; a command that was tried less than N times goes on from there, with `--again` it begins anew.
"""

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
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import harness
from harness import ROOT, Found

from hostile import TOML
from safetensors import SafetensorError, safe_open

from allocsim import files
from allocsim.cli import main as command
from allocsim.document import dumps, read
from allocsim.errors import AllocsimError
from allocsim.files import MARK
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.model import Document
from engine.training.checkpoint import DIGEST

CASE = ROOT / "tests" / "data" / "cases" / "missed-reader-with-calls.json"
LONG = TOML.replace("epochs = 1", "epochs = 6\nsave_every = 1").replace("points = 20", "points = 60")


@dataclass(frozen=True)
class Killed:
    """A command that is killed."""

    arguments: Callable[[Path], list[str]]
    """Of a folder; a second call in the same folder goes on."""
    measured: Callable[[Path], dict[str, Any]]
    """What it leaves, without times."""
    half: Callable[[Path, Path], str]
    """Of the folder of a killed one and of a whole one: what is half written there, empty where nothing is."""


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


def _half_trained(folder: Path, whole: Path) -> str:
    """Weights appear at the end; of the checkpoint of an earlier epoch all bytes are there, and losses are those of the whole so far."""
    out = folder / "out"
    if (out / "checkpoint.safetensors").exists():
        try:
            with safe_open(out / "checkpoint.safetensors", framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118 - it is no mapping
                    file.get_tensor(name)
        except SafetensorError as error:
            return f"checkpoint: {error}"
    return _cut("out/weights.safetensors")(folder, whole) or _cut(grows=("out/losses.csv",))(folder, whole)


def _bytes(*names: str) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {name: (folder / name).read_bytes().hex() for name in names}


def _below(*places: str) -> Callable[[Path], dict[str, Any]]:
    """All files in some folders."""

    def found(folder: Path) -> dict[str, Any]:
        paths = (path for place in places for path in sorted((folder / place).rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes().hex() for path in paths}

    return found


def _cut(*names: str, grows: tuple[str, ...] = ()) -> Callable[[Path, Path], str]:
    """Say which files are there and not whole: of those in the folders `names`, and of those that grow, which are to begin as the whole does."""

    def found(folder: Path, whole: Path) -> str:
        for name in names:
            paths = [folder / name, *(folder / name).rglob("*")]
            for path in (path for path in paths if path.is_file() and MARK not in path.name):
                ours = whole / path.relative_to(folder)
                if not ours.is_file() or path.read_bytes() != ours.read_bytes():
                    return f"half written: {path.relative_to(folder)}"
        for name in grows:
            if (folder / name).exists() and not (whole / name).read_bytes().startswith((folder / name).read_bytes()):
                return f"does not begin as the whole: {name}"
        return ""

    return found


def _campaign(folder: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in (folder / "c" / "journal.jsonl").read_text().splitlines()[1:]]
    timeless = {"microseconds", "digest", "noted"}
    rows = {row["chunk"]: {key: value for key, value in row.items() if key not in timeless} for row in rows}
    return {"rows": rows, "findings": _below("c/findings", "o")(folder)}


def _half_campaign(folder: Path, whole: Path) -> str:
    """Each line of the journal but the last, which may be cut, is a record, which says how long something took; a finding is one, reduced or not yet."""
    journal = folder / "c" / "journal.jsonl"
    try:
        for line in journal.read_text().split("\n")[:-1] if journal.exists() else ():
            json.loads(line)
    except ValueError as error:
        return f"journal: {error}"
    for path in (folder / "c" / "findings").glob("*.json"):
        try:
            assert BrokenProperty.of(read(path)).key == path.stem
        except (AllocsimError, AssertionError) as error:
            return f"finding: {error}"
    return _cut("o")(folder, whole)


def words(text: str) -> Callable[[Path], list[str]]:
    """Return the arguments of a command in a folder; IN stands for that, CASE for a document."""
    return lambda folder: [word.replace("IN", str(folder)).replace("CASE", str(CASE)) for word in text.split()]


def one(text: str, *, made: str) -> Killed:
    """Return a command that writes one file; OUT stands for it."""
    return Killed(words(text.replace("OUT", f"IN/{made}")), _bytes(made), _cut(made))


def _captured(folder: Path) -> dict[str, Any]:
    return {**_bytes("c.json")(folder), **_below("e")(folder)}


FUZZED = "fuzz buddy --guarantee no_worse --examples 12 --seed 3 --json --corpus IN/c --out IN/o"
CAPTURED = "capture ggml --layers 1 --graph forward -o IN/c.json --evidence IN/e"
COMMANDS = {
    "train": Killed(_train, _trained, _half_trained),
    "repro": Killed(words("repro run match-cast --out IN/out"), _below("out"), _cut("out")),
    "fuzz": Killed(words(FUZZED), _campaign, _half_campaign),
    "replay": Killed(words("replay CASE -o IN/r --json"), _bytes("r/replay.jsonl"), _cut(grows=("r/replay.jsonl",))),
    "capture": Killed(words(CAPTURED), _captured, _cut("c.json", "e")),
    "report": one("report CASE -o OUT", made="x.html"),
    "plan": one("plan CASE --allocator ggml -o OUT", made="p.json"),
    "check": one("check CASE --write-baseline OUT", made="b.json"),
}

KEPT = 10
"""Times between two writings of the table."""

KILL, KILL_AND_SYNC, SPACE, RENAME = "kill", "kill, fsync fails", "no space", "between rename and sync"
WAYS = (*(KILL, KILL_AND_SYNC) * 5, SPACE, RENAME)
"""In turn: ten of twelve are killed at a random moment."""

LOOK = 0.001
"""Seconds between two looks at how far a command is."""


def draw_once() -> None:
    """Draw each picture of a document the first time it is asked for; what asks again, forks among them, is given the same bytes."""
    style = import_module("reports.figures.style")
    kept: dict[tuple[str, str, bytes], bytes] = {}
    true_drawing, true_render = import_module("reports").drawing, style.render

    def drawing(kind: str, *of: Any, **options: Any) -> Callable[..., Any]:
        shown = dumps(of[0]) if isinstance(of[0], Document) else b""
        return lambda **more: (kind, shown, partial(true_drawing(kind, *of, **options), **more))

    def render(picture: Any, suffix: str, **more: Any) -> bytes:
        kind, shown, draw = picture
        if (kind, suffix, shown) not in kept:
            kept[kind, suffix, shown] = true_render(draw(), suffix, **more)
        return kept[kind, suffix, shown]

    for name in ("reports", "reports.folder"):
        import_module(name).drawing = drawing  # type: ignore[attr-defined]
    style.render = render


def ran(process: int, begun: float) -> float:
    """Return the seconds since `begun` in which a process was not waiting to be let run."""
    passed = time.monotonic() - begun
    try:
        return passed - int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return passed


def run(
    arguments: list[str], *, after: float | None = None, fault: Callable[[], None] | None = None
) -> tuple[int, str, float]:
    """Run a command in a fork, killed after it `ran` some seconds; return its exit status (below 0: the signal), what it said, how long it ran."""
    with tempfile.TemporaryFile("w+") as said:
        begun = time.monotonic()
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
        while after is not None and ran(process, begun) < after:
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(LOOK)
        if after is not None:
            os.kill(process, signal.SIGKILL)  # it is not waited for yet: if it ended before, this does nothing
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        seconds = ran(process, begun)
        status = os.waitpid(process, 0)[1]
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read(), seconds


class Half:
    """A file that is written at its end: at the write that is `due` half of it is written, and the fault comes."""

    def __init__(self, file: Any, due: Callable[[], bool], fault: Callable[[], None]) -> None:
        self._file, self._due, self._fault = file, due, fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        """Write all, or half of it."""
        if self._due():
            self._file.write(data[: len(data) // 2])
            self._fault()
            return len(data) // 2
        return int(self._file.write(data))


def failing(number: int) -> Callable[[], None]:
    """Return what raises an error of the disk."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def fault_of(way: str, generator: random.Random) -> Callable[[], None] | None:
    """Return what makes a disk fail at a random call, None where nothing of it does."""
    left = [generator.randrange(1, 12)]

    def spent() -> bool:
        left[0] -= 1
        return left[0] <= 0

    true_sync, true_write, true_open, true_replace = os.fsync, Path.write_bytes, Path.open, Path.replace
    full = failing(errno.ENOSPC)

    def sync(handle: int) -> None:
        failing(errno.EIO)() if spent() else true_sync(handle)

    def write(self: Path, data: bytes) -> int:
        if spent():
            true_write(self, data[: len(data) // 2])
            full()
        return true_write(self, data)

    def opened(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        file = true_open(self, mode, *more, **named)
        return Half(file, spent, full) if mode == "ab" else file  # as a journal grows

    def replace(self: Path, target: Path) -> Path:
        moved = true_replace(self, target)
        if spent():
            os.kill(os.getpid(), signal.SIGKILL)
        return moved

    changed: dict[str, list[tuple[Any, str, Any]]] = {
        KILL_AND_SYNC: [(os, "fsync", sync)],
        SPACE: [(Path, "write_bytes", write), (Path, "open", opened)],
        RENAME: [(Path, "replace", replace)],
    }

    def set_all() -> None:
        for changes in changed[way]:
            setattr(*changes)

    return set_all if way in changed else None


def tried(name: str, count: int, seed: int, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Kill one command `count` times, those of an earlier row among them; yield its row, as it grows."""
    killed, wrong = COMMANDS[name], before.get("wrong_ones", [])
    ways = {way: defaultdict(int, before.get("ways", {}).get(way, {})) for way in WAYS}
    with tempfile.TemporaryDirectory() as base:
        whole, first_one, folder = (Path(base) / part for part in ("whole", "first", "w"))
        first_one.mkdir()
        whole.mkdir()
        with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
            command(killed.arguments(first_one))  # what it loads, compiles and draws, forks need not
        status, said, seconds = run(killed.arguments(whole))
        assert status in (0, 1), said
        measure = killed.measured(whole)
        for number in range(before.get("tried", 0), count):
            generator = random.Random(f"{name} {seed} {number}")  # noqa: S311 - moments, no secrets
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            way = WAYS[number % len(WAYS)]
            after = generator.uniform(0, seconds) if way in (KILL, KILL_AND_SYNC) else None
            first, said, _ = run(killed.arguments(folder), after=after, fault=fault_of(way, generator))
            ways[way]["ended before" if first in (0, 1) else "killed" if first < 0 else "refused"] += 1
            odd = first not in (0, 1) and first >= 0 and (first != 2 or said.count("\n") != 1)
            problem = f"exit status {first}: {said}" if odd else ""
            problem = killed.half(folder, whole) or problem or resumed(killed, folder, measure)
            if problem:
                wrong.append({"number": number, "way": way, "says": problem[:300]})
            if number + 1 in {count, *range(0, count, KEPT)}:
                at_random = sum(sum(ways[way].values()) for way in (KILL, KILL_AND_SYNC))
                row = {"command": name, "tried": number + 1, "at_random_moments": at_random}
                row |= {"seconds": round(seconds, 3), "ways": ways}
                yield {**row, "wrong": len(wrong), "wrong_ones": wrong}


def resumed(killed: Killed, folder: Path, measure: dict[str, Any], *, but: str | None = None, swap: str = "") -> str:
    """Run the command again; return what is not as it ought to be, empty where all is. It may be refused with a line that has `but`."""
    status, said, _ = run(killed.arguments(folder))
    if status not in (0, 1) and (but is None or but not in said):
        return f"again, exit status {status}: {said[-200:]}"
    found = killed.measured(folder)
    if found != measure:
        return f"other bytes in {[key for key in {**measure, **found} if found.get(key) != measure.get(key)]}"
    left = [path.name for path in folder.rglob("*") if MARK in path.name or path.name == swap]
    return f"left {left}" if left else ""


def measure(
    *, count: int = 240, seed: int = 1, command: tuple[str, ...] = tuple(COMMANDS), again: bool = False, out: Path
) -> Iterator[Found]:
    """Kill all commands."""
    assert files.LOCKS, "without locks nothing is swept"
    draw_once()
    os.chdir(tempfile.gettempdir())  # some commands write where they are
    kept = harness.kept(out)
    goes_on = not again and kept.get("seed", seed) == seed
    rows = {row["command"]: row for row in kept.get("commands", ())}
    for name in command:
        before = rows.get(name, {}) if goes_on and "ways" in rows.get(name, {}) else {}
        for row in tried(name, count, seed, before):
            rows[name] = row
            every = [rows[name] for name in COMMANDS if name in rows]
            yield {"seed": seed, "wrong": sum(row["wrong"] for row in every), "commands": every}
        print(json.dumps(rows[name]), flush=True)


if __name__ == "__main__":
    harness.run(measure, failed="wrong")
