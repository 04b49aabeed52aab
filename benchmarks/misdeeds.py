"""Kernels that misbehave, in numpy, numba and C: which of them detector P finds, and whether it accuses honest ones.

    python benchmarks/misdeeds.py [--honest N] [--language NAME ...] [--go-on] [--out FILE]

A misdeed is a write or a read at an address that the op does not declare, or bytes of a result that it leaves. Each is committed by an op of a
small program under a sound plan, in three languages, and looked for by `allocsim.watched` in one run (reads, and bytes that are left, with `twice`): it is
found where an incident names that op. Then N honest runs of random programs under the planners of the shelf, two of each program, by kernels in each language in turn: each incident there is a
false one. Exit status 1 where one was missed or one is false. What was run is written every `KEPT` programs; `--go-on` keeps the misdeeds of the file, and
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

READS = {
    "the byte behind the operand": ("h", SIZE),
    "far behind the operand": ("h", SIZE + 130),
    "a dead buffer, read": ("gone", 5),
    "the last byte of a dead buffer": ("gone", SIZE - 1),
    "the red zone behind the arena, read": ("z", SIZE + 9),
    "the red zone before the arena, read": ("x", -9),
    "its own result before it is written": ("y", 40),
    "memory behind the guards": ("z", SIZE + (1 << 20)),
}
"""Name -> (buffer, offset) of a byte that decides what the op computes."""

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
    for name, (buffer, offset) in READS.items():

        def read(at: Any, x: Any, out: Any, buffer: str = buffer, offset: int = offset) -> None:
            seen = by.peek(at(buffer) + offset)
            np.negative(x, out)
            out[3] = seen % 7

        found[f"read: {name}"] = read
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


ADDRESSES: dict[str, int] = {}
"""Of the buffers that ops were given so far, in this process."""


def committed(made: Any, language: str, by: Language) -> list[dict[str, Any]]:
    """Return a row for each misdeed of one language."""
    rows = []
    for name, misdeed in kernels(by).items():
        slots = [PLACES[buffer] for buffer in made.buffers.names]
        twice = not name.startswith("write")  # what changes a byte is seen in one run
        content = {"w": np.ones(COUNT, np.float32)}
        kernel = partial(_performed, made, misdeed)
        found = allocsim.watched(made, slots, kernel, runs=1, twice=twice, content=content)
        hits = [i for i in found.incidents if i.op == BAD]
        others = [i for i in found.incidents if i.op not in (BAD, None)]
        kinds = sorted({i.kind for i in hits})
        rows.append({"language": language, "misdeed": name, "found": kinds, "others": len(others)})
        print(f"{language:6s} {name:44s} {', '.join(kinds) or 'MISSED'}", flush=True)
    return rows


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
        missed, others = [row for row in rows if not row["found"]], sum(row["others"] for row in rows)
        done, false = (before["honest_runs"], before["false"] - others) if options.go_on else (0, 0)
        kept = [*range(done // RUNS, options.honest // RUNS, KEPT), options.honest // RUNS]
        for low, high in pairwise(kept):
            false += honest(range(low, high), options.seed, list(all_of_them.values()))
            about = {
                "misdeeds": rows,
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
