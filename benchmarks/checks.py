"""The judge alone: on many buffers, ops and byte runs, over streams, and beside another checkout.

    python benchmarks/checks.py checks [--out FILE] [--part NAME,...] [--scale F] [--repeat N] [--plan FILE]
    python benchmarks/checks.py order [--out FILE]
    python benchmarks/checks.py against OTHER [--ops 1000000] [--pairs 6] [--out FILE]

`checks`: the judge on many buffers, ops and byte runs, on documents made to hurt, and two validators of others beside it. The document is built first,
machine code is warm, and what is timed is CPU seconds of this process, the median of `--repeat` turns, from the document on: what several checks share is
made anew in each turn. `exponent` is the slope of log time over log size at n, 2n, 4n and 8n: n log n comes out a little above 1.

| part | what is judged |
|---|---|
| overlap | a tiling of time x address by random cuts, no gap and no conflict: `check_overlap` alone, in order of start and shuffled |
| overlap-large | the same for 1e7, in order |
| replay | values that are every other byte of their buffers, written and read: `check_dataflow` alone, by byte runs |
| same | the chain of `ops` where every eighth op hands the last result on by a `same`, to another place or to its own, beside its twin of version 1, where `same` is a kind like any other: all checks |
| ops | a chain of ops that read two earlier results, in a ring of slots: all checks, and the most memory taken |
| streams | the clean case of `order`: `check_order` alone |
| peers | the tilings of `overlap` through the validators below, as CPU time for each pair |
| hurtful | the documents of `tests/hurtful.py`: all checks, with what was found |
| plan | a file, as `allocsim check` takes it: reading and all checks |

Peers are the algorithms of two published validators, written anew here from their sources, on the same rectangles:

* google/minimalloc, `src/validator.cc`, `Validate`: each offset against capacity and alignment, then every pair of buffers, addresses first, then
  lives; the instances have no fixed offsets and no gaps, so those branches are left out. There it is C++; here it is compiled too.
* pytorch/executorch, `exir/memory_planning.py`, `Verifier.verify_storage_reuse`: every pair of specs, storage first, then lifetimes, then their memory
  objects, in Python as there. Intervals are inclusive there, and written so here; collecting specs from a graph is left out.

Both look at all pairs whatever the plan; neither knows of reads, views, streams or runs.

`order`: detector H: happens-before over streams, on clean plans of many ops and on inputs made to hurt. Each case is built first, then `check_order` alone is
timed: CPU seconds of the process, the median of three, compiled code warm. What is of interest is how the time grows with ops and streams; `ratio` is the
time for each op against that of the smallest case of its kind.

| case | what it is |
|---|---|
| clean | a slot for each stream, reused op after op, a wait on another stream every fourth op, whole slots and parts of them |
| overlaid | slots over each other at random places of one arena; an op waits for the one 17 before it, and a place is taken again long after |
| one value | one value written once and read by every op of eight streams |
| one stream | all ops on one stream, in a program that has eight |
| racing | the clean case without its waits: as many races as are counted |
| fragments | half the ops write a small piece each, the others read all pieces; in order |

`against`: the judge of this checkout against that of another one: a chain of ops of version 1, processor time, in turns. OTHER is a checkout from before a
change (`git archive COMMIT | tar -x -C OTHER`). Each side judges in processes of its own, three times each, of which the least counts; the figure is the
median over pairs of this / other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from harness import ROOT, Found, child, cpu, forked, grown, in_turns, kept, peak_mib, ratio, run_one_of

import hurtful
import numpy as np

from allocsim.document import read
from allocsim.errors import AllocsimError
from allocsim.judge.fast import SCREENED, check
from allocsim.judge.fast.h_races import check_order
from allocsim.judge.fast.s_dataflow import check_dataflow
from allocsim.judge.fast.s_overlap import check_overlap
from allocsim.judge.fast.trial import Findings, TrialDocument
from allocsim.model import SAME, Document, Problem, Program

NBYTES = hurtful.SIZE
"""Of a buffer of the clean case."""


def order() -> Iterator[Found]:
    """Time every case."""
    base: dict[str, float] = {}
    check_order(TrialDocument(clean(20_000, 8), SCREENED), Findings(0))  # compiles

    def timed(name: str, build: Callable[[int, int], Document], ops: int, streams: int) -> Found:
        case, findings = TrialDocument(build(ops, streams), SCREENED), Findings(0)
        check_order(case, findings)
        seconds, _ = cpu(lambda: check_order(case, Findings(0)), 3)
        row = {"case": name, "ops": ops, "streams": streams, "races": findings.counts["Race"]}
        ratio = round(seconds / ops / base.setdefault(name, seconds / ops), 2)
        return {**row, "seconds": round(seconds, 3), "ratio": ratio}

    return grown((timed(name, build, *size) for name, build, sizes in CASES for size in sizes), under="rows")


def clean(ops: int, streams: int) -> Document:
    """Each op reads the last value of its own stream, and every fourth that of the next stream, which it waits for."""
    return _chains(ops, streams, waits=True)


def racing(ops: int, streams: int) -> Document:
    """The same without waits."""
    return _chains(ops, streams, waits=False)


def _chains(ops: int, streams: int, *, waits: bool) -> Document:
    """Op `i` runs on stream `i % streams` and writes buffer `i`; a stream has two slots that its ops use in turn, read before they are reused.

    The op before on the next stream is read every fourth round, and in the round after that the next stream waits for the reader, before it
    takes the slot again.
    """
    step = np.arange(ops)
    round_, stream = step // streams, step % streams
    neighbour = np.where(stream == streams - 1, step - streams - (streams - 1), step - streams + 1)
    reads_neighbour = (round_ % 4 == 1) & (neighbour >= 0) & (streams > 1)
    own = step - streams
    both = zip(own, neighbour, reads_neighbour, strict=True)
    operands = [[*([o] if o >= 0 else []), *([n] if r else [])] for o, n, r in both]
    # two rounds later the slot of what was read is taken again: wait for the reader
    reader = np.where(stream == 0, step - streams + (streams - 1), step - streams - 1)
    waits_reader = (round_ % 4 == 2) & (reader >= 0) & (streams > 1)
    all_four = zip(neighbour, reads_neighbour, reader, waits_reader, strict=True)
    after = [[*([n] if r else []), *([w] if q else [])] for n, r, w, q in all_four]
    offset = (stream * 2 + round_ % 2) * NBYTES
    return _document(streams, operands, after if waits else [[]] * ops, stream, offset.astype(np.int64))


def overlaid(ops: int, streams: int) -> Document:
    """Op `i` waits for op `i - 17`, so that it knows all that was `17 * streams` before; its slot lies anywhere in a stretch taken again after that."""
    step = np.arange(ops)
    rng = np.random.default_rng(0)
    turns = 32 * streams
    offset = step % turns * 2 * ops + rng.integers(0, ops, ops)
    operands = [[own] if own >= 0 else [] for own in (step - streams).tolist()]
    after = [[wait] if wait >= 0 else [] for wait in (step - 17).tolist()]
    return _document(streams, operands, after, step % streams, offset.astype(np.int64))


def one_value(ops: int, streams: int) -> Document:
    """Op 0 writes, all others read its value and write one of their own; the first of each stream waits for op 0."""
    stream = np.arange(ops) % streams
    operands = [[]] + [[0]] * (ops - 1)
    after: list[list[int]] = [[0] if 0 < step < streams else [] for step in range(ops)]
    return _document(streams, operands, after, stream, np.arange(ops, dtype=np.int64) * NBYTES)


def one_stream(ops: int, streams: int) -> Document:
    """The chain of the clean case on stream 0 alone."""
    operands = [[step - 1] if step else [] for step in range(ops)]
    offset = (np.arange(ops) % 2 * NBYTES).astype(np.int64)
    return _document(streams, operands, [[]] * ops, np.zeros(ops, dtype=np.int64), offset)


def fragments(ops: int, streams: int) -> Document:
    """The first half writes pieces of one buffer on stream 0, the second reads them all, on streams that wait for the last piece."""
    half = ops // 2
    stream = np.where(np.arange(ops) < half, 0, 1 + np.arange(ops) % (streams - 1))
    seen: set[int] = set()
    after: list[list[int]] = []
    for step in range(ops):
        fresh = step >= half and stream[step] not in seen
        seen.add(int(stream[step]))
        after.append([half - 1] if fresh else [])
    pieces = 8 * half
    program = hurtful.program(
        [pieces],
        np.zeros(half + 1),
        _entries([[]] * half + [[half]] * (ops - half)),
        _entries([[step] for step in range(half)] + [[]] * (ops - half)),
        offset=np.append(np.arange(half) * 8, 0),
        count=np.append(np.full(half, 8), pieces),
        streams=streams,
        stream=stream,
        after=_entries(after),
    )
    return hurtful.document(program, 0)


def _document(streams: int, operands: list[Any], after: list[Any], stream: Any, offset: Any) -> Document:
    step, reads, waits = np.arange(len(operands)), _entries(operands), _entries(after)
    nbytes, writes = np.full(len(step), NBYTES), hurtful.one_each(step)
    program = hurtful.program(nbytes, step, reads, writes, streams=streams, stream=stream, after=waits)
    return hurtful.document(program, offset)


def _entries(rows: list[Any]) -> tuple[Any, Any]:
    return np.array([len(row) for row in rows]), np.concatenate([*rows, []]).astype(np.int32)


CASES: list[tuple[str, Callable[[int, int], Document], list[tuple[int, int]]]] = [
    ("clean", clean, [(10_000, 8), (100_000, 8), (100_000, 64), (1_000_000, 8)]),
    ("overlaid", overlaid, [(10_000, 8), (100_000, 8), (100_000, 64)]),
    ("one value", one_value, [(100_000, 8), (1_000_000, 8)]),
    ("one stream", one_stream, [(1_000_000, 8)]),
    ("racing", racing, [(10_000, 8), (100_000, 8)]),
    ("fragments", fragments, [(10_000, 8), (100_000, 8)]),
]
Row = dict[str, Any]


class Asked(NamedTuple):
    """What the command line says."""

    scale: float
    repeat: int
    plan: str

    def sizes(self, *sizes: int) -> list[int]:
        """Return sizes times `--scale`."""
        return [max(int(size * self.scale), 16) for size in sizes]


def timed(work: Callable[[], Any], repeat: int) -> float:
    """Return the median CPU seconds of some turns, after one that warms up."""
    work()
    return cpu(work, repeat)[0]


def growing(name: str, sizes: list[int], checks: Callable[[int], Row]) -> Iterator[Row]:
    """Measure at each size, and say how the time grows: the slope of log time over log size."""
    seconds = []
    for size in sizes:
        row = {"case": name, "size": size, **checks(size)}
        seconds.append(row["seconds"])
        row["seconds"] = round(row["seconds"], 4)
        yield row
    if len(sizes) > 2:
        slope = np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-6)), 1)[0]
        yield {"case": name, "exponent": round(float(slope), 2)}


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
    program = hurtful.program(found.high - found.low, [], hurtful.nothing(0), hurtful.nothing(0))
    problem = Problem.of(program, start=found.start, stop=found.stop)
    return hurtful.document(program, found.low, problem=problem)


def combed(runs: int) -> Document:
    """Values of a thousand byte runs each, two of them woven into each buffer, written and read in turn, in a ring of slots."""
    teeth = 1000
    pairs = max(runs // (4 * teeth), 1)
    buffer = np.repeat(np.arange(pairs), 2)
    step = np.arange(2 * pairs)
    # writes of a buffer, then reads of it
    reads = np.tile([0, 0, 1, 1], pairs), step
    writes = np.tile([1, 1, 0, 0], pairs), step
    like = {"offset": step % 2, "count": np.full(2 * pairs, teeth), "stride": np.full(2 * pairs, 2)}
    program = hurtful.program(np.full(pairs, 2 * teeth), buffer, reads, writes, **like)
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
    reads, like = (wanted.sum(axis=1), pairs[wanted]), {"count": sizes, "kinds": ("f", SAME), "kind": handed}
    program = hurtful.program(sizes, step, reads, hurtful.one_each(step), **like)
    return program, step % 22 * 4096


def nothing_found(judge: Callable[[TrialDocument, Findings], None], document: Document) -> None:
    """Run one check on a document, which must be clean."""
    findings = Findings(0)
    judge(TrialDocument(document, SCREENED), findings)
    assert not findings.count("violation"), dict(findings.counts)


def alone(part: str, asked: Asked) -> Iterator[Row]:
    """Time one check on documents of `ALONE`."""
    for name, sizes, build, judge in ALONE[part]:

        def checks(size: int, build: Any = build, judge: Any = judge) -> Row:
            document = build(size)
            return {"seconds": timed(lambda: nothing_found(judge, document), asked.repeat if size < FEW else 1)}

        yield from growing(name, asked.sizes(*sizes), checks)


def ops(asked: Asked) -> Iterator[Row]:
    """Time all checks on a chain."""

    def checks(size: int) -> Row:
        document = chained(size)
        seconds = timed(lambda: check(document), max(asked.repeat // 3, 1))
        alone = timed(lambda: nothing_found(check_dataflow, document), 1)
        return {"seconds": seconds, "replay_alone": round(alone, 3), "most_mebibytes_so_far": peak_mib()}

    yield from growing("chain", asked.sizes(*BIG), checks)


def same(asked: Asked) -> Iterator[Row]:
    """Time all checks on the chain with a `same` at every eighth op."""
    program, offset = chain_of(asked.sizes(1_000_000)[0], 8)
    home = np.where(program.same_ops, np.roll(offset, 1), offset)
    documents = {
        "version 1": hurtful.document(replace(program, version=1), offset),
        "to another place": hurtful.document(program, offset),
        "to its own place": hurtful.document(program, home),
    }
    warm, its_offset = chain_of(asked.sizes(100_000)[0], 8)
    for version in (1, 2):
        assert check(hurtful.document(replace(warm, version=version), its_offset)).clean
    seconds: dict[str, list[float]] = {name: [] for name in documents}
    for _ in range(asked.repeat):
        for name, document in documents.items():
            took, clean = forked(lambda document=document: cpu(lambda: check(document).clean))[0]
            assert clean
            seconds[name].append(took)
    middle = {name: median(found) for name, found in seconds.items()}
    for name, found in middle.items():
        row = {"case": name, "size": len(program.ops), "seconds": round(found, 3)}
        yield {**row, "to version 1": round(found / middle["version 1"], 3)}


def peers(asked: Asked) -> Iterator[Row]:
    """Time the validators of others on the same tilings, ours beside them."""
    cases = ("minimalloc", minimalloc, (10_000, 20_000)), ("executorch", executorch, (500, 1000))
    for name, validate, sizes in cases:

        def checks(size: int, *, validate: Callable[[Tiling], bool] = validate) -> Row:
            found = tiling(size, shuffled=False)
            assert validate(found)
            seconds = timed(lambda: validate(found), 1)
            document = tiled(found)
            ours = timed(lambda: nothing_found(check_overlap, document), asked.repeat)
            each = round(seconds / (size * (size - 1) / 2) * 1e9, 1)
            row = {"seconds": seconds, "nanoseconds_a_pair": each}
            return {**row, "ours": round(ours, 4), "ratio": round(seconds / ours)}

        yield from growing(name, asked.sizes(*sizes), checks)


def minimalloc(found: Tiling) -> bool:
    """Look at every offset, then at every pair of buffers, as minimalloc's `Validate` does: kGood or not."""
    size, capacity, alignment = found.high - found.low, int(found.high.max()), np.ones_like(found.low)
    return bool(_all_pairs()(found.start, found.stop, found.low, size, alignment, capacity))


@cache
def _all_pairs() -> Callable[..., bool]:
    import numba

    @numba.njit
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

    return validate  # type: ignore[no-any-return]


class TensorSpec(NamedTuple):
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
    for index, one in enumerate(specs):
        for other in specs[index + 1 :]:
            if (one.mem_obj_id is None) != (other.mem_obj_id is None):
                return False
            apart_in_time = not _inclusive_meet(one.lifetime, other.lifetime)
            if _storage_meets(one, other) and not (apart_in_time and one.mem_obj_id in (None, other.mem_obj_id)):
                return False
    return True


def _inclusive_meet(a: list[int], b: list[int]) -> bool:
    if a[0] > a[1] or b[0] > b[1]:
        return False
    return (b[0] <= a[0] <= b[1]) or (a[0] <= b[0] <= a[1])


def _storage_meets(a: TensorSpec, b: TensorSpec) -> bool:
    if a.mem_id != b.mem_id:
        return False
    assert min(a.allocated_memory, b.allocated_memory, a.mem_offset, b.mem_offset) >= 0
    return _inclusive_meet(*([one.mem_offset, one.mem_offset + one.allocated_memory - 1] for one in (a, b)))


def hurt(asked: Asked) -> Iterator[Row]:
    """Time all checks on documents made to hurt."""
    for name, case in hurtful.CASES.items():

        def checks(size: int, *, case: hurtful.Case = case) -> Row:
            document = case.build(size)
            seconds, report = cpu(lambda: check(document))
            assert set(report.counts) == set(case.kinds)
            return {"seconds": seconds, "found": dict(report.counts), "truncated": report.truncated}

        yield from growing(name, asked.sizes(*BIG), checks)
    document = hurtful.all_at_once(asked.sizes(1_000_000)[0])
    seconds, error = cpu(lambda: refused(document))
    yield {"case": "all at once", "seconds": round(seconds, 3), "refused": error}


def refused(document: Document) -> str:
    """Return the line in which the judge refuses a document, empty where it does not."""
    try:
        check(document)
    except AllocsimError as error:
        return str(error)
    return ""


def plan(asked: Asked) -> Iterator[Row]:
    """Time reading and judging a file."""
    if not asked.plan:
        return
    path = Path(asked.plan)
    document = read(path)
    yield {
        "case": "file",
        "ops": sum(len(program.ops) for program in document.programs),
        "check": round(timed(lambda: check(document), 3 * asked.repeat), 4),
        "read_and_check": round(timed(lambda: check(read(path)), 3 * asked.repeat), 4),
    }


BIG = (125_000, 250_000, 500_000, 1_000_000)
FEW = 2_000_001
"""From so many on a check is timed once."""
ALONE: dict[str, list[tuple[str, tuple[int, ...], Callable[[int], Document], Callable[..., None]]]] = {
    "overlap": [
        ("in order", BIG, lambda size: tiled(tiling(size, shuffled=False)), check_overlap),
        ("shuffled", BIG, lambda size: tiled(tiling(size, shuffled=True)), check_overlap),
    ],
    "overlap-large": [("in order", (10_000_000,), lambda size: tiled(tiling(size, shuffled=False)), check_overlap)],
    "replay": [("byte runs", (250_000, 500_000, 1_000_000, 2_000_000), combed, check_dataflow)],
    "streams": [("8 streams", (12_500, 25_000, 50_000, 100_000), lambda ops: clean(ops, 8), check_order)],
}
"""Part -> its cases: name, sizes, what makes a document of a size, the check; `overlap-large` takes 4 GB."""
PARTS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "overlap": partial(alone, "overlap"),
    "overlap-large": partial(alone, "overlap-large"),
    "replay": partial(alone, "replay"),
    "ops": ops,
    "same": same,
    "streams": partial(alone, "streams"),
    "peers": peers,
    "hurtful": hurt,
    "plan": plan,
}


def checks(
    *, part: tuple[str, ...] = tuple(PARTS), scale: float = 1.0, repeat: int = 3, plan: str = "", out: Path
) -> Iterator[Found]:
    """Run the parts named, or all; `plan` is a document for the part of that name."""
    known: list[Row] = kept(out).get("rows", [])
    for name in part:
        measured: list[Row] = []
        for row in PARTS[name](Asked(scale, repeat, plan)):
            measured.append({"part": name, **row})
            print(measured[-1], flush=True)
        known = [row for row in known if row["part"] != name] + measured
        yield {"rows": sorted(known, key=lambda row: list(PARTS).index(row["part"]))}


SIDE = """
import gc, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/benchmarks", sys.argv[1] + "/tests"]
from checks import chained
from allocsim.judge.fast import check
spent = []
for _ in range(3):
    document = chained(int(sys.argv[2]))
    gc.collect()
    began = time.process_time()
    assert check(document).clean
    spent.append(time.process_time() - began)
print(min(spent))
"""


def against(other: Path, *, ops: int = 1_000_000, pairs: int = 6) -> Found:
    """Judge in turns."""

    def judged(tree: Path) -> float:
        return float(child("-c", SIDE, tree.resolve(), str(ops), clean=True)[-1])  # each side its own checkout

    spent = in_turns({"this": lambda: judged(ROOT), "other": lambda: judged(other)}, pairs)
    return {"ops": ops, "ratio": ratio(spent["this"], spent["other"])}


if __name__ == "__main__":
    run_one_of(checks, order, against, known={"checks": {"part": PARTS}})
