"""The judge on many buffers, ops and byte runs, on documents made to hurt, and two validators of others beside it.

    python benchmarks/checks.py [--out FILE] [--part NAME...] [--scale F] [--plan FILE]

The document is built first, machine code is warm, and what is timed is CPU seconds of this process, the median of `--repeat` turns, from the document
on: what several checks share is made anew in each turn. `exponent` is the slope of log time over log size at n, 2n, 4n and 8n: n log n comes
out a little above 1.

| part | what is judged |
|---|---|
| overlap | a tiling of time x address by random cuts, no gap and no conflict: `check_overlap` alone, in order of start and shuffled |
| overlap-large | the same for 1e7, in order |
| replay | values that are every other byte of their buffers, written and read: `check_dataflow` alone, by byte runs |
| same | the chain of `ops` where every eighth op hands the last result on by a `same`, to another place or to its own, beside its twin of version 1, where `same` is a kind like any other: all checks |
| ops | a chain of ops that read two earlier results, in a ring of slots: all checks, and the most memory taken |
| streams | the clean case of `order.py`: `check_order` alone |
| peers | the tilings of `overlap` through the validators below, as CPU time for each pair |
| hurtful | the documents of `tests/hurtful.py`: all checks, with what was found |
| plan | a file, as `allocsim check` takes it: reading and all checks |

Peers are the algorithms of two published validators, written anew here from their sources, on the same rectangles:

* google/minimalloc, `src/validator.cc`, `Validate`: each offset against capacity and alignment, then every pair of buffers, addresses first, then
  lives; the instances have no fixed offsets and no gaps, so those branches are left out. There it is C++; here it is compiled too.
* pytorch/executorch, `exir/memory_planning.py`, `Verifier.verify_storage_reuse`: every pair of specs, storage first, then lifetimes, then their memory
  objects, in Python as there. Intervals are inclusive there, and written so here; collecting specs from a graph is left out.

Both look at all pairs whatever the plan; neither knows of reads, views, streams or runs.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

import hurtful  # noqa: E402 - after the path above
import order as streams_benchmark  # noqa: E402

from allocsim.document import read  # noqa: E402
from allocsim.errors import AllocsimError  # noqa: E402
from allocsim.judge.fast import SCREENED, check  # noqa: E402
from allocsim.judge.fast.h_races import check_order  # noqa: E402
from allocsim.judge.fast.s_dataflow import check_dataflow  # noqa: E402
from allocsim.judge.fast.s_overlap import check_overlap  # noqa: E402
from allocsim.judge.fast.trial import Findings, TrialDocument  # noqa: E402
from allocsim.model import SAME, Document, Plan, Problem, Program  # noqa: E402

Row = dict[str, Any]


def main() -> None:
    """Run the parts named, or all; print and write."""
    parser = argparse.ArgumentParser(description="The judge at full size.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "checks.json")
    parser.add_argument("--part", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="Of all sizes.")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--plan", type=Path, help="A document for the part `plan`.")
    options, _ = parser.parse_known_args()
    known: list[Row] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    for part in options.part:
        measured: list[Row] = []
        for row in PARTS[part](options):
            measured.append({"part": part, **row})
            print("  ".join(f"{key} {value}" for key, value in measured[-1].items()), flush=True)
        known = [row for row in known if row["part"] != part] + measured
        rows = sorted(known, key=lambda row: list(PARTS).index(row["part"]))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        temporary = options.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        temporary.replace(options.out)


def timed(run: Callable[[], Any], repeat: int) -> float:
    """Return the median CPU seconds of some turns, after one that warms up."""
    run()
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return median(seconds)


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of log time over log size."""
    return round(float(np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-6)), 1)[0]), 2)


def growing(name: str, sizes: list[int], measure: Callable[[int], Row]) -> Iterator[Row]:
    """Measure at each size, and say how the time grows."""
    seconds = []
    for size in sizes:
        row = {"case": name, "size": size, **measure(size)}
        seconds.append(row["seconds"])
        row["seconds"] = round(row["seconds"], 4)
        yield row
    if len(sizes) > 2:
        yield {"case": name, "exponent": exponent(sizes, seconds)}


def scaled(options: Any, *sizes: int) -> list[int]:
    """Return sizes times `--scale`."""
    return [max(int(size * options.scale), 16) for size in sizes]


# --- what is judged --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Rectangles of time x address without a gap and without a conflict."""

    start: Any
    stop: Any
    low: Any
    high: Any


def tiling(count: int, *, shuffled: bool) -> Tiling:
    """Cut a square into `count` rectangles, each time one drawn at random across its longer side, at a place drawn at random."""
    rng = np.random.default_rng(count)
    sides = np.array([[0], [1 << 48], [0], [1 << 48]])
    while sides.shape[1] < count:
        cuts = min(count - sides.shape[1], sides.shape[1])
        sides = sides[:, rng.permutation(sides.shape[1])]
        whole, rest = sides[:, :cuts], sides[:, cuts:]
        in_time = whole[1] - whole[0] >= whole[3] - whole[2]
        first, last = np.where(in_time, whole[0], whole[2]), np.where(in_time, whole[1], whole[3])
        at = first + ((last - first) * rng.uniform(0.25, 0.75, cuts)).astype(np.int64)
        before = np.stack([whole[0], np.where(in_time, at, whole[1]), whole[2], np.where(in_time, whole[3], at)])
        after = np.stack([np.where(in_time, at, whole[0]), whole[1], np.where(in_time, whole[2], at), whole[3]])
        sides = np.concatenate([before, after, rest], axis=1)
    assert np.all(sides[0] < sides[1])
    assert np.all(sides[2] < sides[3])
    order = rng.permutation(count) if shuffled else np.argsort(sides[0], kind="stable")
    start, stop, low, high = sides[:, order]
    return Tiling(start=start, stop=stop, low=low, high=high)


def tiled(found: Tiling) -> Document:
    """Return a problem without ops and its plan."""
    count = len(found.start)
    nothing = hurtful.nothing(0)
    program = hurtful.program(found.high - found.low, [], nothing, nothing)
    problem = Problem.of(program, start=found.start, stop=found.stop)
    nbytes = program.buffers.nbytes
    return Document.of(
        Plan(program=program, problem=problem, arena=np.zeros(count, np.int32), offset=found.low, nbytes=nbytes)
    )


def combed(runs: int) -> Document:
    """Values of a thousand byte runs each, two of them woven into each buffer, written and read in turn, in a ring of slots."""
    teeth = 1000
    pairs = max(runs // (4 * teeth), 1)
    buffer = np.repeat(np.arange(pairs), 2)
    step = np.arange(2 * pairs)
    # writes of a buffer, then reads of it
    reads = np.tile([0, 0, 1, 1], pairs), step
    writes = np.tile([1, 1, 0, 0], pairs), step
    program = hurtful.program(
        np.full(pairs, 2 * teeth),
        buffer,
        reads,
        writes,
        offset=step % 2,
        count=np.full(2 * pairs, teeth),
        stride=np.full(2 * pairs, 2),
    )
    return hurtful.document(program, np.arange(pairs) % 3 * 2 * teeth)


def chained(ops: int) -> Document:
    """Each op reads the last result and one up to twenty ops old, and makes one of 32 to 3,200 bytes in a ring of slots."""
    program, offset = chain_of(ops, ops)
    return hurtful.document(program, offset)


def chain_of(ops: int, every: int) -> tuple[Program, Any]:
    """The chain and its slots; each `every`-th op is a `same` of the last result."""
    rng = np.random.default_rng(0)
    step = np.arange(ops)
    handed = (step % every == every - 1) & (step > 1)
    older = np.maximum(step - 1 - rng.integers(0, 20, ops), 0)
    sizes = rng.integers(1, 100, ops) * 32
    sizes[handed] = sizes[np.flatnonzero(handed) - 1]
    pairs, wanted = np.stack([step - 1, older], axis=1), np.stack([step > 0, (step > 0) & ~handed], axis=1)
    program = hurtful.program(
        sizes,
        step,
        (wanted.sum(axis=1), pairs[wanted]),
        hurtful.one_each(step),
        count=sizes,
        kinds=("f", SAME),
        kind=handed,
    )
    return program, step % 22 * 4096


# --- parts -----------------------------------------------------------------------------------------------------------------


def overlap(options: Any) -> Iterator[Row]:
    """Time `check_overlap` on tilings."""
    for shuffled in (False, True):
        name = "shuffled" if shuffled else "in order"

        def measure(size: int, *, shuffled: bool = shuffled) -> Row:
            document = tiled(tiling(size, shuffled=shuffled))
            return {"seconds": timed(lambda: nothing_found(check_overlap, document), options.repeat)}

        yield from growing(name, scaled(options, 125_000, 250_000, 500_000, 1_000_000), measure)


def overlap_large(options: Any) -> Iterator[Row]:
    """Time `check_overlap` on ten times as much; takes 4 GB."""
    document = tiled(tiling(scaled(options, 10_000_000)[0], shuffled=False))
    seconds = timed(lambda: nothing_found(check_overlap, document), 1)
    yield {"case": "in order", "size": scaled(options, 10_000_000)[0], "seconds": round(seconds, 4)}


def nothing_found(judge: Callable[[TrialDocument, Findings], None], document: Document) -> None:
    """Run one check on a document, which must be clean."""
    findings = Findings(0)
    judge(TrialDocument(document, SCREENED), findings)
    assert not findings.count("violation"), dict(findings.counts)


def replay(options: Any) -> Iterator[Row]:
    """Time `check_dataflow` by byte runs."""

    def measure(size: int) -> Row:
        document = combed(size)
        return {"seconds": timed(lambda: nothing_found(check_dataflow, document), options.repeat)}

    yield from growing("byte runs", scaled(options, 250_000, 500_000, 1_000_000, 2_000_000), measure)


def ops(options: Any) -> Iterator[Row]:
    """Time all checks on a chain."""

    def measure(size: int) -> Row:
        document = chained(size)
        seconds = timed(lambda: check(document), max(options.repeat // 3, 1))
        alone = timed(lambda: nothing_found(check_dataflow, document), 1)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return {"seconds": seconds, "replay_alone": round(alone, 3), "most_mebibytes_so_far": most}

    yield from growing("chain", scaled(options, 125_000, 250_000, 500_000, 1_000_000), measure)


def same(options: Any) -> Iterator[Row]:
    """Time all checks on the chain with a `same` at every eighth op."""
    program, offset = chain_of(scaled(options, 1_000_000)[0], 8)
    home = np.where(program.same_ops, np.roll(offset, 1), offset)
    documents = {
        "version 1": hurtful.document(replace(program, version=1), offset),
        "to another place": hurtful.document(program, offset),
        "to its own place": hurtful.document(program, home),
    }
    warm, its_offset = chain_of(scaled(options, 100_000)[0], 8)
    for version in (1, 2):
        assert check(hurtful.document(replace(warm, version=version), its_offset)).clean
    seconds: dict[str, list[float]] = {name: [] for name in documents}
    for _ in range(options.repeat):
        for name, document in documents.items():
            seconds[name].append(in_a_child(document))
    middle = {name: median(found) for name, found in seconds.items()}
    for name, found in middle.items():
        yield {
            "case": name,
            "size": len(program.ops),
            "seconds": round(found, 3),
            "to version 1": round(found / middle["version 1"], 3),
        }


def in_a_child(document: Document) -> float:
    """Return the CPU seconds of all checks in a process that begins as this one is now.

    In one process what the C library gives back to the system after one document is taken again,
    page by page, by the next: half a second of system time, charged to whoever comes then.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        start = time.process_time()
        clean = check(document).clean
        os.write(writing, f"{time.process_time() - start if clean else -1}".encode())
        os._exit(0)
    os.wait()
    seconds = float(os.read(reading, 64))
    os.close(reading)
    os.close(writing)
    assert seconds >= 0
    return seconds


def streams(options: Any) -> Iterator[Row]:
    """Time `check_order` on 8 streams."""

    def measure(size: int) -> Row:
        document = streams_benchmark.clean(size, 8)
        return {"seconds": timed(lambda: nothing_found(check_order, document), options.repeat)}

    yield from growing("8 streams", scaled(options, 12_500, 25_000, 50_000, 100_000), measure)


def peers(options: Any) -> Iterator[Row]:
    """Time the validators of others on the same tilings, ours beside them."""
    for name, validate, sizes in (
        ("minimalloc", minimalloc, (10_000, 20_000)),
        ("executorch", executorch, (500, 1000)),
    ):

        def measure(size: int, *, validate: Callable[[Tiling], bool] = validate) -> Row:
            found = tiling(size, shuffled=False)
            assert validate(found)
            seconds = timed(lambda: validate(found), 1)
            document = tiled(found)
            ours = timed(lambda: nothing_found(check_overlap, document), options.repeat)
            pairs = size * (size - 1) / 2
            return {
                "seconds": seconds,
                "nanoseconds_a_pair": round(seconds / pairs * 1e9, 1),
                "ours": round(ours, 4),
                "ratio": round(seconds / ours),
            }

        yield from growing(name, scaled(options, *sizes), measure)


def minimalloc(found: Tiling) -> bool:
    """Look at every offset, then at every pair of buffers, as minimalloc's `Validate` does: kGood or not."""
    size, capacity, alignment = found.high - found.low, int(found.high.max()), np.ones_like(found.low)
    return bool(_all_pairs()(found.start, found.stop, found.low, size, alignment, capacity))


def _all_pairs() -> Callable[..., bool]:
    if not _COMPILED:
        import numba  # noqa: PLC0415 - only this part needs it

        def validate(lower: Any, upper: Any, offset: Any, size: Any, alignment: Any, capacity: int) -> bool:  # noqa: PLR0917 - columns
            for i in range(len(offset)):
                if offset[i] < 0 or offset[i] + size[i] > capacity or offset[i] % alignment[i] != 0:
                    return False
            for i in range(len(offset)):
                for j in range(i + 1, len(offset)):
                    apart = offset[i] + size[i] <= offset[j] or offset[j] + size[j] <= offset[i]
                    if not apart and not (upper[i] <= lower[j] or upper[j] <= lower[i]):
                        return False
            return True

        _COMPILED.append(numba.njit(validate))
    return _COMPILED[0]


_COMPILED: list[Callable[..., bool]] = []


@dataclass(slots=True)
class TensorSpec:
    """What ExecuTorch's verifier reads of a spec."""

    lifetime: list[int]
    mem_id: int
    mem_offset: int
    allocated_memory: int
    mem_obj_id: int | None = None


def executorch(found: Tiling) -> bool:
    """Compare every pair of specs, as `verify_storage_reuse` does: whether it raises nothing."""
    columns = (found.start.tolist(), (found.stop - 1).tolist(), found.low.tolist(), (found.high - found.low).tolist())
    specs = [
        TensorSpec(lifetime=[start, last], mem_id=1, mem_offset=offset, allocated_memory=nbytes)
        for start, last, offset, nbytes in zip(*columns, strict=True)
    ]
    reused = 0
    for index, one in enumerate(specs):
        for other in specs[index + 1 :]:
            if (one.mem_obj_id is None) != (other.mem_obj_id is None):
                return False
            if not _storage_meets(one, other):
                continue
            if _inclusive_meet(one.lifetime, other.lifetime):
                return False
            if one.mem_obj_id is not None and one.mem_obj_id != other.mem_obj_id:
                return False
            reused += 1
    return True


def _inclusive_meet(a: list[int], b: list[int]) -> bool:
    if a[0] > a[1] or b[0] > b[1]:
        return False
    return (b[0] <= a[0] <= b[1]) or (a[0] <= b[0] <= a[1])


def _storage_meets(a: TensorSpec, b: TensorSpec) -> bool:
    if a.mem_id != b.mem_id:
        return False
    intervals = []
    for spec in (a, b):
        assert spec.allocated_memory >= 0
        assert isinstance(spec.mem_offset, int)
        assert spec.mem_offset >= 0
        intervals.append([spec.mem_offset, spec.mem_offset + spec.allocated_memory - 1])
    return _inclusive_meet(*intervals)


def hurt(options: Any) -> Iterator[Row]:
    """Time all checks on documents made to hurt."""
    for name, case in hurtful.CASES.items():

        def measure(size: int, *, case: hurtful.Case = case) -> Row:
            document = case.build(size)
            start = time.process_time()
            report = check(document)
            seconds = time.process_time() - start
            assert set(report.counts) == set(case.kinds)
            return {"seconds": seconds, "found": dict(report.counts), "truncated": report.truncated}

        yield from growing(name, scaled(options, 125_000, 250_000, 500_000, 1_000_000), measure)
    for name, build in {"all at once": hurtful.all_at_once}.items():
        document = build(scaled(options, 1_000_000)[0])
        start = time.process_time()
        try:
            check(document)
        except AllocsimError as error:
            yield {"case": name, "seconds": round(time.process_time() - start, 3), "refused": str(error)}


def plan(options: Any) -> Iterator[Row]:
    """Time reading and judging a file."""
    if options.plan is None:
        return
    document = read(options.plan)
    yield {
        "case": "file",
        "ops": sum(len(program.ops) for program in document.programs),
        "check": round(timed(lambda: check(document), 3 * options.repeat), 4),
        "read_and_check": round(timed(lambda: check(read(options.plan)), 3 * options.repeat), 4),
    }


PARTS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "overlap": overlap,
    "overlap-large": overlap_large,
    "replay": replay,
    "ops": ops,
    "same": same,
    "streams": streams,
    "peers": peers,
    "hurtful": hurt,
    "plan": plan,
}

if __name__ == "__main__":
    main()
