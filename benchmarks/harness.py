"""What every benchmark shares: its arguments, this checkout, turns and medians, children, and how results are written.

    from harness import cpu, run

    def measure(*, rounds: int = 5, seq: int = 64) -> Found:
        ...                                   # the measured part: returns figures, or yields them as they grow

    if __name__ == "__main__":
        run(measure, failed="missed")         # --rounds, --seq and --out; exit status 1 where found["missed"] is not empty

The arguments are those of the function: a word for each that has a default (None: a whole number), a place for each that has
none, any number of places for `*names`, `bool` a switch, `tuple` names joined by commas, or numbers by commas or colons. `--help` is the docstring of the script.
Results go to `results/SCRIPT.json`, or to the file of `--out`,
with the versions of what was measured: one line for each key, and one for each row of what has rows. What is yielded is written each
time, so that a run that is stopped keeps what it has.

What this module does not see: what is measured.
"""

import argparse
import inspect
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any, Final, TypeVar

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
DATA: Final = ROOT / "tests" / "data"
RESULTS: Final = HERE / "results"
PEERS: Final = os.environ.get("BENCH_PEERS", sys.executable)
"""The interpreter that has the peers."""

sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "laws")]  # this checkout, installed or not

from allocsim.errors import EngineError  # noqa: E402 - after the path above

MANY: Final = 8
"""Figures of one row, at most."""

TURNS: Final = 5_000_000
"""Of the loop that `loop_ns` measures."""

Found = dict[str, Any]
Made = TypeVar("Made")


def run(
    measure: Callable[..., Found | Iterator[Found]],
    *,
    failed: str | tuple[str, ...] = (),
    versions: tuple[str, ...] = (),
    known: Mapping[str, Iterable[str]] | None = None,
    called: str = "",
) -> None:
    """Measure with the arguments of the command line, write, print, and exit: 1 where a key of `failed` holds something,
    2 where what was asked for cannot be measured.

    Args:
        measure: returns what was found, or yields it as it grows; `out`, if it takes that, is the file of the results.
        failed: keys of the result that must be empty, 0 or False.
        versions: packages beside numpy whose versions belong to the figures.
        known: by parameter the names that it may hold; others cannot be measured.
        called: what the file of the results is called, where it is not the script: a format of the arguments.
    """
    found, asked = Found(), arguments(measure)
    script = Path(inspect.getfile(measure)).stem
    out = asked.pop("out") or RESULTS / f"{called.format(**asked) or script}.json"
    parameters = inspect.signature(measure).parameters
    found = kept(out) if "out" in parameters else found  # what a campaign says in which nothing is left to do
    several = [name for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL]
    places = [place for name in several for place in asked.pop(name)]
    for name, names in (known or {}).items():
        if odd := {*([asked[name]] if isinstance(asked[name], str) else asked[name])} - {*names}:
            print(f"--{name}: no {', '.join(sorted(odd))}; there are {', '.join(names)}", file=sys.stderr)
            sys.exit(2)
    try:
        made = measure(*places, **asked, **({"out": out} if "out" in parameters else {}))
        for found in [made] if isinstance(made, dict) else made:
            write(out, {**found, "versions": {**found.get("versions", {}), **versions_of(*versions)}})
    except EngineError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if figures := {key: value for key, value in found.items() if not has_rows(value)}:
        print(table(figures), end="")
    sys.exit(int(any(found.get(key) for key in ((failed,) if isinstance(failed, str) else failed))))


def run_one_of(
    *benchmarks: Callable[..., Found | Iterator[Found]],
    failed: Mapping[str, str | tuple[str, ...]] | None = None,
    known: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
) -> None:
    """`run` the benchmark that the first word of the command line names, into the file of results of that name; what its run is told stands by name."""
    named = {one.__name__: one for one in benchmarks}
    parser = argparse.ArgumentParser(description=inspect.getdoc(inspect.getmodule(benchmarks[0])))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("benchmark", choices=named)
    name = parser.parse_args(sys.argv[1:2]).benchmark
    del sys.argv[1]
    run(named[name], called=name, failed=(failed or {}).get(name, ()), known=(known or {}).get(name))


def arguments(measure: Callable[..., Any]) -> Found:
    """Return what the command line says for each parameter of a function, and for `out`."""
    about = inspect.getdoc(inspect.getmodule(measure))
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=lambda text: Path(text).absolute())
    for name, one in inspect.signature(measure, eval_str=True).parameters.items():
        if name != "out":
            added(parser, name.replace("_", "-"), one)
    return vars(parser.parse_args())


def added(parser: argparse.ArgumentParser, name: str, one: inspect.Parameter) -> None:
    """Add one parameter of a function to the command line."""
    if one.kind is one.VAR_POSITIONAL:
        parser.add_argument(name, type=one.annotation, nargs="*")
    elif one.default is one.empty:
        parser.add_argument(name, type=one.annotation)
    elif one.annotation is bool:
        parser.add_argument(f"--{name}", action="store_true")
    elif isinstance(one.default, tuple):
        kind = type(one.default[0]) if one.default else str
        cut = "[,:]" if kind is int else ","
        parser.add_argument(f"--{name}", type=lambda text: tuple(map(kind, re.split(cut, text))), default=one.default)
    else:
        kind = int if one.default is None else type(one.default)
        parser.add_argument(f"--{name}", type=kind, default=one.default)


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of Python, numpy and packages that are here."""
    found = {"python": sys.version.split()[0]}
    for package in ("numpy", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


# results ------------------------------------------------------------------------------------------


def has_rows(value: object) -> bool:
    """Whether a value is rows: it holds lists or mappings, or is a mapping of many."""
    if isinstance(value, Mapping) and len(value) > MANY:
        return True
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(one, Mapping | list | tuple) for one in inner)


def table(found: Mapping[str, Any]) -> str:
    """Return results as JSON, one line for each key, and for each row of what has rows."""
    keys = [
        f"{json.dumps(key)}: {_rows(value) if has_rows(value) else json.dumps(value)}" for key, value in found.items()
    ]
    return "{\n" + ",\n".join(keys) + "\n}\n"


def _rows(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{\n " + ",\n ".join(json.dumps({name: row})[1:-1] for name, row in value.items()) + "\n}"
    return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write results, so that a reader sees the old ones or the new ones."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(table(found), encoding="utf-8")
    part.replace(path)


def kept(path: Path) -> Found:
    """Return what a file of results holds; nothing where there is none."""
    found: Found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def grown(
    rows: Iterable[Any],
    *,
    under: str = "",
    by: str = "",
    out: Path | None = None,
    order: Iterable[str] = (),
    quiet: bool = False,
    **about: Any,
) -> Iterator[Found]:
    """Yield results as their rows come, each printed: what is known `about` all of them, then the rows so far.

    Args:
        rows: one row after the other, or pairs of a name and a row.
        under: the key of the rows; without one, rows with names are the results themselves.
        by: the key of a row's name: a row takes the place of the one of its name.
        out: the file of the results, whose rows stay until then.
        order: the names in the order of the rows; without it, sorted.
        quiet: no row is printed.
        about: what is known of all; what can be called is asked with the rows so far, and stands behind them.
    """
    known = {row[by]: row for row in kept(out).get(under, ())} if by and out else {}
    made: Any = {}
    for row in rows:
        if isinstance(row, tuple):
            made[row[0]] = row[1]
        elif by:
            known[row[by]] = row
            made = [known[name] for name in order or sorted(known) if name in known]
        else:
            made = [*made, row]
        if not quiet:
            print(*(row if isinstance(row, tuple) else (row,)), flush=True)
        said = {key: told for key, told in about.items() if not callable(told)}
        asked = {key: told(made) for key, told in about.items() if callable(told)}
        yield {**said, **({under: made} if under else made), **asked}


def markdown(heads: Sequence[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """Return a table as lines of Markdown."""
    first, *others = (f"| {' | '.join(map(str, cells))} |" for cells in (heads, *rows))
    return [first, f"|{'---|' * len(heads)}", *others]


# time and memory ----------------------------------------------------------------------------------


def cpu(work: Callable[[], Made], rounds: int = 1) -> tuple[float, Made]:
    """Return the processor seconds of the median round, and what the last one returned."""
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        made = work()
        spent.append(time.process_time() - began)
    return median(spent), made


def spent() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def loop_ns() -> float:
    """Return nanoseconds of processor time for a turn of an empty loop: on a busy or slow machine all takes longer."""
    began = time.process_time()
    for _ in range(TURNS):
        pass
    return round(1e9 * (time.process_time() - began) / TURNS, 1)


def peak_mib() -> int:
    """Return the most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_turns(sides: Mapping[str, Callable[[], float]], pairs: int) -> dict[str, list[float]]:
    """Return what each side measured in each round; the sides take turns, so that what else the machine does hits all."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(pairs):
        for name, side in sides.items():
            found[name].append(side())
        print({name: row[-1] for name, row in found.items()}, flush=True)
    return found


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> Found:
    """Return the ratio of each pair, and the median."""
    pairs = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {"median": median(pairs), "pairs": pairs}


# children -----------------------------------------------------------------------------------------


def child(
    *command: str | Path,
    python: str | Path = sys.executable,
    clean: bool = False,
    quiet: bool = False,
    cwd: Path | None = None,
    **variables: str,
) -> list[str]:
    """Return the lines that a script prints in an interpreter of its own; raises CalledProcessError.

    Args:
        command: the arguments of the interpreter, a script of this folder first or `-c`.
        python: the interpreter; `PEERS` has what ours is compared with.
        clean: without the variables of this process, so that no path leads here.
        quiet: what it says on the side is thrown away.
        cwd: where it begins.
        variables: set for the child.
    """
    first, *others = map(str, command)
    place = first if first.startswith("-") else str(HERE / first)
    environment = {"PATH": "/usr/bin:/bin"} if clean else dict(os.environ)
    aside = subprocess.DEVNULL if quiet else None
    asked = [str(python), place, *others]
    told = {**environment, **variables}
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, stderr=aside, text=True, env=told, cwd=cwd)
    return done.stdout.splitlines()


def apart(function: Callable[..., Any], *arguments: object, **how: Any) -> Any:
    """Return what a function of a script of this folder returns, as JSON holds it, from an interpreter of its own (`child`)."""
    script = Path(inspect.getfile(function)).stem
    code = f"import json, sys, {script}; print(json.dumps({script}.{function.__name__}(*json.loads(sys.argv[1]))))"
    asked = json.dumps(arguments, default=str)
    return json.loads(child("-c", code, asked, PYTHONPATH=f"{HERE}{os.pathsep}{ROOT}", **how)[-1])


def took(*command: str | Path, seconds: float = 1e6, **variables: str) -> Found:
    """Return what a command of this checkout took and said: CPU seconds of it and of all that it waited for, wall seconds, the most MiB of one
    process, exit status (below 0: the signal; it is killed after so many seconds), `out` and `err`.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        begun = subprocess.Popen([*map(str, command)], stdout=out, stderr=err, cwd=ROOT, env=environment)
        clock = Timer(seconds, begun.kill)
        clock.start()
        _, status, used = os.wait4(begun.pid, 0)
        clock.cancel()
        begun.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        said = [(file.seek(0), file.read())[1] for file in (out, err)]
    spent = {"cpu": used.ru_utime + used.ru_stime, "wall": wall, "peak_mib": used.ru_maxrss // 1024}
    return {**spent, "status": begun.returncode, "out": said[0], "err": said[1]}


def why_not(ran: Found) -> str:
    """Return the last line that a command said on the side."""
    return str((ran["err"].strip().splitlines() or ["no word"])[-1][:200])


def forked(work: Callable[[], Any]) -> tuple[Any, resource.struct_rusage]:
    """Return what a fork of this process made, as JSON holds it, and what it used: a process that begins as this one is now, and gives all back."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        status = 1
        try:
            with os.fdopen(send, "w") as pipe:
                pipe.write(json.dumps(work()))
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, it must not go on as this process
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive) as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    if status:
        raise EngineError(f"a process ended with {os.waitstatus_to_exitcode(status)}")
    return json.loads(said), used


def until(seconds: float, todo: Iterable[Made]) -> Iterator[Made]:
    """Yield pieces of a campaign as long as the time lasts; what is left is for the next run."""
    began = time.monotonic()
    for piece in todo:
        if time.monotonic() - began > seconds:
            return
        yield piece
