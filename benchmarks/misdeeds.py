"""Kernels that misbehave, in numpy, numba and C: which of them detector P finds, and whether it accuses honest ones.

    python benchmarks/misdeeds.py [--honest N] [--language NAME,...] [--go-on] [--out FILE]

A misdeed is a write (undone or not) or a read at an address that the op does not declare, by the op or by a thread that it leaves behind, or bytes of a
result that it leaves. Each is committed by an op of a small program under a sound plan, in three languages, and looked for by `allocsim.watched`, by poison
alone (writes in one run, all else with `twice`) and in the strict mode: it is found where an incident names that op, or the thread that it began. Then N
honest runs of random programs under the planners of the shelf, two of each program, by kernels in each language in turn: each incident there is a false one.
Exit status 1 where the strict mode missed one or one is false. What was run is written every `KEPT` programs; `--go-on` keeps the misdeeds of the file, and
goes on where its honest runs end. With `--language` rows of others stay as the file has them.
"""

import ctypes
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness import Found, kept, run

import numba
import numpy as np

import allocsim
from allocsim.allocators import find
from allocsim.model import Role
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.compiled_executor import _at, _carray

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
    roles = dict.fromkeys(PLACES, Role.TEMPORARY) | {"w": Role.PARAMETER}
    tensors = {name: b.tensor(name, "f32", (COUNT,), role=role) for name, role in roles.items()}
    b.op("host.write", (), (tensors["x"],), name="x")
    b.op("copy", (tensors["x"],), (tensors["gone"],))
    b.op("add", (tensors["gone"], tensors["w"]), (tensors["h"],))
    b.op("copy", (tensors["h"],), (tensors["z"],))
    b.op("neg", (tensors["h"],), (tensors["y"],))
    b.op("host.read", (tensors["y"], tensors["z"], tensors["x"], tensors["h"]), ())
    return b.build()


# --- the three languages: what a kernel does at an address


Language = Any
"""How bytes are written and read: `poke(address, count, byte)`, `peek(address)`, `total(address, count)`, the sum of so many bytes,
and `fill(to, from, count)`, as they lie elsewhere."""


def in_python(view: Callable[[int, int], Any], made: Callable[[Any], Any]) -> Language:
    """Return a language whose functions are `made` of Python that sees memory through `view(address, count)`."""

    def poke(at: int, count: int, byte: int) -> None:
        view(at, count)[:] = byte

    def peek(at: int) -> int:
        return int(view(at, 1)[0])

    def total(at: int, count: int) -> int:
        return int(view(at, count).sum())

    def fill(to: int, source: int, count: int) -> None:
        view(to, count)[:] = view(source, count)

    return SimpleNamespace(poke=made(poke), peek=made(peek), total=made(total), fill=made(fill))


def languages(folder: Path) -> dict[str, Language]:
    """Return what each language does; C is left out where there is no compiler."""
    found = {
        "numpy": in_python(
            lambda at, count: np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(at)), lambda f: f
        ),
        "numba": in_python(numba.njit(lambda at, count: _carray(_at(at), count, np.uint8)), numba.njit),
    }
    spare = np.zeros(8, np.uint8)
    place = spare.ctypes.data
    found["numba"].poke(place, 1, 1)  # compiled before anything forks
    found["numba"].peek(place)
    found["numba"].total(place, 8)
    found["numba"].fill(place, place, 8)
    compiler = shutil.which("cc")
    if compiler is not None:
        (folder / "k.c").write_text(C_SOURCE)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.c"], check=True)
        library = ctypes.CDLL(str(folder / "k.so"))
        address, count = ctypes.c_void_p, ctypes.c_long
        library.poke.argtypes, library.poke.restype = (address, count, ctypes.c_int), None
        library.peek.argtypes = (address,)
        library.total.argtypes, library.total.restype = (address, count), count
        library.fill.argtypes, library.fill.restype = (address, address, count), None
        found["C"] = library
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
ASKED_OF = ("the byte behind the operand", "a dead buffer, read", "its own result before it is written",
            "a live buffer")  # fmt: skip

LATE = {"its own result": ("y", 12, True), "its operand": ("h", 0, True), "a dead buffer": ("gone", 3, False)}
"""Where a thread that the op leaves behind goes while the next op runs, and whether it writes."""

LEAVES = {"one byte": (9, 10), "one element": (20, 24), "the first half": (0, SIZE // 2), "all": (0, SIZE)}
"""Name -> bytes of the result that are left as they were."""


def _write(by: Language, row: Any, at: Any, x: Any, out: Any) -> None:
    buffer, offset, count = row
    np.negative(x, out)
    by.poke((0 if buffer is None else at(buffer)) + offset, count, 0x5A)


def _restore(by: Language, row: Any, at: Any, x: Any, out: Any) -> None:
    np.negative(x, out)
    there = at(row[0]) + row[1]
    seen = by.peek(there)
    by.poke(there, 1, seen ^ 255)
    by.poke(there, 1, seen)


def _read(by: Language, row: Any, at: Any, x: Any, out: Any) -> None:
    buffer, offset, answer = row
    seen = by.peek(at(buffer) + offset)
    np.negative(x, out)
    out[3] = answer(seen, x)


def _late(by: Language, row: Any, at: Any, x: Any, out: Any) -> None:
    np.negative(x, out)
    (buffer, offset, writes), ready = row, threading.Event()

    def behind() -> None:
        ready.wait()
        by.poke(at(buffer) + offset, 1, 7) if writes else by.peek(at(buffer) + offset)

    thread = threading.Thread(target=behind)
    thread.start()
    LEFT.append((ready, thread))


def _leave(row: Any, _at: Any, x: Any, out: Any) -> None:
    (low, high), work, memory = row, np.negative(x).view(np.uint8), out.view(np.uint8)
    memory[:low], memory[high:] = work[:low], work[high:]


def kernels(by: Language) -> dict[str, Callable[..., None]]:
    """Return for each misdeed what commits it: (address of a buffer, operand, result)."""
    return {
        **{f"write: {name}": partial(_write, by, row) for name, row in WRITES.items()},
        **{f"write and undo: {name}": partial(_restore, by, WRITES[name]) for name in RESTORED},
        **{
            f"read: {name}: {question}": partial(_read, by, (*row, answer))
            for name, row in READS.items()
            for question, answer in QUESTIONS.items()
            if question in ASKED_OF_ALL or name in ASKED_OF
        },
        **{f"a thread left behind: {name}": partial(_late, by, row) for name, row in LATE.items()},
        **{f"leave: {name}": partial(_leave, row) for name, row in LEAVES.items()},
    }


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
        print(row, "" if row["strict"] else "MISSED", flush=True)
    return rows


def _right(incident: Any) -> bool:
    """Return whether an incident names the op that misbehaves: as the one that did it, or that began the thread."""
    return incident.op == BAD or f"which op {BAD} had begun" in incident.witness


def honestly(numbers: range, seed: int, by: Sequence[Language]) -> int:
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


def measure(
    *, honest: int = 10_000, seed: int = 1, language: tuple[str, ...] = (), go_on: bool = False, out: Path
) -> Iterator[Found]:
    """Commit all misdeeds, run the honest ones; `go_on`: keep the misdeeds of the file, go on with the honest runs."""
    made, before = program(), kept(out)
    with tempfile.TemporaryDirectory() as folder:
        every = languages(Path(folder))
        wanted = {name: by for name, by in every.items() if not language or name in language}
        rows = before["misdeeds"] if go_on else []
        if not go_on:
            rows += [row for row in before.get("misdeeds", []) if language and row["language"] not in wanted]
            rows += [row for name, by in wanted.items() for row in committed(made, name, by)]
        others = sum(row["strict others"] for row in rows)
        done, false = (before["honest_runs"], before["false"] - others) if go_on else (0, 0)
        for low, high in pairwise([*range(done // RUNS, honest // RUNS, KEPT), honest // RUNS]):
            false += honestly(range(low, high), seed, list(every.values()))
            yield {
                "misdeeds": rows,
                "missed by poison": sum(not row["poison"] for row in rows),
                "missed": sum(not row["strict"] for row in rows),
                "honest_languages": list(every),
                "honest_runs": high * RUNS,
                "false": false + others,
            }


if __name__ == "__main__":
    run(measure, failed=("missed", "false"))
