"""Every call that writes, every moment, every fault: what is left is the old state or the new one, and foreign files are whole.

    python benchmarks/every_write.py [--command NAME ...] [--cases N] [--out FILE]

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

import argparse
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parent / "tests")]

from hostile import KINDS, _llama  # noqa: E402 - after the paths above
from kills import CASE, COMMANDS, Killed, _below, _bytes, _cut, command, draw_once, run  # noqa: E402 - after the paths above

from allocsim.files import MARK, write_atomic  # noqa: E402
from allocsim.files.folders import SWAP  # noqa: E402
from allocsim.systems.ggml.access.library import find  # noqa: E402
from engine.models import adapters, llama, model_files  # noqa: E402
from reports.serving.static_files import PYODIDE  # noqa: E402

CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "chmod")
KEPT = 20
"""Cases after which the table is written."""
ORDER = "shuffled, faults in turns"
FAULTS = ("KILL", "INT", "TERM", "ENOSPC", "EIO", "second process")
NOTES = {
    "out/notes.txt": b"mine",
    "out/figures/mine.png": b"mine too",
    **{f"{folder}/notes": b"mine" for folder in "cordegklnuv"},
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
    for number, one in enumerate(sites):
        found.setdefault(one, []).append(number)
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
                real_write, file_write = file.write, [0]

                class Half:
                    """A journal's file of which half a line is written."""

                    def __enter__(self) -> Self:
                        return self

                    def __exit__(self, *_: object) -> None:
                        file.close()

                    def __getattr__(self, name: str) -> Any:
                        return getattr(file, name)

                    def write(self, data: Any) -> int:
                        file_write[0] += 1
                        if file_write[0] == 1:
                            real_write(data[: len(data) // 2])
                            fault()
                            return len(data) // 2
                        return int(real_write(data))

                return Half()
        return true_open(self, mode, *more, **named)

    for name in CALLS:
        setattr(os, name, counted(name))
    Path.write_bytes, Path.open = write_bytes, opened  # type: ignore[method-assign]

    def taken_away() -> None:
        for name in CALLS:
            setattr(os, name, real[name])
        Path.write_bytes, Path.open = true_write, true_open  # type: ignore[method-assign]

    _taken_away.append(taken_away)


ROOT = HERE.parent


def _one(*words: str, made: str) -> Killed:
    """Return a command that writes one file; OUT stands for it."""
    return Killed(lambda folder: [word.replace("OUT", str(folder / made)) for word in words], _bytes(made), _cut(made))


CLEARS_FIRST = """import numpy as np
def add(x, y, out):
    out[:] = 0
    np.add(x, y, out)
KERNELS = {"add": {"call": add, "in_place": [[0, 0]], "dtypes": "f32"}}
"""


def _folder(*words: str, made: str) -> Killed:
    """Return a command that writes files of one folder, in which the user has some; OUT stands for it, IN for `_inputs`."""

    def arguments(folder: Path) -> list[str]:
        return [word.replace("OUT", str(folder / made)).replace("IN", _inputs().name) for word in words]

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
    "convert": _one("convert", str(CASE), "OUT", made="d.json"),
    "check --certificate": _one("check", str(CASE), "--certificate", "OUT", made="claims.txt"),
    "check --junit": _one("check", str(CASE), "--junit", "OUT", made="junit.xml"),
    "check --sarif": _one("check", str(CASE), "--sarif", "OUT", made="sarif.json"),
    "check --findings": _one("check", str(CASE), "--findings", "OUT", made="causes.csv"),
    "capture dumper": _one("capture", "dumper", "-o", "OUT", made="dump.c"),
    "generate": _folder("generate", "IN/m", "--tokens", "1,2", "--length", "2", "--out", "OUT", made="g"),
    "merge": _folder("merge", "IN/m", "IN/a", "--out", "OUT", made="n"),
    "serve": _folder("serve", "--pyodide", "IN/p", "-o", "OUT", made="v"),
    "record --documents": _folder("record", "ggml", "--log", "IN/log", "--documents", "OUT", made="d"),
    "record --object": _folder("record", "ggml", "--object", "OUT", made="o"),
    "audit": _folder("audit", "clears_first:KERNELS", "--layouts", "over", "--out", "OUT", made="u"),
    "fuzz ggml": _folder("fuzz", "ggml", "--examples", "1", "--no-shrink", "--json", "--corpus", "OUT", made="k"),
    "trace": Killed(_trace, _bytes("trace.json"), _cut("trace.json")),
    "plot": _one("plot", str(CASE), "-o", "OUT", made="map.svg"),
    "bisect": Killed(lambda folder: ["bisect", str(CASE), "-o", str(folder / "s"), "--json"], _below("s"), _cut("s")),
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
        number = getattr(errno, which)

        def fail() -> None:
            raise OSError(number, os.strerror(number))

        return fail
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
        if (
            not path.is_file()
            or MARK in path.name
            or SWAP in path.parts
            or path.suffix in (".jsonl", ".toml", ".safetensors")
        ):
            continue  # what waits, what grows and what goes from step to step is compared once the command was run again
        new = (whole / name).read_bytes() if (whole / name).exists() else None
        if (
            path.read_bytes() not in (before.get(name), new)
            and not (new or b"").startswith(path.read_bytes())
            and "findings" not in name
        ):
            return f"neither old nor new: {name}"
    gone = [
        name
        for name in before
        if name not in NOTES and not (folder / name).exists() and not (folder / "out" / SWAP).exists()
    ]
    return f"gone: {gone}" if gone and any((whole / name).exists() for name in gone) else ""


def problem(killed: Killed, folder: Path, measure: dict[str, Any], status: int, said: str) -> str:
    """Run the command again; return what is not as it ought to be."""
    if status == 70 or "Traceback" in said:
        return f"exit status {status}: {said[-300:]}"
    again, said, _ = run(killed.arguments(folder))
    if again not in (0, 1) and ONCE not in said:
        return f"again, exit status {again}: {said[-200:]}"
    found = killed.measured(folder)
    if found != measure:
        return f"other bytes in {[key for key in {**measure, **found} if found.get(key) != measure.get(key)]}"
    left = [path.name for path in folder.rglob("*") if MARK in path.name or path.name == SWAP]
    return f"left {left}" if left else ""


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
        known = {
            "calls": len(names),
            "sites": len({*sites}),
            "calls_chosen": len(taken),
            "moments_and_faults": len(cases),
        }
        if (
            before is None
            or any(before.get(key) != value for key, value in known.items())
            or before.get("order") != ORDER
        ):
            before = {}
        done, wrong = Counter[str](before.get("by_fault", {})), list(before.get("lost_ones", ()))
        for number, (moment, which) in list(enumerate(cases[:most]))[done.total() :]:
            there = laid(folder, name)
            arguments = killed.arguments(folder)
            status, said, _ = run(arguments, fault=lambda m=moment, w=which, a=arguments: shim(m, fault_of(w, a)))
            found = lost(folder, there, whole) or problem(killed, folder, measure, status, said)
            done[which] += 1
            if found:
                behind = bool(moment % 2)
                wrong.append(
                    {
                        "call": moment // 2,
                        "of": names[moment // 2],
                        "behind": behind,
                        "fault": which,
                        "says": found[:300],
                    }
                )
            if number + 1 in {min(most, len(cases)), *range(0, most, KEPT)}:
                yield {
                    "command": name, "order": ORDER, **known, "by_call": dict(Counter(names)),
                    "tried": done.total(), "by_fault": dict(sorted(done.items())), "lost": len(wrong), "lost_ones": wrong,
                }  # fmt: skip


def _in_turns(cases: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return moments with their faults, one of each fault after the other, in the order given."""
    rows = ([case for case in cases if case[1] == which] for which in FAULTS)
    return [case for turn in zip_longest(*rows) for case in turn if case is not None]


def main() -> int:
    """Try all commands, print and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Every call that writes, every moment, every fault.")
    parser.add_argument("--command", action="append", choices=list(ALL))
    parser.add_argument("--cases", type=int, default=1 << 20, help="how many of each command; those of the table count")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "every_write.json")
    options = parser.parse_args()
    out = options.out.absolute()
    draw_once()
    rows = {row["command"]: row for row in json.loads(out.read_text())["commands"]} if out.exists() else {}
    for name in options.command or list(ALL):
        with contextlib.chdir(tempfile.gettempdir()):
            for row in tried(name, options.cases, rows.get(name)):
                rows[name] = row
                listed = {"commands": [rows[each] for each in ALL if each in rows]}
                write_atomic(out, json.dumps(listed, indent=1).encode() + b"\n")
        row = rows[name]
        print(
            f"{name:20s} calls {row['calls']:4d}  cases {row['moments_and_faults']:5d}  tried {row['tried']:5d}  lost {row['lost']}",
            flush=True,
        )
        for one in row["lost_ones"][:5]:
            print(f"    {one}", flush=True)
    return int(any(row["lost"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
