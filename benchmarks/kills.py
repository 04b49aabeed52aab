"""Commands stopped while they write.

    python benchmarks/kills.py kills [--count N] [--seed S] [--command NAME,...] [--again] [--out FILE]
    python benchmarks/kills.py every_write [--command NAME,...] [--cases N] [--out FILE]

`kills`: commands killed at random moments, and with disks that fail: resumed to the same bits, or refused in one line, nothing half written. Each command is
run once to its end; what it leaves is the measure. Then, N times: it is begun in a fresh folder in a fork and killed (SIGKILL) after a random part of that
time, every second time on a disk whose fsync says EIO from a random call on; beside these, write says ENOSPC, or the process is killed between the rename and
the sync of the folder (`WAYS`). What is there then is read: a file is whole or not there, one that grows is the beginning of the whole. The command is run
again, as often as it is refused for what the first one left, going on where it can, and what it leaves is compared with the measure byte by byte; entries
that say how long something took are left out. Temporary files must be gone at the end. Exit status 1 where anything is otherwise. The commands are small, so
that many moments can be tried, and write all that such a command writes: six epochs of training with a checkpoint after each; a scenario's whole report; a
campaign of twelve programs in two chunks against a planner held to a promise that it does not give, whose finding is kept, reduced, drawn and made a test; a
replay's journal; a graph captured from ggml with its evidence; a page of a document of some ops with all its pictures. A moment is a part of the time in
which the machine let the command run or it waited for a disk or a process of its own (`ran`), so that a busy machine moves no moment behind the end. Pictures
are drawn once, before the forks, which write them: how they are drawn is not what is killed here, and most moments fall where files are written. What was
tried is written every `KEPT_TIMES` times; a command that was tried less than N times goes on from there, with `--again` it begins anew.

`every_write`: every call that writes, every moment, every fault: what is left is the old state or the new one, and foreign files are whole. The commands are
those of `kills` and the others that write (`MORE`; `ELSEWHERE` names those that write through the same call of the library as one that is
tried). Each is run once undisturbed in a fork, under a shim that lists its calls of open, mkdir, rename, replace, unlink, rmdir, fsync, chmod and write. Then
for each call, before it and behind it (of a write: after half of it), and for each fault of `FAULTS`, it is begun in a fresh folder and stopped there: by
KILL, INT or TERM, by an error ENOSPC or EIO of that call, or by a second process that runs the same command to its end in the middle. A folder of results
holds files of the user and, where a report is replaced, an old report. What is left is read: each file has its old bytes, its new ones, or waits beside them;
the user's files have theirs. Then the command is run again, and what it leaves is compared byte by byte with what it leaves undisturbed. A command that comes
to one *site* many times (the same call in the same stack of our functions, for a file of the same role: each checkpoint of a training) is stopped at the
first, the second and the last of them. These pairs of moment and fault are tried in one shuffled order in which the faults take turns, the first N of them,
and a command of which less were tried goes on from there; the table says how many calls, sites and pairs there are and how many were tried. Exit status 1
where one is lost. SQLite's tests of crashes and of errors of the disk are the model (https://sqlite.org/testing.html).
"""

import contextlib
import errno
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, Self

from harness import HERE, ROOT, Found, grown, kept, run_one_of

from hostile import KINDS, TOML, _llama
from safetensors import SafetensorError, safe_open

from allocsim import files
from allocsim.cli import main as command
from allocsim.document import dumps, read
from allocsim.errors import AllocsimError
from allocsim.files import MARK
from allocsim.files.folders import SWAP
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.model import Document
from allocsim.systems.ggml.access.library import find
from engine.models import adapters, llama, model_files
from engine.training.checkpoint import DIGEST
from reports.serving.static_files import PYODIDE

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
CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "chmod")
KEPT_TIMES = 10
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
    arguments: list[str], *, after: float | None = None, fault: Callable[[], object] | None = None
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


def shim(due: Callable[[str, object, int, bool], bool], fault: Callable[[], None]) -> Callable[[], None]:
    """Have a fault happen at calls of this process that write; return what takes it away again.

    Each call is asked for before it and behind it (of a write: after half of it), by its name, what it is of, its number among all, and whether it is behind.
    """
    numbers = count()
    real = {name: getattr(os, name) for name in CALLS}
    true_write, true_open = Path.write_bytes, Path.open

    def begin(name: str, of: object) -> int:
        number = next(numbers)
        if due(name, of, number, False):
            fault()
        return number

    def counted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not (arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                return real[name](*arguments, **options)
            of = arguments[0] if arguments else None
            number = begin(name, of)
            answer = real[name](*arguments, **options)
            if due(name, of, number, True):
                fault()
            return answer

        return call

    def write_bytes(self: Path, data: bytes) -> int:
        if due("write", self, begin("write", self), True):
            true_write(self, data[: len(data) // 2])
            fault()
        return true_write(self, data)

    def opened(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if mode != "ab":  # as a journal grows
            return true_open(self, mode, *more, **named)
        number = begin("append", self)
        return Half(true_open(self, mode, *more, **named), lambda: due("append", self, number, True), fault)

    for name in CALLS:
        setattr(os, name, counted(name))
    Path.write_bytes, Path.open = write_bytes, opened  # type: ignore[method-assign]

    def taken_away() -> None:
        for name in CALLS:
            setattr(os, name, real[name])
        Path.write_bytes, Path.open = true_write, true_open  # type: ignore[method-assign]

    return taken_away


def fault_on(way: str, generator: random.Random) -> Callable[[], object] | None:
    """Return what makes a disk fail at a random call, and at such calls behind it; None where nothing of it does."""
    left = [generator.randrange(1, 12)]

    def due(name: str, _: object, __: int, behind: bool) -> bool:  # noqa: FBT001 - as `shim` asks
        if (name, behind) not in DISKS[way]:
            return False
        left[0] -= 1
        return left[0] <= 0

    return partial(shim, due, FALLS[way]) if way in DISKS else None


DISKS = {
    KILL_AND_SYNC: {("fsync", False)},
    SPACE: {("write", True), ("append", True)},
    RENAME: {("replace", True)},
}
"""Way -> calls at which a disk fails: name, and whether behind it."""
FALLS = {
    KILL_AND_SYNC: failing(errno.EIO),
    SPACE: failing(errno.ENOSPC),
    RENAME: lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def tried_at_random(name: str, count: int, seed: int, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
        kills = killed.measured(whole)
        for number in range(before.get("tried", 0), count):
            generator = random.Random(f"{name} {seed} {number}")  # noqa: S311 - moments, no secrets
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            way = WAYS[number % len(WAYS)]
            after = generator.uniform(0, seconds) if way in (KILL, KILL_AND_SYNC) else None
            first, said, _ = run(killed.arguments(folder), after=after, fault=fault_on(way, generator))
            ways[way]["ended before" if first in (0, 1) else "killed" if first < 0 else "refused"] += 1
            odd = first not in (0, 1) and first >= 0 and (first != 2 or said.count("\n") != 1)
            problem = f"exit status {first}: {said}" if odd else ""
            problem = killed.half(folder, whole) or problem or resumed(killed, folder, kills)
            if problem:
                wrong.append({"number": number, "way": way, "says": problem[:300]})
            if number + 1 in {count, *range(0, count, KEPT_TIMES)}:
                at_random = sum(sum(ways[way].values()) for way in (KILL, KILL_AND_SYNC))
                row = {"command": name, "tried": number + 1, "at_random_moments": at_random}
                row |= {"seconds": round(seconds, 3), "ways": ways}
                yield {**row, "wrong": len(wrong), "wrong_ones": wrong}


def resumed(killed: Killed, folder: Path, kills: dict[str, Any], *, but: str | None = None, swap: str = "") -> str:
    """Run the command again; return what is not as it ought to be, empty where all is. It may be refused with a line that has `but`."""
    status, said, _ = run(killed.arguments(folder))
    if status not in (0, 1) and (but is None or but not in said):
        return f"again, exit status {status}: {said[-200:]}"
    found = killed.measured(folder)
    if found != kills:
        return f"other bytes in {[key for key in {**kills, **found} if found.get(key) != kills.get(key)]}"
    left = [path.name for path in folder.rglob("*") if MARK in path.name or path.name == swap]
    return f"left {left}" if left else ""


def kills(
    *, count: int = 240, seed: int = 1, command: tuple[str, ...] = tuple(COMMANDS), again: bool = False, out: Path
) -> Iterator[Found]:
    """Kill all commands."""
    assert files.LOCKS, "without locks nothing is swept"
    draw_once()
    os.chdir(tempfile.gettempdir())  # some commands write where they are
    found = kept(out)
    goes_on = not again and found.get("seed", seed) == seed
    before = {row["command"]: row for row in found.get("commands", ()) if goes_on and "ways" in row}
    rows = (row for name in command for row in tried_at_random(name, count, seed, before.get(name, {})))
    told = {"under": "commands", "by": "command", "out": out, "order": COMMANDS, "seed": seed}
    return grown(rows, **told, wrong=lambda rows: sum(row["wrong"] for row in rows))


KEPT = 20
"""Cases after which the table is written."""
ORDER = "shuffled, faults in turns"
FAULTS = ("KILL", "INT", "TERM", "ENOSPC", "EIO", "second process")
NOTES = {
    "out/notes.txt": b"mine",
    "out/figures/mine.png": b"mine too",
    **{f"{one}/notes": b"mine" for one in "cordegklnuv"},
}
ONCE = " already; --out takes another folder"
"""What `merge` says of a folder in which all is."""
OLD_REPORT = {"out/report.json": b"{}\n", "out/report.md": b"old\n", "out/figures/loss.png": b"old\n"}


def laid(folder: Path, name: str) -> dict[str, bytes]:
    """Make a folder with files of the user, and an old report where one is replaced; return them."""
    shutil.rmtree(folder, ignore_errors=True)
    there = {**NOTES, **(OLD_REPORT if name == "repro" else {})}
    for place, data in there.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(data)
    return there


def site(name: str, of: object) -> str:
    """Return what is equal for calls that do the same: the call, what kind of file it is of, and the functions of ours that led to it."""
    path = Path(f"/proc/self/fd/{of}").readlink() if isinstance(of, int) else Path(str(of))
    begin, mark, _ = path.name.partition(MARK)
    role = re.sub(r"[0-9a-f]{8,}|\d+", "#", f"{begin}{MARK}{path.suffix}" if mark else path.name)
    places, frame = [], sys._getframe(2)  # noqa: SLF001 - `inspect.stack` reads every source
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if Path(code.co_filename).is_relative_to(ROOT) and not Path(code.co_filename).is_relative_to(HERE):
            places.append(code.co_qualname)
    return f"{name} {role} {' '.join(places)}"


def chosen(sites: Sequence[str]) -> list[int]:
    """Return the calls that are tried: of each site the first, the second and the last."""
    found: dict[str, list[int]] = {}
    for number, each in enumerate(sites):
        found.setdefault(each, []).append(number)
    return sorted({number for numbers in found.values() for number in (*numbers[:2], numbers[-1])})


def at_moment(moment: int, fault: Callable[[], None], told: Path | None = None) -> None:
    """Count the calls of this process; call `fault` once, at moment 2k before call k, at 2k + 1 behind it. Write each call's name into `told`."""
    log = None if told is None else os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    left = {moment}

    def due(name: str, of: object, number: int, behind: bool) -> bool:  # noqa: FBT001 - as `shim` asks
        if log is not None and not behind:
            os.write(log, f"{name}\t{site(name, of)}\n".encode())
        now = 2 * number + behind in left
        left.discard(2 * number + behind)
        return now

    _taken_away.append(shim(due, fault))


CLEARS_FIRST = """import numpy as np
def add(x, y, out):
    out[:] = 0
    np.add(x, y, out)
KERNELS = {"add": {"call": add, "in_place": [[0, 0]], "dtypes": "f32"}}
"""


def _folder(text: str, *, made: str) -> Killed:
    """Return a command that writes files of one folder, in which the user has some; OUT stands for it, IN for `_inputs`."""

    def arguments(folder: Path) -> list[str]:
        return [word.replace("OUT", str(folder / made)).replace("IN", _inputs().name) for word in text.split()]

    return Killed(arguments, _below(made), _cut(made))


@lru_cache(maxsize=1)
def _inputs() -> tempfile.TemporaryDirectory[str]:
    """Make once what is read: a llama `m`, its adapters `a`, a kernel that clears its result and then reads, the log of a program that calls ggml, and `p` for Pyodide."""
    made = tempfile.TemporaryDirectory()
    place, (config, weights) = Path(made.name), _llama()
    drawn = {**llama.init_parameters(config, seed=4), **weights}
    (place / "clears_first.py").write_text(CLEARS_FIRST)
    sys.path.append(made.name)
    for folder, made_of in (
        ("m", model_files.files(config, weights)),
        ("a", adapters.files(config, drawn)),
        ("p", dict.fromkeys(PYODIDE, b"no program")),
    ):
        (place / folder).mkdir()
        for name, data in made_of.items():
            (place / folder / name).write_bytes(data)
    host = [str(ROOT / "tests" / "data" / "ggml_host" / "ctypes_host.py"), str(find("before")), "wrong", "named"]
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
        assert command(["record", "ggml", "-o", str(place / "log"), "--", sys.executable, *host]) == 1
    return made


def _trace(folder: Path) -> list[str]:
    return ["trace", str(KINDS["allocator events"].make(folder)), "-o", str(folder / "trace.json")]


MORE = {
    "convert": one("convert CASE OUT", made="d.json"),
    "check --certificate": one("check CASE --certificate OUT", made="claims.txt"),
    "check --junit": one("check CASE --junit OUT", made="junit.xml"),
    "check --sarif": one("check CASE --sarif OUT", made="sarif.json"),
    "check --findings": one("check CASE --findings OUT", made="causes.csv"),
    "capture dumper": one("capture dumper -o OUT", made="dump.c"),
    "generate": _folder("generate IN/m --tokens 1,2 --length 2 --out OUT", made="g"),
    "merge": _folder("merge IN/m IN/a --out OUT", made="n"),
    "serve": _folder("serve --pyodide IN/p -o OUT", made="v"),
    "record --documents": _folder("record ggml --log IN/log --documents OUT", made="d"),
    "record --object": _folder("record ggml --object OUT", made="o"),
    "audit": _folder("audit clears_first:KERNELS --layouts over --out OUT", made="u"),
    "fuzz ggml": _folder("fuzz ggml --examples 1 --no-shrink --json --corpus OUT", made="k"),
    "trace": Killed(_trace, _bytes("trace.json"), _cut("trace.json")),
    "plot": one("plot CASE -o OUT", made="map.svg"),
    "bisect": Killed(words("bisect CASE -o IN/s --json"), _below("s"), _cut("s")),
}
"""Commands that write and are not in `COMMANDS`."""
ELSEWHERE = {
    **dict.fromkeys(
        ("compare --plot", "capture ggml --plot", "repro show --plot", "repro run --plot", "audit --picture"),
        "as `plot`",
    ),
    "repro gallery --out": "one page, as `report`",
    "diagnose --out": "the folder of a report, as `repro`; so does `repro run` of several scenarios",
    "fuzz --online": "a folder for each finding, as `serve`",
    "record ggml --out": "the log grows in the recorded program, and is read up to its last whole line",
    "join --out": "one document, as `convert`",
    "record malloc --out": "the same; cut to its length by a rename, as `convert` writes",
    "check --format github": "a line is added to the file of the job, which is not ours alone",
}
"""What writes and is not tried here -> how, and which command that is tried does the same."""
ALL = {**COMMANDS, **MORE}
_taken_away: list[Callable[[], None]] = []
"""Of this process: what takes its shim away."""


def fault_of(which: str, arguments: list[str]) -> Callable[[], None]:
    """Return what happens at the moment."""
    if which in ("ENOSPC", "EIO"):
        return failing(getattr(errno, which))
    if which == "second process":

        def second() -> None:
            child = os.fork()
            if child == 0:
                _taken_away[-1]()
                status = 70
                try:
                    status = command(arguments)
                finally:
                    os._exit(status)
            os.waitpid(child, 0)

        return second
    return lambda: os.kill(os.getpid(), getattr(signal, f"SIG{which}"))


def lost(folder: Path, before: dict[str, bytes], whole: Path) -> str:
    """Return what is neither old nor new, empty where nothing is."""
    for place, mine in NOTES.items():
        if not (folder / place).exists() or (folder / place).read_bytes() != mine:
            return f"a file of the user is lost: {place}"
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        grows = path.suffix in (".jsonl", ".toml", ".safetensors")
        if not path.is_file() or MARK in path.name or SWAP in path.parts or grows:
            continue  # what waits, what grows and what goes from step to step is compared once the command was run again
        new = (whole / name).read_bytes() if (whole / name).exists() else None
        begun = (new or b"").startswith(path.read_bytes()) or "findings" in name
        if path.read_bytes() not in (before.get(name), new) and not begun:
            return f"neither old nor new: {name}"
    swapped = (folder / "out" / SWAP).exists()
    gone = [name for name in before if name not in NOTES and not (folder / name).exists() and not swapped]
    return f"gone: {gone}" if gone and any((whole / name).exists() for name in gone) else ""


def tried(name: str, most: int, before: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the row of one command, after each `KEPT` cases and at the end; go on from an earlier row of the same calls."""
    killed = ALL[name]
    with tempfile.TemporaryDirectory() as base:
        whole, first, folder = (Path(base) / part for part in ("whole", "first", "w"))
        for place in (first, whole):
            laid(place, name)
        with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
            command(killed.arguments(first))
        calls = Path(base) / "calls"
        status, said, _ = run(killed.arguments(whole), fault=lambda: at_moment(-1, lambda: None, calls))
        assert status in (0, 1), said
        told = [line.split("\t") for line in calls.read_text().splitlines()]
        every_write, names, sites = killed.measured(whole), [row[0] for row in told], [row[1] for row in told]
        taken = chosen(sites)
        cases = [(moment, which) for call in taken for moment in (2 * call, 2 * call + 1) for which in FAULTS]
        random.Random(f"{name} {len(cases)}").shuffle(cases)  # noqa: S311 - an order, no secret
        cases = _in_turns(cases)
        known = {"calls": len(names), "sites": len({*sites}), "calls_chosen": len(taken)}
        known |= {"moments_and_faults": len(cases)}
        like = {**known, "order": ORDER}
        before = before if before is not None and {key: before.get(key) for key in like} == like else {}
        done, wrong = Counter[str](before.get("by_fault", {})), list(before.get("lost_ones", ()))
        for number, (moment, which) in list(enumerate(cases[:most]))[done.total() :]:
            there = laid(folder, name)
            arguments = killed.arguments(folder)
            status, said, _ = run(arguments, fault=lambda m=moment, w=which, a=arguments: at_moment(m, fault_of(w, a)))
            fell = f"exit status {status}: {said[-300:]}" if status == 70 or "Traceback" in said else ""
            again = partial(resumed, killed, folder, every_write, but=ONCE, swap=SWAP)
            found = lost(folder, there, whole) or fell or again()
            done[which] += 1
            if found:
                about = {"call": moment // 2, "of": names[moment // 2], "behind": bool(moment % 2), "fault": which}
                wrong.append({**about, "says": found[:300]})
            if number + 1 in {min(most, len(cases)), *range(0, most, KEPT)}:
                yield {
                    "command": name, "order": ORDER, **known, "by_call": dict(Counter(names)),
                    "tried": done.total(), "by_fault": dict(sorted(done.items())), "lost": len(wrong), "lost_ones": wrong,
                }  # fmt: skip


def _in_turns(cases: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return moments with their faults, one of each fault after the other, in the order given."""
    rows = ([case for case in cases if case[1] == which] for which in FAULTS)
    return [case for turn in zip_longest(*rows) for case in turn if case is not None]


def every_write(*, command: tuple[str, ...] = tuple(ALL), cases: int = 1 << 20, out: Path) -> Iterator[Found]:
    """Try so many cases of each command; those of the table count."""
    draw_once()
    os.chdir(tempfile.gettempdir())  # some commands write where they are
    before = {row["command"]: row for row in kept(out).get("commands", ())}
    rows = (row for name in command for row in tried(name, cases, before.get(name)))
    told = {"under": "commands", "by": "command", "out": out, "order": ALL}
    return grown(rows, **told, lost=lambda rows: sum(row["lost"] for row in rows))


if __name__ == "__main__":
    run_one_of(
        kills, every_write, failed={"kills": "wrong", "every_write": "lost"}, known={"every_write": {"command": ALL}}
    )
