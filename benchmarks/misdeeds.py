"""Kernels that misbehave, in numpy, numba and C: which of them detector P finds, and whether it accuses honest ones.

    python benchmarks/misdeeds.py [--honest N] [--language NAME ...] [--go-on] [--out FILE]

A misdeed is a write (undone or not) or a read at an address that the op does not declare, by the op or by a thread that it leaves behind, or bytes of a
result that it leaves. Each is committed by an op of a small program under a sound plan, in three languages, and looked for by `allocsim.watched`, by poison
alone (writes in one run, all else with `twice`) and in the strict mode: it is found where an incident names that op, or the thread that it began. Then N
honest runs of random programs under the planners of the shelf, two of each program, by kernels in each language in turn: each incident there is a false one.
Exit status 1 where the strict mode missed one or one is false. What was run is written every `KEPT` programs; `--go-on` keeps the misdeeds of the file, and
goes on where its honest runs end.
"""

import argparse
import ctypes
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import numba  # noqa: E402 - after the path above
import numpy as np  # noqa: E402

import allocsim  # noqa: E402
from allocsim.allocators import find  # noqa: E402
from allocsim.files import write_atomic  # noqa: E402
from allocsim.model import Role  # noqa: E402
from allocsim.p_sanitizer import poison  # noqa: E402
from allocsim.p_sanitizer.compiled_executor import _at, _carray  # noqa: E402

COUNT = 64
"""Elements of each tensor, f32."""
SIZE = 4 * COUNT
PLACES = {"w": "own", "x": 0, "h": 512, "gone": 1024, "y": 1536, "z": 2048}
BAD = 4
"""Step of the op that misbehaves: y = neg h."""

C_SOURCE = """
void poke(unsigned char *at, long n, int byte) { for (long i = 0; i < n; i++) at[i] = byte; }
int peek(const unsigned char *at) { return *(const volatile unsigned char *)at; }
long total(const unsigned char *at, long n) { long sum = 0; for (long i = 0; i < n; i++) sum += at[i]; return sum; }
void fill(unsigned char *to, const unsigned char *from, long n) { for (long i = 0; i < n; i++) to[i] = from[i]; }
"""


def program() -> Any:
    """Return the program: x uploaded, gone dead early, h live, y made by the op that misbehaves, w a parameter."""
    b = allocsim.ProgramBuilder("step")
    tensors = {
        name: b.tensor(name, "f32", (COUNT,), role=Role.PARAMETER if name == "w" else Role.TEMPORARY) for name in PLACES
    }
    b.op("host.write", (), (tensors["x"],), name="x")
    b.op("copy", (tensors["x"],), (tensors["gone"],))
    b.op("add", (tensors["gone"], tensors["w"]), (tensors["h"],))
    b.op("copy", (tensors["h"],), (tensors["z"],))
    b.op("neg", (tensors["h"],), (tensors["y"],))
    b.op("host.read", (tensors["y"], tensors["z"], tensors["x"], tensors["h"]), ())
    return b.build()


# --- the three languages: what a kernel does at an address


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How bytes are written and read in a language."""

    poke: Callable[[int, int, int], None]
    """(address, count, byte): write so many."""
    peek: Callable[[int], int]
    """Read the byte at an address."""
    total: Callable[[int, int], int]
    """(address, count): read so many bytes; their sum."""
    fill: Callable[[int, int, int], None]
    """(to, from, count): write so many bytes as they lie elsewhere."""


def languages(folder: Path) -> dict[str, Language]:
    """Return what each language does; C is left out where there is no compiler."""

    def numpy_poke(at: int, count: int, byte: int) -> None:
        np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(at))[:] = byte

    def numpy_peek(at: int) -> int:
        return int(np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(at))[0])

    def numpy_total(at: int, count: int) -> int:
        return int(np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(at)).sum())

    def numpy_fill(to: int, source: int, count: int) -> None:
        there, here = (np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(at)) for at in (to, source))
        np.copyto(there, here)

    @numba.njit
    def numba_poke(at: int, count: int, byte: int) -> None:
        memory = _carray(_at(at), count, np.uint8)
        for i in range(count):
            memory[i] = byte

    @numba.njit
    def numba_peek(at: int) -> int:
        return _carray(_at(at), 1, np.uint8)[0]

    @numba.njit
    def numba_total(at: int, count: int) -> int:
        memory, found = _carray(_at(at), count, np.uint8), 0
        for i in range(count):
            found += memory[i]
        return found

    @numba.njit
    def numba_fill(to: int, source: int, count: int) -> None:
        there, here = _carray(_at(to), count, np.uint8), _carray(_at(source), count, np.uint8)
        for i in range(count):
            there[i] = here[i]

    spare = np.zeros(8, np.uint8)
    numba_poke(spare.ctypes.data, 1, 1)  # compiled before anything forks
    numba_peek(spare.ctypes.data)
    numba_total(spare.ctypes.data, 8)
    numba_fill(spare.ctypes.data, spare.ctypes.data, 8)
    found = {
        "numpy": Language(poke=numpy_poke, peek=numpy_peek, total=numpy_total, fill=numpy_fill),
        "numba": Language(poke=numba_poke, peek=numba_peek, total=numba_total, fill=numba_fill),
    }
    compiler = shutil.which("cc")
    if compiler is not None:
        (folder / "k.c").write_text(C_SOURCE)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.c"], check=True)
        library = ctypes.CDLL(str(folder / "k.so"))
        place, count = ctypes.c_void_p, ctypes.c_long
        library.poke.argtypes, library.poke.restype = (place, count, ctypes.c_int), None
        library.peek.argtypes = (place,)
        library.total.argtypes, library.total.restype = (place, count), count
        library.fill.argtypes, library.fill.restype = (place, place, count), None
        found["C"] = Language(poke=library.poke, peek=library.peek, total=library.total, fill=library.fill)
    return found


# --- the misdeeds: what the op does beside or instead of its work, with the addresses of its operand and result

WRITES = {
    "one byte behind the result": ("y", SIZE, 1),
    "one byte before the result": ("y", -1, 1),
    "64 bytes behind": ("y", SIZE + 64, 4),
    "200 bytes behind": ("y", SIZE + 200, 4),
    "the whole gap behind": ("y", SIZE, 256),
    "across into the next buffer": ("y", SIZE, 300),
    "into the operand": ("h", 16, 4),
    "all of the operand": ("h", 0, SIZE),
    "one byte of a live buffer": ("z", 77, 1),
    "a live buffer far before": ("x", 128, 8),
    "a dead buffer": ("gone", 10, 3),
    "a parameter": ("w", 8, 4),
    "behind a parameter": ("w", SIZE + 3, 1),
    "the red zone behind the arena": ("z", SIZE + 40, 2),
    "the red zone before the arena": ("x", -60, 2),
    "a page behind all memory": ("z", SIZE + (1 << 20), 1),
    "a page before all memory": ("x", -(1 << 20), 1),
    "the null pointer": (None, 8, 1),
}
"""Name -> (buffer, offset in it, bytes) written."""

RESTORED = ("a dead buffer", "into the operand", "a parameter", "one byte of a live buffer", "one byte behind the result",
            "one byte before the result", "a live buffer far before")  # fmt: skip
"""Of `WRITES` those that are also committed and undone."""

READS = {
    "the byte behind the operand": ("h", SIZE),
    "the byte before the operand": ("h", -1),
    "far behind the operand": ("h", SIZE + 130),
    "a dead buffer, read": ("gone", 5),
    "the last byte of a dead buffer": ("gone", SIZE - 1),
    "the red zone behind the arena, read": ("z", SIZE + 9),
    "the red zone before the arena, read": ("x", -9),
    "its own result before it is written": ("y", 40),
    "the byte behind the result": ("y", SIZE),
    "the byte before the result": ("y", -1),
    "memory behind the guards": ("z", SIZE + (1 << 20)),
    "a live buffer": ("z", 5),
    "a live buffer far before": ("x", 130),
    "a parameter that it does not declare": ("w", 12),
}
"""Name -> (buffer, offset) of a byte that decides what the op computes."""

QUESTIONS: dict[str, Callable[[int, Any], Any]] = {
    "its value": lambda seen, _: seen % 7,
    "is it 1": lambda seen, _: seen == 1,
    "a range": lambda seen, _: 100 <= seen < 110,
    "clamped to one value": lambda seen, _: min(max(seen, 3), 3),
    "an index": lambda seen, x: x[seen % COUNT],
}
"""What the op makes of the byte, beside its operand."""
ASKED_OF_ALL = ("its value", "is it 1")
ASKED_OF = (
    "the byte behind the operand",
    "a dead buffer, read",
    "its own result before it is written",
    "a live buffer",
)

LATE = {"its own result": ("y", 12, True), "its operand": ("h", 0, True), "a dead buffer": ("gone", 3, False)}
"""Where a thread that the op leaves behind goes while the next op runs, and whether it writes."""

LEAVES = {"one byte": (9, 10), "one element": (20, 24), "the first half": (0, SIZE // 2), "all": (0, SIZE)}
"""Name -> bytes of the result that are left as they were."""


def kernels(by: Language) -> dict[str, Callable[..., None]]:
    """Return for each misdeed what commits it: (address of a buffer, operand, result)."""
    found: dict[str, Callable[..., None]] = {}
    for name, (buffer, offset, count) in WRITES.items():

        def write(at: Any, x: Any, out: Any, *, buffer: Any = buffer, offset: int = offset, count: int = count) -> None:
            np.negative(x, out)
            by.poke((0 if buffer is None else at(buffer)) + offset, count, 0x5A)

        found[f"write: {name}"] = write
    for name in RESTORED:
        buffer, offset, count = WRITES[name]

        def restore(at: Any, x: Any, out: Any, *, buffer: Any = buffer, offset: int = offset) -> None:
            np.negative(x, out)
            there = at(buffer) + offset
            seen = by.peek(there)
            by.poke(there, 1, seen ^ 255)
            by.poke(there, 1, seen)

        found[f"write and undo: {name}"] = restore
    for name, (buffer, offset) in READS.items():
        for question, answer in QUESTIONS.items():
            if question not in ASKED_OF_ALL and name not in ASKED_OF:
                continue

            def read(at: Any, x: Any, out: Any, *, b: str = buffer, offset: int = offset, answer: Any = answer) -> None:
                seen = by.peek(at(b) + offset)
                np.negative(x, out)
                out[3] = answer(seen, x)

            found[f"read: {name}: {question}"] = read
    for name, (buffer, offset, writes) in LATE.items():

        def late(at: Any, x: Any, out: Any, *, b: str = buffer, offset: int = offset, writes: bool = writes) -> None:
            np.negative(x, out)
            ready = threading.Event()

            def behind() -> None:
                ready.wait()
                by.poke(at(b) + offset, 1, 7) if writes else by.peek(at(b) + offset)

            thread = threading.Thread(target=behind)
            thread.start()
            LEFT.append((ready, thread))

        found[f"a thread left behind: {name}"] = late
    for name, (low, high) in LEAVES.items():

        def leave(_at: Any, x: Any, out: Any, low: int = low, high: int = high) -> None:
            work = np.negative(x).view(np.uint8)
            memory = out.view(np.uint8)
            memory[:low], memory[high:] = work[:low], work[high:]

        found[f"leave: {name}"] = leave
    return found


def _performed(made: Any, misdeed: Callable[..., None], op: Any, operands: Any, results: Any) -> None:
    """Do an op's work; the bad one's as the misdeed does it."""
    for value, view in zip((*op.operands, *op.results), (*operands, *results), strict=True):
        ADDRESSES[made.buffers.names[made.values.buffer[value]]] = view.ctypes.data
    if op.kind == "host.write":
        results[0][:] = np.arange(COUNT)
    elif op.step == BAD:
        misdeed(ADDRESSES.__getitem__, *operands, *results)
    elif op.kind == "copy":
        np.copyto(results[0], operands[0])
    elif op.kind == "add":
        np.add(*operands, results[0])
    elif op.kind == "host.read":
        for ready, thread in LEFT:
            ready.set()
            thread.join()


LEFT: list[tuple[threading.Event, threading.Thread]] = []
"""Threads that the op left behind, in this process."""

ADDRESSES: dict[str, int] = {}
"""Of the buffers that ops were given so far, in this process."""


def committed(made: Any, language: str, by: Language) -> list[dict[str, Any]]:
    """Return a row for each misdeed of one language: what finds it by poison alone, and in the strict mode."""
    rows = []
    slots, content = [PLACES[buffer] for buffer in made.buffers.names], {"w": np.ones(COUNT, np.float32)}
    for name, misdeed in kernels(by).items():
        kernel = partial(_performed, made, misdeed)
        row: dict[str, Any] = {"language": language, "misdeed": name}
        for mode, how in {"poison": {"twice": not name.startswith("write:")}, "strict": {"strict": True}}.items():
            found = allocsim.watched(made, slots, kernel, runs=1, content=content, **how)
            row[mode] = sorted({i.kind for i in found.incidents if _right(i)})
            row[f"{mode} others"] = sum(i.op not in (BAD, None) and not _right(i) for i in found.incidents)
        rows.append(row)
        said = [f"{', '.join(row[mode]) or 'MISSED'}{' OTHERS' * bool(row[f'{mode} others'])}" for mode in MODES]
        print(f"{language:6s} {name:60s} {said[0]:40s} {said[1]}", flush=True)
    return rows


MODES = ("poison", "strict")


def _right(incident: Any) -> bool:
    """Return whether an incident names the op that misbehaves: as the one that did it, or that began the thread."""
    return incident.op == BAD or f"which op {BAD} had begun" in incident.witness


def honest(numbers: range, seed: int, by: Sequence[Language]) -> int:
    """Return how many incidents honest kernels are charged with in the random programs of these numbers, the languages in turn."""
    false = 0
    for number in numbers:
        kernel = partial(_honest, by[number % len(by)])
        generator = random.Random(f"honest {seed} {number}")  # noqa: S311 - an example, no secret
        b = allocsim.ProgramBuilder("p")
        dtype = generator.choice(("f32", "i32", "u8", "f64", "i16"))
        values = [b.tensor("x", dtype, (generator.randint(1, 40),))]
        b.op("host.write", (), (values[0],), name="x")
        for step in range(generator.randint(1, 8)):
            reads = generator.sample(values, min(len(values), generator.randint(1, 3)))
            made = b.tensor(f"t{step}", dtype, (generator.randint(1, 40),))
            b.op("f", tuple(reads), (made,))
            values.append(made)
        b.op("host.read", (values[-1],), ())
        made = b.build()
        plan = find(generator.choice(("greedy_by_size", "linear_scan", "ggml", "buddy"))).plan(made)
        if number % TWICE == 0:
            false += len(allocsim.watched(made, plan, kernel, runs=RUNS, twice=True).incidents)
            continue
        arena = allocsim.sanitized(made, plan)
        for _ in range(RUNS):
            with arena.run():
                for op in made.ops:
                    with arena.op(op.step) as (operands, results):
                        kernel(op, operands, results)
        false += len(arena.incidents)
    return false


RUNS = 2
"""Of each program, over the same memory."""

KEPT = 250
"""Programs between two writings of the table."""

TWICE = 10
"""Of so many programs one is run in a process of its own, over all forms of poison."""


def _honest(by: Language, op: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
    """Read all of the operands and write all of the results with any bits at all, the same for the same operands, but no NaNs of poison's own."""
    seen = sum(by.total(x.ctypes.data, x.nbytes) for x in operands)
    for result in results:
        generator = np.random.default_rng([seen, op.step])
        made = np.empty_like(result)
        if result.dtype.kind == "f":
            made[...] = generator.standard_normal(result.shape)
        elif generator.random() < 0.5:  # a word of poison, as a number
            made.view(np.uint8)[...] = np.resize(np.array([poison.AWAITED], "<u4").view(np.uint8), result.nbytes)
        else:
            made.view(np.uint8)[...] = generator.integers(0, 256, result.nbytes)
        by.fill(result.ctypes.data, made.ctypes.data, result.nbytes)


def main() -> int:
    """Commit all misdeeds, run the honest ones; print and write the table, return the exit status."""
    parser = argparse.ArgumentParser(description="Kernels that misbehave.")
    parser.add_argument("--honest", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--language", action="append", help="only this one; rows of others stay as the file has them")
    parser.add_argument(
        "--go-on", action="store_true", help="keep the misdeeds of the file, go on with the honest runs"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "misdeeds.json")
    options = parser.parse_args()
    made = program()
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = languages(Path(folder))
        wanted = {n: by for n, by in all_of_them.items() if not options.language or n in options.language}
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        rows = before["misdeeds"] if options.go_on else []
        if not options.go_on:
            rows += [row for row in before.get("misdeeds", []) if options.language and row["language"] not in wanted]
            rows += [row for name, by in wanted.items() for row in committed(made, name, by)]
        missed = [row for row in rows if not row["strict"]]
        others = sum(row["strict others"] for row in rows)
        done, false = (before["honest_runs"], before["false"] - others) if options.go_on else (0, 0)
        kept = [*range(done // RUNS, options.honest // RUNS, KEPT), options.honest // RUNS]
        for low, high in pairwise(kept):
            false += honest(range(low, high), options.seed, list(all_of_them.values()))
            about = {
                "misdeeds": rows,
                "missed by poison": sum(not row["poison"] for row in rows),
                "missed": len(missed),
                "honest_languages": list(all_of_them),
                "honest_runs": high * RUNS,
                "false": false + others,
            }
            write_atomic(options.out, json.dumps(about, indent=1).encode() + b"\n")
    print(f"{len(rows)} misdeeds, {len(missed)} missed; {options.honest} honest runs, {false + others} false")
    return int(bool(missed or false or others))


if __name__ == "__main__":
    sys.exit(main())
