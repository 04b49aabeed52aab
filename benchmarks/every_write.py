"""Every call that writes, every moment, every fault: what is left is the old state or the new one, and foreign files are whole.

    python benchmarks/every_write.py [--command NAME,...] [--cases N] [--out FILE]

The commands are those of `benchmarks/kills.py` and the others that write (`MORE`; `ELSEWHERE` names those that write through the same call of the library as
one that is tried). Each is run once undisturbed in a fork, under a shim that lists its calls of open, mkdir, rename, replace,
unlink, rmdir, fsync, chmod and write. Then for each call, before it and behind it (of a write: after half of it), and for each fault of `FAULTS`, it is begun
in a fresh folder and stopped there: by KILL, INT or TERM, by an error ENOSPC or EIO of that call, or by a second process that runs the same command to its
end in the middle. A folder of results holds files of the user and, where a report is replaced, an old report. What is left is read: each file has its old bytes, its new
ones, or waits beside them; the user's files have theirs. Then the command is run again, and what it leaves is compared byte by byte with what it leaves
undisturbed. A command that comes to one *site* many times (the same call in the same stack of our functions, for a file of the same role: each checkpoint of a
training) is stopped at the first, the second and the last of them. These pairs of moment and fault are tried in one shuffled order in which the faults take turns, the first N of them, and a
command of which less were tried goes on from there; the table says how many calls, sites and pairs there are and how many were tried. Exit status 1 where one is
lost.

SQLite's tests of crashes and of errors of the disk are the model (https://sqlite.org/testing.html).
"""

import contextlib
import errno
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import harness
from harness import HERE, ROOT, Found

from hostile import KINDS, _llama
from kills import COMMANDS, Half, Killed, _below, _bytes, _cut, command, draw_once, failing, one, resumed, run, words

from allocsim.files import MARK
from allocsim.files.folders import SWAP
from allocsim.systems.ggml.access.library import find
from engine.models import adapters, llama, model_files
from reports.serving.static_files import PYODIDE

CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "chmod")
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


def shim(moment: int, fault: Callable[[], None], told: Path | None = None) -> None:
    """Count the calls of this process; call `fault` at moment 2k before call k, at 2k + 1 behind it. Write each call's name into `told`."""
    count = [0]
    real = {name: getattr(os, name) for name in CALLS}
    true_write, true_open = Path.write_bytes, Path.open
    log = None if told is None else os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def begin(name: str, of: object) -> int:
        number, count[0] = count[0], count[0] + 1
        if log is not None:
            os.write(log, f"{name}\t{site(name, of)}\n".encode())
        if moment == 2 * number:
            fault()
        return number

    def counted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not (arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                return real[name](*arguments, **options)
            number = begin(name, arguments[0] if arguments else None)
            answer = real[name](*arguments, **options)
            if moment == 2 * number + 1:
                fault()
            return answer

        return call

    def write_bytes(self: Path, data: bytes) -> int:
        number = begin("write", self)
        if moment == 2 * number + 1:
            true_write(self, data[: len(data) // 2])
            fault()
        return true_write(self, data)

    def opened(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if mode == "ab":
            number = begin("append", self)
            if moment == 2 * number + 1:
                file = true_open(self, mode, *more, **named)
                first = iter((True,))
                return Half(file, lambda: next(first, False), fault)
        return true_open(self, mode, *more, **named)

    for name in CALLS:
        setattr(os, name, counted(name))
    Path.write_bytes, Path.open = write_bytes, opened  # type: ignore[method-assign]

    def taken_away() -> None:
        for name in CALLS:
            setattr(os, name, real[name])
        Path.write_bytes, Path.open = true_write, true_open  # type: ignore[method-assign]

    _taken_away.append(taken_away)


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
    for folder, files in (
        ("m", model_files.files(config, weights)),
        ("a", adapters.files(config, drawn)),
        ("p", dict.fromkeys(PYODIDE, b"no program")),
    ):
        (place / folder).mkdir()
        for name, data in files.items():
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
"""Commands that write and are not in the table of `kills.py`."""

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
        status, said, _ = run(killed.arguments(whole), fault=lambda: shim(-1, lambda: None, calls))
        assert status in (0, 1), said
        told = [line.split("\t") for line in calls.read_text().splitlines()]
        measure, names, sites = killed.measured(whole), [row[0] for row in told], [row[1] for row in told]
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
            status, said, _ = run(arguments, fault=lambda m=moment, w=which, a=arguments: shim(m, fault_of(w, a)))
            fell = f"exit status {status}: {said[-300:]}" if status == 70 or "Traceback" in said else ""
            again = partial(resumed, killed, folder, measure, but=ONCE, swap=SWAP)
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


def measure(*, command: tuple[str, ...] = tuple(ALL), cases: int = 1 << 20, out: Path) -> Iterator[Found]:
    """Try so many cases of each command; those of the table count."""
    draw_once()
    os.chdir(tempfile.gettempdir())  # some commands write where they are
    rows = {row["command"]: row for row in harness.kept(out).get("commands", ())}
    for name in command:
        for row in tried(name, cases, rows.get(name)):
            rows[name] = row
            every = [rows[each] for each in ALL if each in rows]
            yield {"lost": sum(row["lost"] for row in every), "commands": every}
        told = {key: rows[name][key] for key in ("command", "calls", "moments_and_faults", "tried", "lost")}
        print(told, *rows[name]["lost_ones"][:5], sep="\n    ", flush=True)


if __name__ == "__main__":
    harness.run(measure, failed="lost", known={"command": ALL})
