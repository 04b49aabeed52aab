"""Random models of another system: is a plan accused whose numbers are right, or clean whose numbers are wrong? A campaign that can be stopped and goes on.

    BENCH_PEERS=python-with-it python benchmarks/random_models.py SYSTEM [--models 1000] [--first SEED] [--seconds S] [--keep FOLDER] [--out FILE]

SYSTEM_models.py draws, runs and compares numbers, seed by seed, in the interpreter that BENCH_PEERS names; its header says with what. What was planned is
judged and replayed here. Numbers `differ` that are further apart than rounding explains. `--seconds`: no batch is begun after this long.

| SYSTEM | what is judged |
|---|---|
| `executorch` | each way through the `.pte` alone. A run is held against the way that it took: a way that is accused and was not run is counted apart, and so is a file whose ways cannot be told from the sides that were taken (a branch that the exporter left out). A model whose buffer outlives the run is held to its first run that differs |
| `inductor` | each wrapper; the numbers of an accused one are compared once more, with its reuse turned off |
| `litert` | the pointers of an interpreter, as it plans a model and with `preserve_all_tensors`; an accusation whose numbers are right is a false one, numbers that differ without an accusation are a fault missed. It is run whole, and nothing is kept |
| `tinygrad` | what the memory planner made of its schedules |
| `xla` | the dump of a function, with its live ranges |

A seed that is done has a folder of its own in the folder of `--keep`, by default `out/SYSTEM`, with `row.json` (what was measured) and what the system
planned. It is not run again; what is kept is judged anew by each run. Exit status 1 where something is not explained yet: `BAD`.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from harness import HERE, PEERS, Found, child, run, until

from allocsim import systems
from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.judge.violations import Report
from allocsim.model import Document
from allocsim.opaque import told_by_replay
from allocsim.systems.executorch import pte_program
from allocsim.systems.executorch.pte_file import parse
from allocsim.systems.litert import litert_pointers
from allocsim.systems.tinygrad import tinygrad_schedule

BATCH: Final = 50
"""Models of one process: the systems take seconds to import."""

MANY: Final = 500
"""Models of LiteRT of one process."""

ROW: Final = "row.json"

AGREES: Final = "clean, numbers agree"
BAD: Final = ("accused, numbers agree", "clean, numbers differ", "refused")
"""What nobody has explained yet."""

FAR: Final = 1e-3
"""Of the largest element: more than float32 loses in such chains of operations. As in the scripts that run the models."""

DISAGREES: Final = "replay and judge disagree"

Row = dict[str, Any]


def replay_word(document: Document, report: Report) -> str:
    """Return what a run with opaque kernels says beside a report of everything that is found in a document.

    Of a right judge and a right replay every accusation comes with numbers that differ or is of a rule alone, every clean plan has run, and none `DISAGREES`.
    """
    told = told_by_replay(document, [[violation] for violation in report.violations], found=report.violations)
    if told.why_not is not None:
        return f"not replayed: {told.why_not}"
    if told.unaccounted or (report.clean and told.host):
        return DISAGREES
    if report.clean:
        return "clean, and no number differs"
    return "accused, and numbers differ" if any(told.differs) else "accused of a rule alone"


def facts(documents: Iterable[Document]) -> Row:
    """Return what judge and replay say of documents."""
    told = [(document, check(document)) for document in documents]
    return {
        "kinds": sorted({violation.kind for _, report in told for violation in report.violations}),
        "doubtful": sum(warning.kind == "AssumedInPlace" for _, report in told for warning in report.warnings),
        "replayed": [replay_word(document, report) for document, report in told],
        "ops": sum(len(program.ops) for document, _ in told for program in document.programs),
    }


def counted(found: Row, *, far: bool, refused: bool = False) -> str:
    """Return what a model is counted as."""
    answer = "accused" if found["kinds"] else "refused in part" if refused else "clean"
    return f"{answer}, numbers {'differ' if far else 'agree'}"


def xla(folder: Path, row: Row) -> Row:
    """Return what is said of the dump of one function, beside what its run gave."""
    found = facts([systems.load(folder / "dump")])
    return {"told": counted(found, far=row["apart"] > FAR), **found}


def inductor(folder: Path, row: Row) -> Row:
    """Return what is said of the wrappers of one model."""
    documents, refused = [], []
    for path in sorted(folder.glob("graph*.py")):
        try:
            documents.append(systems.load(path))
        except AllocsimError as error:
            refused.append(str(error).replace(f"{folder}/", "")[:200])
    found, far = facts(documents), max(row["apart"], row.get("reuse", 0)) > FAR
    return {"told": counted(found, far=far, refused=bool(refused)), "refused": refused, **found}


def tinygrad(folder: Path, row: Row) -> Row:
    """Return what is said of the schedules of one model."""
    far = max(row["planned"]) > FAR
    try:
        document = tinygrad_schedule.loads((folder / "schedules.json").read_bytes(), folder.name)
    except AllocsimError as error:
        if "no plan here" not in str(error):
            raise
        why = f"no buffer was planned, numbers {'differ' if far else 'agree'}"
        return {"told": why, "why": str(error)[:200]}
    found = facts([document])
    same = far and not found["kinds"] and max(row["without"]) > FAR
    return {"told": counted(found, far=far) + ": the same without reuse" * same, **found}


def executorch(folder: Path, row: Row) -> Row:
    """Return what is said of the ways through one program."""
    document = pte_program.loads((folder / "program.pte").read_bytes(), folder.name)
    ways = {sides(plan.program.path): facts([Document.of(plan)]) for plan in document.plans}
    every = sorted({kind for one in ways.values() for kind in one["kinds"]})
    runs = []
    for taken, far in zip(row["sides"], row["planned"], strict=True):
        runs.append((ways[way]["kinds"] if (way := tuple(taken)) in ways else None if every else [], far > FAR))
        if far > FAR:
            break
    answer = "another side by rounding" if row["rounded"] else of_runs(runs, elsewhere=bool(every))
    if answer == "clean, numbers differ":
        answer += reason(folder, row)
    if every == ["Misaligned"]:
        answer = answer.replace("accused", "accused of alignment alone")
    replayed = [word for one in ways.values() for word in one["replayed"]]
    ops = sum(len(program.ops) for program in document.programs)
    return {"told": answer, "kinds": every, "ways": len(ways), "replayed": replayed, "ops": ops}


def reason(folder: Path, row: Row) -> str:
    """Return what is known of a difference that no plan shows; of the rest, nothing."""
    methods = parse((folder / "program.pte").read_bytes(), folder.name)
    both = any(set(method.inputs) & set(method.outputs) for method in methods)
    if both and not row["switches"]["alloc_graph_input"]:
        return ": an input that is returned lies with the caller"
    return ": the same without reuse" if max(row["without"]) > FAR else ""


def sides(path: str) -> tuple[bool, ...]:
    """Return the sides in a way's name, in the order in which they were taken."""
    return tuple(part.endswith("=true") for part in path.split(", ") if part)


def of_runs(runs: list[tuple[list[str] | None, bool]], *, elsewhere: bool) -> str:
    """Return what a model is counted as, from the kinds told of each run's way, and whether its numbers are far."""
    if any(found is None for found, _ in runs):
        return "accused in some way, which one was run is not known"
    if any(far and not found for found, far in runs):
        return "clean, numbers differ"
    if any(far for _, far in runs):
        return "accused, numbers differ"
    if any(found for found, _ in runs):
        return "accused, numbers agree"
    return "accused in a way that was not run" if elsewhere else "clean, numbers agree"


SYSTEMS: Final[dict[str, Callable[[Path, Row], Row]]] = {
    "executorch": executorch, "inductor": inductor, "tinygrad": tinygrad, "xla": xla,
}  # fmt: skip
"""System -> what is said now of a seed that is done, from its folder and its row: `told` is what it is counted as."""

LITERT: Final = "litert"

ENVIRONMENT: Final = {"inductor": {"TORCHINDUCTOR_COMPILE_THREADS": "1"}}
"""Of the models' process, beside this one's."""


def doubted(system: str, row: Row) -> bool:
    """Return whether a seed is to be measured with more doubt (`each_seed.py`)."""
    return system == "inductor" and bool(row.get("kinds")) and "reuse" not in row


def litert(seeds: range, seconds: float, peers: str) -> Found:
    """Run models in an interpreter that has ai-edge-litert, `MANY` a process, and judge the pointers that it gave; nothing is kept."""
    counted, replayed, wrong, version = Counter[str](), Counter[str](), [], ""
    for first in until(seconds, seeds[::MANY]):
        for line in child("litert_models.py", str(first), str(min(first + MANY, seeds.stop)), python=peers, quiet=True):
            row = json.loads(line)
            version = row["dump"]["versions"]
            document = litert_pointers.loads(json.dumps(row["dump"]).encode())
            report = check(document)
            replayed[replay_word(document, report)] += 1
            said = "clean" if report.clean else "convicted"
            counted[f"{said}, numbers {'differ' if row['differs'] else 'agree'}"] += 1
            wrong += [row["seed"]] if row["differs"] else []
    unexplained = counted["convicted, numbers agree"] + counted["clean, numbers differ"]
    return {
        "version": version,
        "models": counted.total(),
        "counts": dict(sorted(counted.items())),
        "replayed": dict(sorted(replayed.items())),
        "seeds that differ": wrong,
        "unexplained": unexplained + replayed[DISAGREES],
    }


def measured(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Yield seeds as they are done."""
    quiet = {"stderr": subprocess.DEVNULL, "text": True, "env": {**os.environ, **environment}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, **quiet) as child:
        assert child.stdout is not None
        yield from (line.strip() for line in child.stdout if line.strip().isdigit())


def row_of(folder: Path, system: str) -> Row:
    """Return the row of a seed, with what is said of it now."""
    row = json.loads((folder / ROW).read_text(encoding="utf-8"))
    if "failed" in row:
        return row | {"told": "not built"}
    try:
        return row | SYSTEMS[system](folder, row)
    except AllocsimError as error:
        return row | {"told": "refused", "why": str(error)[:200]}


def measure(
    system: str,
    *,
    models: int = 1000,
    first: int = 0,
    seconds: float = float("inf"),
    peers: str = PEERS,
    keep: str = "",
) -> Found:
    """Run what is missing, judge all that is kept, and count."""
    folder, environment = Path(keep or f"out/{system}"), ENVIRONMENT.get(system, {})
    seeds = range(first, first + models)
    if system == LITERT:
        return litert(seeds, seconds, peers)
    left = [str(seed) for seed in seeds if not (folder / str(seed) / ROW).is_file()]
    for at in until(seconds, range(0, len(left), BATCH)):
        command = [peers, "-W", "ignore", str(HERE / f"{system}_models.py"), str(folder)]
        for seed in measured([*command, *left[at : at + BATCH]], environment):
            print(seed, end=" ", flush=True)
            if doubted(system, row_of(folder / seed, system)):
                list(measured([*command, f"{seed}!"], environment))
    rows = sorted((row_of(path.parent, system) for path in folder.glob(f"*/{ROW}")), key=lambda row: row["seed"])
    counts = Counter(str(row["told"]) for row in rows)
    replayed = Counter(word for row in rows for word in row.get("replayed", ()))
    version = next((row["version"] for row in rows if "version" in row), "")
    failures = Counter(str(row["failed"])[:80] for row in rows if "failed" in row)  # the rest differs between models
    return {
        "version": f"{system} {version}", "models": len(rows), "ops": sum(row.get("ops", 0) for row in rows),
        "counts": dict(sorted(counts.items())), "replayed": dict(sorted(replayed.items())), "failures": dict(failures.most_common(8)),
        "all but clean ones that agree": [row for row in rows if row["told"] != AGREES],
        "unexplained": sum(counts[told] for told in BAD) + replayed[DISAGREES],
    }  # fmt: skip


if __name__ == "__main__":
    run(measure, failed="unexplained", known={"system": (*SYSTEMS, LITERT)}, called="{system}")
