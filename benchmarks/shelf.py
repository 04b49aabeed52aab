"""Planners of the shelf, each asked something of its own.

    python benchmarks/shelf.py laws [--programs N] [--planners NAME,...] [--out FILE]
    python benchmarks/shelf.py least DATA [--seconds S] [--nodes N] [--out FILE]
    python benchmarks/shelf.py library [--programs N] [--out FILE]
    python benchmarks/shelf.py worst [--tries N] [--planners NAME,...] [--data FOLDER] [--out FILE]
    ALLOCSIM_PEERS=python-with-them python benchmarks/shelf.py live_planners [NAME ...] [--problems N] [--first SEED] [--out FILE]
    python benchmarks/shelf.py planning [--data FOLDER] [--rounds N] [--out FILE]
    python benchmarks/shelf.py large [--counts N,...] [--instances NAME,...] [--planners NAME,...] [--rounds N] [--beside NAME] [--out FILE]

`laws`: which planner keeps which law on pairs, promised or not, on programs drawn from one seed. For each law and planner: so many pairs were asked, in so many
the two answers break the law. `docs/fuzzing.md` has the table. Exit status 1 where a promise was broken.

`least`: certificates of the least peak for minimalloc's challenging instances, or the best bound that was proved. DATA is a folder with `A.1048576.csv` to
`K.1048576.csv` (minimalloc, `benchmarks/challenging`), which are no part of this project. Each is planned by `exact`, for S seconds of processor time where no
proof comes before, first with its MiB as enough and then without; the certificate of the lower plan, whose proof may split N times into cases, is asked of
`docs/planners/check_certificate.py` with the instance. Exit status 1 where the checker does not accept a certificate.

`library`: programs a second of a planner in a shared library, `docs/planners/library.c`, built here. Two figures, in processor time: the planner alone, asked
batches of the exhaustive source, its belief made anew for each (`LibraryPlanner.plan_parts`); and a whole campaign, in which each program is asked twice, once
more with everything pinned and once more with something told, and all plans are judged. The exit status is 1 where the planner alone answers fewer than `AIM`
programs a second.

`worst`: the worst waste of each planner: small instances on which its peak is far above the least there is. From a drawn instance of at most `BUFFERS` buffers,
one buffer at a time is changed (its life, its size), added or left out; what does not lower the ratio is kept. The ratio is the planner's peak over the least
peak, which `exact` proves. Begun anew where nothing helps for long. All is drawn from one seed and the planner's name, and each of `tries` instances is
planned, so a longer search finds no less. A name is one of the shelf or, as for `--allocator`, another planner that places what it is given (a function of a
problem, `cmd:`, `lib:`). The worst instances are kept as CSV files of minimalloc in `tests/data/worst`, and tests hold the shelf to the ratios found there.

`live_planners`: planners of other systems, asked the same random problems as the shelf: sound or not, and bytes over the bound. A problem is drawn from its
seed: up to 60 buffers with lives, sizes and pins, in one arena; as lives of a deep network (nested), of a chain, or at random. Each plan is judged by
`check`; `over` is the median of peak over the lower bound, `reference` how often no reuse at all needs less.

`planning`: planners against the lower bound: solver's instances, a large training problem, the flagship training graph. FOLDER holds `minimalloc/*.csv` and
`idealloc/*.csv`; `../shared/data` beside the checkout is tried by default, and what is not there is left out. Times are processor time at one thread, the
median of the rounds, after a call that pays for compilation. Ratios are peak over the bound of `allocsim.allocators.lower_bounds`; `exact` is asked for a
plan within a MiB on the challenging instances, as their solver is. Where minimalloc's own solver is on the path (`minimalloc`, built from its public source),
it is asked for the same, in turn with `exact`; its time is that of a process that reads and writes a file. All eleven instances are in its repository
(`benchmarks`); figures in `results` are of all of them.

`large`: the shelf at scale: 100,000 and 1,000,000 buffers, on named instances that this script makes.

| instance | lives |
|---|---|
| `inference` | short, geometric of 8 steps at the mean; one buffer in a thousand lives for 5,000 steps |
| `training` | steps of a training of 100 layers, one after another: of each layer two activations live until its backward pass, six others for one to four steps |
| `mixed` | from one step to 1,000, even on a log scale, begun anywhere: about 145 live at once |
| `wide` | as `mixed`, to 10,000 steps: about 1,100 live at once |

Sizes are even on a log scale from 256 bytes to 64 MiB, multiples of 64, two in three of them of a few common ones. All is drawn from one seed, so that an
instance is the same everywhere. A time is processor time of one thread for planning alone (`Allocator.place`), the least of the rounds, after a call that
compiles. Every plan is judged: no two buffers that live at once share a byte. Ratios are the peak over the most bytes that live at once. Figures of what is
not asked stay as they were; beside the JSON a table for people is written. On a machine whose speed changes, `--beside NAME` measures each planner in turns
with one whose row stands: seconds are those of that row times the median ratio of the rounds, so that the machine's speed cancels. The row says `beside`
whom, and the ratios.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final

from harness import DATA, ROOT, Found, cpu, grown, kept, markdown, run_one_of, took

import numpy as np

from allocsim import systems
from allocsim.allocators import ALLOCATORS, Constraints, branch_and_bound, find
from allocsim.allocators.branch_and_bound import place, proof
from allocsim.allocators.by_library import find_library
from allocsim.allocators.certificate import certificate
from allocsim.allocators.comparison import compare
from allocsim.allocators.live_planners import LIVE_PLANNERS
from allocsim.allocators.lower_bounds import lower_bound
from allocsim.errors import EngineError, PlannerError
from allocsim.fuzzing import CampaignSpec, Target, campaign, chunks
from allocsim.fuzzing.bulk import Cut, batch_of
from allocsim.fuzzing.exercised import Within
from allocsim.fuzzing.exhaustive import batches
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.fuzzing.laws import LAWS, LawPair
from allocsim.fuzzing.told_constraints import gapped
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Plan, Problem, Program
from allocsim.programs.builder import ProgramBuilder
from allocsim.systems import load
from allocsim.systems.minimalloc import solver_instance as minimalloc

SEED: Final = 33


def law_pairs(law: str, programs: int) -> Iterator[LawPair]:
    """Yield two pairs at most of each program; a batch in four has arenas with an end."""
    for number in range(4):
        batch = batch_of(np.random.default_rng([SEED, number]), programs // 4, capped=number == 3)
        for case in Cut(batch):
            told = gapped(case.program) if LAWS[law].of_lives else FuzzCase(program=case.program)
            yield from LAWS[law].pairs(told, 2)


def kept_by(name: str, asked: dict[str, list[LawPair]]) -> dict[str, Any]:
    """Return of each law how many pairs were asked of a planner, in how many it is broken, and whether it is promised."""
    within = Within(ALLOCATORS[name])
    row: dict[str, Any] = {}
    for law, made in asked.items():
        broken = sum(LAWS[law].broken(pair, *within.ask([pair.one, pair.other])) is not None for pair in made)
        row[law] = {"pairs": len(made), "broken": broken, "promised": law in ALLOCATORS[name].guarantees}
    return row


def laws(*, programs: int = 200, planners: tuple[str, ...] = ()) -> Iterator[Found]:
    """Ask the planners that are named, or all."""
    asked = {law: list(law_pairs(law, programs)) for law in LAWS}
    rows: Found = {}
    for name in planners or ALLOCATORS:
        rows[name] = kept_by(name, asked)
        cells = (f"{'promised' if row['promised'] else row['broken']}" for row in rows[name].values())
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
        every = [(name, law, one) for name, row in rows.items() for law, one in row.items()]
        broken = [[name, law] for name, law, one in every if one["promised"] and one["broken"]]
        yield {"seed": SEED, "planners": rows, "promises broken": broken}


MIB: Final = 1 << 20
CHECKER: Final = ROOT / "docs" / "planners" / "check_certificate.py"


def proved(path: Path, seconds: float, nodes: int) -> dict[str, Any]:
    """Return what is known of the least peak of an instance, and what the checker says of it."""
    problem = load(path).problems[0]
    begun = time.process_time()
    fits = place(problem, enough=MIB, seconds=60.0)
    quick = time.process_time() - begun
    plan = min(fits, place(problem, seconds=seconds), key=lambda plan: plan.peak_bytes)
    spent = time.process_time() - begun
    record = certificate(plan, nodes=nodes)
    assert record is not None
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "certificate.json"
        written.write_text(json.dumps(record))
        asked = [sys.executable, str(CHECKER), str(written), str(path)]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
    return {
        "buffers": len(problem.nbytes),
        "seconds to a MiB": round(quick, 2),
        "nodes to a MiB": proof(fits)["nodes"],
        "seconds in all": round(spent, 1),
        "peak": record["peak"],
        "bound": record["bound"],
        "rows of the proof": len(record["proof"]),
        "checker": said.stdout.strip(),
    }


def least(data: str, *, seconds: float = 10.0, nodes: int = 0) -> Iterator[Found]:
    """Ask each instance of a folder."""
    place(load(Path(data) / "B.1048576.csv").problems[0], nodes=1)  # compiled before it is measured
    rows: Found = {}
    for path in sorted(Path(data).glob("?.1048576.csv")):
        rows[path.name[0]] = row = proved(path, seconds, nodes)
        print(path.name[0], row, flush=True)
        refused = [name for name, row in rows.items() if not row["checker"].startswith("accepted")]
        yield {"unit": "CPU seconds, bytes", "instances": rows, "refused": refused}


AIM: Final = 20_000
"""Programs a second that the planner answers, at least."""
OPS: Final = 5


def library(*, programs: int = 200_000) -> Found:
    """Build and ask."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        compiler = shutil.which("cc") or sys.exit("there is no cc")
        source = ROOT / "docs" / "planners" / "library.c"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        figures = {
            "unit": "programs a second of processor time",
            "aim": AIM,
            "planner_alone": round(alone(f"lib:{library}", programs)),
            "campaign": round(in_a_campaign(f"lib:{library}")),
        }
    return {**figures, "too_slow": figures["planner_alone"] < AIM}


def alone(name: str, programs: int) -> float:
    """Return the programs a second that the planner answers, in batches of the exhaustive source."""
    planner, answered, seconds = find_library(name), 0, 0.0
    for chunk in chunks("exhaustive", seed=0, options={"ops": OPS}, total=None):
        for batch in batches(OPS, chunk.begin, chunk.count):
            begun = time.process_time()
            told = Constraints.of(batch.program)
            starts = {"op_starts": batch.op_starts, "buffer_starts": batch.buffer_starts}
            planner.plan_parts(batch.program, told, **starts, arenas=batch.arenas)
            seconds += time.process_time() - begun
            answered += len(batch)
        if answered >= programs:
            break
    planner.close()
    return answered / seconds


def in_a_campaign(name: str) -> float:
    """Return the programs a second of a campaign over every program of up to four ops."""
    asked = CampaignSpec(target=Target(name=name), source="exhaustive", options={"ops": 4})
    tally = campaign(asked).tally
    return tally.programs / (sum(tally.microseconds.values()) / 1e6)


BUFFERS: Final = 12
STEPS: Final = 10
SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24)
UNIT: Final = 64
"""Bytes of a size of 1."""
PATIENCE: Final = 300
"""Instances in turn that are no worse, after which another one is drawn."""
KNOWN: Final = ("reference", "best", "exact", "caching")
"""Left out: what reuses nothing, what searches, and what takes segments of megabytes."""
Row = tuple[int, int, int]
"""First step, the one after the last, size in units."""


def drawn(rng: random.Random) -> Row:
    """One buffer."""
    start = rng.randrange(STEPS)
    return start, rng.randrange(start, STEPS) + 1, rng.choice(SIZES)


def changed(rows: list[Row], rng: random.Random) -> list[Row]:
    """An instance with one buffer changed, added or left out."""
    rows, place = list(rows), rng.randrange(len(rows))
    what = rng.random()
    if what < 0.15 and len(rows) > 2:
        del rows[place]
    elif what < 0.3 and len(rows) < BUFFERS:
        rows.insert(place, drawn(rng))
    elif what < 0.6:
        rows[place] = (*rows[place][:2], rng.choice(SIZES))
    else:
        rows[place] = (*drawn(rng)[:2], rows[place][2])
    return rows


def problem(rows: list[Row]) -> Problem:
    """The problem of an instance."""
    builder = ProgramBuilder("worst", arenas=(Arena(name="memory", alignment=1),))
    for number, (_, _, size) in enumerate(rows):
        builder.buffer(f"b{number}", UNIT * size)
    return Problem.of(builder.build(), start=[row[0] for row in rows], stop=[row[1] for row in rows])


def least_peak(told: Problem) -> int:
    """The least peak, proved."""
    plan = ALLOCATORS["exact"].place(told)
    assert plan.meta["exact"]["proved"]
    return plan.peak_bytes


def search(planner: str, tries: int) -> tuple[float, list[Row]]:
    """The worst ratio found and its instance."""
    rng, found = random.Random(f"worst {planner}"), find(planner)  # noqa: S311 - no secret
    best: tuple[float, list[Row]] = 0.0, []
    here: tuple[float, list[Row]] = 0.0, []
    stuck = PATIENCE
    for _ in range(tries):
        rows = [drawn(rng) for _ in range(BUFFERS)] if stuck >= PATIENCE else changed(here[1], rng)
        told = problem(rows)
        ratio = found.place(told).peak_bytes / least_peak(told)
        if stuck >= PATIENCE or ratio >= here[0]:
            stuck = 0 if stuck >= PATIENCE or ratio > here[0] else stuck + 1
            here = ratio, rows
        else:
            stuck += 1
        if ratio > best[0] or (ratio == best[0] and len(rows) < len(best[1])):
            best = ratio, rows
    return best


def worst(*, tries: int = 2000, planners: tuple[str, ...] = (), data: str = str(DATA / "worst")) -> Iterator[Found]:
    """Search, and write the instances."""
    Path(data).mkdir(exist_ok=True)
    found: Found = {}
    for planner in planners or [name for name in ALLOCATORS if name not in KNOWN]:
        ratio, rows = search(planner, tries)
        told = problem(rows)
        document = Document(programs=(told.program,), problems=(told,))
        (Path(data) / f"{planner.replace('/', '-')}.csv").write_bytes(minimalloc.dumps(document))
        found[planner] = {"ratio": round(ratio, 4), "buffers": len(rows)}
        yield found


ALIGNMENT = 64
BESIDE = ("greedy_by_size", "tlsf", "best_fit")


def drawn_lives(seed: int) -> Problem:
    """Return the problem of a seed."""
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    count, shape = rng.randint(1, 60), rng.choice(("nested", "chain", "random"))
    builder = ProgramBuilder(f"problem {seed}", arenas=[Arena(name="memory", alignment=ALIGNMENT)])
    lives = []
    for number in range(count):
        size = rng.choice((rng.randint(1, 100), 64 * rng.randint(1, 64), 1 << rng.randint(6, 20)))
        builder.buffer(f"b{number}", size)
        start = number if shape != "random" else rng.randrange(count)
        stop = 2 * count - number if shape == "nested" else start + rng.randint(1, 4 if shape == "chain" else count)
        lives.append((start, stop))
    start, stop = np.array(lives, dtype=np.int64).T
    pinned = np.array([rng.random() < 0.1 for _ in lives], dtype=np.bool_)
    return Problem.of(builder.build(), start=start, stop=stop, pinned=pinned)


def asked_of(name: str, first: int, problems: int) -> Found:
    """Ask one planner, and judge what it says."""
    planner, faulty, refused, over, worse = find(name), list[int](), list[str](), list[float](), 0
    begin = time.perf_counter()
    for seed in range(first, first + problems):
        problem = drawn_lives(seed)
        try:
            plan = planner.place(problem)
        except PlannerError as error:
            refused.append(f"{seed}: {error}"[:300])
            continue
        report = check(Document.of(plan))
        faulty += [seed] if report.violations else []
        over.append(report.stats.peak_bytes / max(lower_bound(problem), 1))
        worse += report.stats.peak_bytes > sum(-(-n // ALIGNMENT) * ALIGNMENT for n in problem.nbytes.tolist())
    about = {"planner": name, "problems": problems, "first": first, "faulty": faulty}
    return {
        **about,
        "refused": len(refused),
        "refusals": refused[:3],
        "over": round(median(over), 4) if over else None,
        "over_most": round(max(over), 3) if over else None,
        "above_reference": worse,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def live_planners(*names: str, problems: int = 1000, first: int = 0) -> Iterator[Found]:
    """Ask one planner after the other."""
    return grown((asked_of(name, first, problems) for name in names or (*LIVE_PLANNERS, *BESIDE)), under="rows")


MEBIBYTE = 1 << 20
SOLVER = shutil.which("minimalloc")
LARGE = ("linear_scan", "best_fit", "greedy_by_size", "greedy_by_breadth", "xla_best_fit", "best")
"""Planners that are asked for the plan of tens of thousands of buffers."""


def planning(*, data: str = str(ROOT.parent / "shared" / "data"), rounds: int = 5) -> Iterator[Found]:
    """Measure the instances that are there, and the flagship."""
    results: Found = {}
    compare(Document(programs=()), ALLOCATORS)  # imports and compiles everything
    if (Path(data) / "minimalloc").is_dir():
        results["challenging"] = challenging(Path(data) / "minimalloc", rounds)
        yield results
    for path in sorted((Path(data) / "idealloc").glob("*.csv")):
        document = systems.load(path)
        names = LARGE if len(document.programs[0].buffers) > branch_and_bound.MOST_ITEMS else tuple(ALLOCATORS)
        results[path.stem] = rows_of(document.problems[0], names, rounds)
        yield results
    yield results | {"flagship": of_the_flagship(rounds)}


def challenging(folder: Path, rounds: int) -> dict[str, Any]:
    """Ratio of every planner, and the time `exact` takes to fit each instance into a MiB."""
    ratios: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    solved: dict[str, Any] = {}
    for path in sorted(folder.glob("*.1048576.csv")):
        problem = systems.load(path).problems[0]
        theirs, mine = [], []
        for _ in range(rounds):  # in turn, so that a neighbour's load falls on both
            seconds, plan = cpu(lambda p=problem: branch_and_bound.place(p, enough=MEBIBYTE, nodes=20_000_000))
            mine.append(seconds)
            theirs += [] if SOLVER is None else [solver_seconds(SOLVER, path)]
        judge(plan)
        solved[path.stem] = {"fits": plan.peak_bytes <= MEBIBYTE, "seconds": median(mine), **plan.meta["exact"]}
        solved[path.stem] |= {"minimalloc_seconds": median(theirs)} if theirs else {}
        print("exact", path.stem, plan.peak_bytes, solved[path.stem], flush=True)
        for row in rows_of(problem, [name for name in ALLOCATORS if name != "exact"], rounds, quiet=True):
            ratios.setdefault(row["planner"], []).append(row["ratio"])
            times.setdefault(row["planner"], []).append(row["seconds"])
    table = {name: {"ratio": geometric_mean(of), "most_seconds": max(times[name])} for name, of in ratios.items()}
    for name, entry in sorted(table.items(), key=lambda item: item[1]["ratio"]):
        print(f"challenging  {name:20}  {entry['ratio']:.4f}  {entry['most_seconds'] * 1e3:.1f} ms at most")
    return {"exact": solved, "planners": table}


def solver_seconds(solver: str, path: Path) -> float:
    """Return the processor time of minimalloc's own solver for one instance, its reading and writing included."""
    with tempfile.NamedTemporaryFile() as out:
        ran = took(solver, f"--capacity={MEBIBYTE}", f"--input={path.resolve()}", f"--output={out.name}")
    if ran["status"]:
        raise EngineError(f"{solver}: {ran['err']}")
    return float(ran["cpu"])


def of_the_flagship(rounds: int) -> dict[str, Any]:
    """Forward, backward and SGD of 30 layers in one graph, as the scenario ggml-1501 trains them."""
    from answers import flagship

    program, problem, _ = flagship()
    names = [name for name in ALLOCATORS if name not in {"exact", "buddy", "tlsf", "caching"}]
    about = {"buffers": len(program.buffers), "ops": len(program.ops)}
    return {**about, "planners": rows_of(problem, names, rounds, program=program)}


def rows_of(
    problem: Problem,
    names: tuple[str, ...] | list[str],
    rounds: int,
    *,
    program: Program | None = None,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Plan with each planner; by its own belief where the program says something to believe."""
    bound = lower_bound(problem)
    rows = []
    for name in names:
        planner = ALLOCATORS[name]
        seconds, plan = cpu(lambda p=planner: p.plan(program) if program else p.place(problem), rounds)
        judge(plan)
        rows.append({"planner": name, "ratio": plan.peak_bytes / bound, "seconds": seconds})
        if not quiet:
            print(f"{problem.program.name}  {name:20}  {plan.peak_bytes / bound:.4f}  {seconds * 1e3:.1f} ms")
    return rows


def judge(plan: Plan) -> None:
    """Stop where a plan is not sound: its figures would be worth nothing."""
    report = check(Document.of(plan), limit=1)
    if not report.clean:
        raise EngineError(f"{plan.source}: {report.violations[0].message}")


AIMS: Final = {100_000: 1.0, 1_000_000: 15.0}
"""Buffers -> seconds at most."""
Asked = tuple[int, str, str]
"""Buffers, instance, planner."""
LARGE_SEED: Final = 16
LAYERS: Final = 100


def inference(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Short lives in turn."""
    start = np.arange(count, dtype=np.int64)
    lives = rng.geometric(1 / 8, count)
    lives[rng.random(count) < 0.001] = 5000
    return start, start + lives


def training(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Steps of `LAYERS` layers; each layer has eight buffers forward and eight backward."""
    place = np.arange(count, dtype=np.int64)
    step, within = np.divmod(place, 16 * LAYERS)
    half, rest = np.divmod(within, 8 * LAYERS)
    layer, which = np.divmod(rest, 8)
    kept = (half == 0) & (which < 2)
    until = 16 * LAYERS * step + 8 * LAYERS + 8 * (LAYERS - 1 - layer) + 8
    return place, np.where(kept, until, place + rng.integers(1, 5, count))


def mixed(rng: np.random.Generator, count: int, longest: int = 1000) -> tuple[Any, Any]:
    """Lives of all lengths, anywhere."""
    lives = np.exp(rng.random(count) * np.log(longest)).astype(np.int64)
    start = rng.integers(0, count, count)
    return start, start + lives


def wide(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Ten times as many at once."""
    return mixed(rng, count, 10_000)


INSTANCES: Final[dict[str, Callable[[np.random.Generator, int], tuple[Any, Any]]]] = {
    "inference": inference,
    "training": training,
    "mixed": mixed,
    "wide": wide,
}


def instance(name: str, count: int) -> Problem:
    """Return an instance: one arena without an end, no ops."""
    rng = np.random.default_rng([LARGE_SEED, count])
    start, stop = INSTANCES[name](rng, count)
    any_size = 64 * np.exp(np.log(4) + rng.random(count) * np.log(1 << 18)).astype(np.int64)
    common = 64 * np.exp(np.log(4) + rng.random(12) * np.log(1 << 18)).astype(np.int64)
    nbytes = np.where(rng.random(count) < 2 / 3, rng.choice(common, count), any_size)
    builder = ProgramBuilder(name, arenas=(Arena(name="memory", alignment=64),))
    for buffer, size in enumerate(nbytes.tolist()):
        builder.buffer(f"b{buffer}", size)
    return Problem.of(builder.build(), start=start, stop=stop)


def most_live(problem: Problem) -> int:
    """Return the most bytes that live at one step: no plan needs less."""
    change = np.zeros(int(problem.stop.max()) + 1, dtype=np.int64)
    np.add.at(change, problem.start, problem.nbytes)
    np.add.at(change, problem.stop, -problem.nbytes)
    return int(np.cumsum(change).max())


def placed(problem: Problem, planner: str, rounds: int) -> tuple[Plan, float]:
    """Return the plan and the least processor time in seconds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        plan = ALLOCATORS[planner].place(problem)
        best = min(best, time.process_time() - begun)
    return plan, best


def in_turns_with(problem: Problem, planner: str, other: str, rounds: int) -> tuple[Plan, list[float]]:
    """Return the plan, and for each round the planner's processor time over that of another one just before it."""
    ratios = []
    for _ in range(rounds):
        _, unit = placed(problem, other, 1)
        plan, seconds = placed(problem, planner, 1)
        ratios.append(round(seconds / unit, 3))
        print(f"{planner} {seconds:.2f} s beside {unit:.2f} s", flush=True)
    return plan, ratios


def key(row: dict[str, Any]) -> Asked:
    """Return what a row is of."""
    return row["buffers"], row["instance"], row["planner"]


def page(rows: dict[Asked, dict[str, Any]]) -> str:
    """Return the table for people: a line for each planner, those that need least first."""
    columns = sorted({(row["buffers"], row["instance"]) for row in rows.values()})
    heads = ("planner", *(head for count, name in columns for head in (f"{count:,} `{name}`, s", "ratio")))
    planners = sorted(
        dict.fromkeys(row["planner"] for row in rows.values()), key=lambda name: _ratio(rows, columns, name)
    )
    cells = []
    for planner in planners:
        found = [rows.get((*column, planner)) for column in columns]
        told = ((f"{row['seconds']:.2f}", f"{row['ratio']:.4f}") if row else ("not measured", "") for row in found)
        cells.append((f"`{planner}`", *(cell for pair in told for cell in pair)))
    about = "CPU seconds of one thread, planning alone, and peak over the most bytes that live at once. Written by"
    return "\n".join([about, "`benchmarks/shelf.py large`.", "", *markdown(heads, cells), ""])


def _ratio(rows: dict[Asked, dict[str, Any]], columns: list[tuple[int, str]], planner: str) -> float:
    return min(rows[asked]["ratio"] for column in columns if (asked := (*column, planner)) in rows)


def large(
    *,
    counts: tuple[int, ...] = tuple(AIMS),
    instances: tuple[str, ...] = ("mixed", "wide"),
    planners: tuple[str, ...] = tuple(ALLOCATORS),
    rounds: int = 2,
    beside: str = "",
    out: Path,
) -> Iterator[Found]:
    """Measure; `beside` is a planner whose rows stand, to measure in turns with."""
    for name in {*planners, beside} - {""}:
        ALLOCATORS[name].place(instance("inference", 100))
    rows = {key(row): row for row in kept(out).get("rows", ())}
    missed: list[Asked] = []
    for count, name in product(counts, instances):
        problem = instance(name, count)
        bound, aim = most_live(problem), AIMS.get(count)
        for planner in planners:
            how: dict[str, Any] = {}
            if beside:
                plan, ratios = in_turns_with(problem, planner, beside, rounds)
                seconds = median(ratios) * rows[count, name, beside]["seconds"]
                how = {"beside": beside, "times": ratios}
            else:
                plan, seconds = placed(problem, planner, rounds)
            judge(plan)
            ratio = round(plan.peak_bytes / bound, 4)
            row = {"buffers": count, "instance": name, "planner": planner, "seconds": round(seconds, 2)}
            rows[key(row)] = {**row, "ratio": ratio, "aim": aim, **how}
            missed += [key(row)] * (aim is not None and seconds > aim)
            print(f"{count:>9,}  {name:10} {planner:19} {seconds:6.2f} s  {ratio:.4f}", flush=True)
            out.with_suffix(".md").write_text(page(rows))
            about = {"unit": "CPU seconds of one thread, planning alone", "seed": LARGE_SEED}
            yield {**about, "missed": missed, "rows": [*rows.values()]}


if __name__ == "__main__":
    run_one_of(
        laws,
        least,
        library,
        live_planners,
        planning,
        worst,
        large,
        failed={"laws": "promises broken", "least": "refused", "library": "too_slow", "large": "missed"},
        known={
            "laws": {"planners": ALLOCATORS},
            "large": {"instances": INSTANCES, "planners": ALLOCATORS, "beside": {"", *ALLOCATORS}},
        },
    )
