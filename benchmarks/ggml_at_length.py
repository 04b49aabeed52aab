"""Real ggml at length: random graphs and random programs through it, and what it costs to record and to fuzz it.

    python benchmarks/ggml_at_length.py ggml_fuzzing [--out FILE] [--ggml before,after] [--graphs 1024] [--seeds 20]
    python benchmarks/ggml_at_length.py ggml_recording [--repeat 3] [--out FILE]
    python benchmarks/ggml_at_length.py recorded_sessions --sessions 1000 --faulty 200
    python benchmarks/ggml_at_length.py split_graphs [--out FILE] [--graphs 1000] [--ggml after] [--pipelined]
    python benchmarks/ggml_at_length.py ggml_versions LIBRARY... [--page docs/ggml.md] [--out FILE]
    python benchmarks/ggml_at_length.py ggml_versions --page docs/ggml.md    # the table again, of what was measured

`ggml_fuzzing`: what `allocsim fuzz ggml` costs a graph, after how many graphs it names each unsafe pair of kernels by itself, and how many wrong graphs are
left without a named cause. CPU of this process, the server and its forks: that of a campaign of `--graphs`, less that of one without a graph, which starts
the library. `per_graph_ms` has the findings in it, and that K and D name the first of each cause; `per_clean_graph_ms` is a campaign of the graphs that have
none. `loop_ns` is what a turn of an empty loop took then: on a busy machine all of it takes longer. Campaigns: `--graphs` from each of `--seeds` seeds far
apart; what was measured is kept, and goes on where it was stopped. `pairs` is the graph at which each pair that the audit convicts was named, `unexplained`
are seeds of wrong graphs without a named cause.

`ggml_recording`: what it costs to record a ggml program, and to judge it while it runs, on training steps of 30 layers. The program is
`tests/data/ggml_host/thirty_layers.c` on one thread against the library `before`, with the graph kept or made anew in each step, small and wide. CPU seconds:
of the program alone, of the program with the recorder before it (`recorded`), and of the program and the judge together (`live`: `allocsim record ggml
--live`, from start to end, its imports and the verdict at the end included; `live less start` without the CPU of a judge that has one step to judge). Ratios
are to the program alone; each figure is the least of `--repeat` runs. `log_bytes` is the size of the log for one step.

`recorded_sessions`: random programs of C against a real ggml, recorded and judged: right ones must not be accused, and a planted fault that changes a number
must be. `tests/data/ggml_host/random_sessions.c` draws each program from its seed: one or two graphs, planners shared or not, uploads by call, in halves and
by pointer, states carried in static memory and in the plan's, graphs made anew, a backend scheduler, training steps. Its oracle is the same program with
memory of its own for each tensor: where it prints other numbers than under its plan, something is wrong. Needs `cc` and the library `before`.

`split_graphs`: random graphs on two backends through ggml's scheduler: accusations of right ones, and how the imitation places them. Of each graph: the plan
is captured and judged (S), placed again by the imitation, run, and compared with memory of its own for each tensor. Whatever is wrong must vanish in a run
without the causes that `allocsim audit` names (`allocsim.systems.ggml.random_graphs.explained_graphs`): with the results of those kernels apart, and the
owner of each OUTPUT view flagged too; or the graph must read an old copy (`allocsim.systems.ggml.capture.stale_copies`).

`ggml_versions`: what each version of ggml gets wrong: pairs of op and source, races, and ops that break their contract, in one table. LIBRARY is a wheel (a
file, which is unpacked and not installed), `before`, `after`, or what `allocsim audit --ggml` takes. Each is a column, by its version; what is refused is
kept with the reason; a wheel that is not there, or is none, is misuse: a line, exit status 2, and nothing is measured. The table goes where the page has the
lines `<!-- versions -->` and `<!-- end of versions -->`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from harness import RESULTS, Found, grown, kept, loop_ns, run_one_of, spent

import numpy as np
from ggml_host import compiled

from allocsim.allocators import ALLOCATORS
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.outcomes import outcome_of
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.library import WHEELS
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture.stale_copies import stale_copies
from allocsim.systems.ggml.host_record.host_recorder import LOG, build
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log
from allocsim.systems.ggml.k_audit.guarded_audit import audit_guarded
from allocsim.systems.ggml.k_audit.library_audit import audit
from allocsim.systems.ggml.random_graphs.explained_graphs import NOT_TOLD, kernel_cause
from allocsim.systems.ggml.random_graphs.graph_fuzzing import UNNAMED, fuzz
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.split_graphs import run_split

PAIRS: Final = {
    "before": ("RMS_NORM_BACK/0", "SOFT_MAX_BACK/1", "ADD_ID/1", "SOFT_MAX/2", "ROPE/2", "ROPE_BACK/2"),
    "after": ("ADD_ID/1", "SOFT_MAX/2", "ROPE/2", "ROPE_BACK/2"),
}
"""What the audit calls unsafe or racing, by library."""
APART: Final = 1_000_000
"""Between the first seeds of two campaigns."""


def ggml_fuzzing(
    *, ggml: tuple[str, ...] = ("before", "after"), graphs: int = 1024, seeds: int = 20, out: Path
) -> Iterator[Found]:
    """Measure what is not measured yet of the libraries that are named."""
    found = kept(out)
    for which in ggml:
        row = found.setdefault(which, {})
        row["campaigns"] = row.get("campaigns", [])
        row.update({} if "cost" in row else {"cost": cost_of(which, graphs)})
        yield found
        for number in range(len(row["campaigns"]), seeds):
            row["campaigns"].append(one_campaign(which, APART * number, graphs))
            found["unexplained"] = sum(
                len(one["unexplained"]) for lib in PAIRS if lib in found for one in found[lib]["campaigns"]
            )
            yield found


def cost_of(which: str, graphs: int) -> dict[str, Any]:
    """Return milliseconds of CPU for each graph of a campaign, all and those without a finding."""
    with open_library(which) as child:
        wrong = {fault.seed for fault in fuzz(child, range(graphs))}
    right = [seed for seed in range(graphs) if seed not in wrong]
    start, everything, clean = spent_by(which, ()), spent_by(which, range(graphs)), spent_by(which, right)
    return {
        "graphs": graphs,
        "findings": len(wrong),
        "per_graph_ms": round(1e3 * (everything - start) / graphs, 2),
        "per_clean_graph_ms": round(1e3 * (clean - start) / len(right), 2),
        "loop_ns": loop_ns(),
    }


def spent_by(which: str, seeds: Sequence[int]) -> float:
    """Return the CPU seconds of a campaign, its server and forks among them."""
    before = spent()
    with open_library(which) as child:
        list(fuzz(child, seeds))
    return spent() - before


def one_campaign(which: str, first: int, graphs: int) -> dict[str, Any]:
    """Return at which graph each pair was named, how often each cause was, and the seeds without one."""
    began = spent()
    with open_library(which) as child:
        found = list(fuzz(child, range(first, first + graphs)))
    at = {one.cause.removeprefix("on two backends: "): one.seed - first + 1 for one in reversed(found)}
    return {
        "first": first,
        "graphs": graphs,
        "pairs": {pair: at.get(f"C04 kernel: {pair.replace('/', ' over source ')}") for pair in PAIRS[which]},
        "causes": Counter(one.cause for one in found),
        "unexplained": [one.seed for one in found if one.cause == UNNAMED or " unknown: " in one.cause],
        "cpu_seconds": round(spent() - began, 1),
    }


CASES: Final = {
    "small, kept": ("2000", "32", "16", "kept"),
    "small, anew": ("1000", "32", "16", "anew"),
    "wide, kept": ("20", "256", "64", "kept"),
    "wide, anew": ("20", "256", "64", "anew"),
}
"""Steps, width, tokens, and whether the graph is kept."""


def seconds(command: list[str], **environment: str) -> float:
    """Return the CPU seconds of a command and its children."""
    before = spent()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    return spent() - before


def ggml_recording(*, repeat: int = 3) -> Iterator[Found]:
    """Measure case by case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made, recorder = compiled("thirty_layers", folder), build(folder)
        how = partial(recording_of, made, recorder, folder / "log.jsonl", repeat=repeat)
        yield from grown(((case, how(int(steps), form)) for case, (steps, *form) in CASES.items()), quiet=True)


def recording_of(made: str, recorder: Path, log: Path, steps: int, form: list[str], *, repeat: int) -> dict[str, Any]:
    """Return what one case costs."""

    def least(once: Callable[[], float]) -> float:
        return min(once() for _ in range(repeat))

    def recorded() -> float:
        log.unlink(missing_ok=True)
        return seconds([made, str(steps), *form, "right"], LD_PRELOAD=str(recorder), **{LOG: str(log)})

    def live(count: int) -> float:
        command = [sys.executable, "-m", "allocsim", "record", "ggml", "--live", "--"]
        return seconds([*command, made, str(count), *form, "right"])

    alone = least(lambda: seconds([made, str(steps), *form, "right"]))
    with_recorder = least(recorded)
    nbytes = log.stat().st_size // steps
    whole, start = least(lambda: live(steps)), least(lambda: live(1))
    return {
        "steps": steps,
        "ms_a_step": round(1e3 * alone / steps, 2),
        "recorded": round(with_recorder / alone, 2),
        "live": round(whole / alone, 2),
        "live less start": round((whole - start) / alone, 2),
        "start_seconds": round(start, 2),
        "log_bytes": nbytes,
    }


FAULTS = {1: "an upload left out", 2: "a read that nobody flagged", 3: "uploads for two graphs before both run"}


def printed(command: list[str], **environment: str) -> bytes:
    """Return what a program prints, and its exit status where that is not 0: what errs may crash."""
    done = subprocess.run(command, check=False, capture_output=True, env={**os.environ, **environment})
    return done.stdout + (f"{done.returncode}".encode() if done.returncode else b"")


def accused(command: list[str], recorder: Path, folder: Path) -> tuple[list[str], bool, bytes]:
    """Return what is named in a recorded session, whether uploads were assumed, and its numbers."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    said = printed(command, LD_PRELOAD=str(recorder), **{LOG: str(log)})
    documents = documents_of(read_log(log))
    assert documents
    causes = [cause for document in documents for cause in outcome_of("record", document).causes]
    trusted = any(document.meta["ggml"]["host"]["assumed"] for document in documents)
    return sorted({f"{cause.class_} {cause.party}" for cause in causes}), trusted, said


def recorded_sessions(*, sessions: int = 1000, faulty: int = 200, seed: int = 0) -> Found:
    """Run right programs, and so many with each fault."""
    started = time.process_time()
    result: Found = {"right": sessions, "seed": seed, "accused": {}, "faults": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made, recorder = compiled("random_sessions", folder), build(folder)
        for each in range(seed, seed + sessions):
            named, _, said = accused([made, str(each), "0", "planned"], recorder, folder)
            assert said == printed([made, str(each), "0", "apart"]), f"seed {each} is no right program"
            if named:
                result["accused"][each] = named
        for fault, words in FAULTS.items():
            counts: Counter[str] = Counter()
            missed: list[int] = []
            assumed: list[int] = []
            idle: list[int] = []
            for each in range(seed, seed + faulty):
                named, trusted, said = accused([made, str(each), str(fault), "planned"], recorder, folder)
                wrong = said != printed([made, str(each), str(fault), "apart"])
                counts.update(named if wrong else ())
                (assumed if trusted else missed).extend([each] if wrong and not named else [])
                idle += [each] if named and not wrong else []
            result["faults"][words] = {
                "named": dict(counts),
                "wrong, not named, said to be assumed": assumed,
                "wrong and not named": missed,
                "named and not wrong": idle,
            }
    return result | {"cpu_seconds": round(time.process_time() - started, 1)}


BOTH: Final = tuple(kernel_cause(*pair) for pair in (("ADD_ID", 1), ("SOFT_MAX", 2), ("ROPE", 2), ("ROPE_BACK", 2)))
KNOWN: Final = {
    "before": (*BOTH, kernel_cause("RMS_NORM_BACK", 0), kernel_cause("SOFT_MAX_BACK", 1), NOT_TOLD),
    "after": BOTH,
}
"""What `allocsim audit` and `allocsim fuzz` name in each library."""


def split_graphs(*, graphs: int = 1000, ggml: str = "after", pipelined: bool = False) -> Found:
    """Run the campaign; `pipelined`: by a scheduler that keeps several copies of a tensor."""
    counts: Counter[str] = Counter()
    began = time.process_time()
    with open_library(ggml) as child:
        for seed in range(graphs):
            counts.update(figures(child, seed, known=KNOWN[ggml], pipelined=pipelined))
    found = {"graphs": graphs, "ggml": ggml, **dict(sorted(counts.items()))}
    return found | {"cpu_s_here": round(time.process_time() - began, 1)}


def figures(child: Child, seed: int, *, known: Sequence[str], pipelined: bool = False) -> Counter[str]:
    """Return what one graph adds to the counts."""
    try:
        ran = child.call(run_split, generate(seed), seed, pipelined=pipelined, known=known)
    except ChildDiedError as died:
        return Counter({f"ended by: {died.said}": 1})
    captured = document(ran.rows)
    plan = captured.plans[0]
    placed = plan.arena >= 0
    alike = np.array_equal(ALLOCATORS["ggml"].place(plan.problem).offset[placed], plan.offset[placed])
    old, clean = bool(stale_copies(ran.rows)), check(captured).clean
    found = Counter(
        {
            "splits": ran.splits,
            "copies": sum(row["op"] == "SPLIT_COPY" for row in ran.rows["nodes"]),
            "plans accused": not clean,
            "placed alike by the imitation": alike,
            "that read an old copy": old,
            "that read an old copy, numbers differ": old and bool(ran.differing),
        }
    )
    if ran.differing or not clean:
        why = " and ".join(ran.explained) or ("it reads an old copy" if old else "NOTHING THAT IS KNOWN")
        found[
            f"{'right plan' if clean else 'accused'}, {'other numbers' if ran.differing else 'right numbers'}: {why}"
        ] += 1
    return found


DOES: Final = {
    "Overrun": "writes outside its result",
    "OperandWritten": "writes an operand",
    "ResultUnwritten": "leaves bytes of its result",
    "UndeclaredRead": "reads outside its operands",
    "OldRead": "reads what lay in its result",
    "Threads": "depends on the number of threads",
    "Hang": "does not end",
    "Crash": "ends the process",
}
"""Kind of misdeed (`allocsim.systems.ggml.k_audit.guarded_kernels`) -> what the table says an op does."""
MARKS: Final = re.compile(r"(?<=<!-- versions -->\n)(.*?)(?=<!-- end of versions -->)", re.DOTALL)


def ggml_versions(*libraries: str, page: str = "", out: Path = RESULTS / "ggml_versions.json") -> Iterator[Found]:
    """Audit each library; yield the columns so far. Raises EngineError before that for a wheel that cannot be unpacked."""
    for library in libraries:
        if library.endswith(".whl") and not zipfile.is_zipfile(library):
            raise EngineError(f"{library}: no such wheel" if not Path(library).exists() else f"{library}: is no wheel")
    found: Found = {key: dict(kept(out).get(key, {})) for key in ("columns", "refused")}
    for library in libraries:
        wheel = wheel_of(library)
        for of_before in found.values():
            of_before.pop(wheel, None)
        try:
            found["columns"][wheel] = column(library)
            found["columns"] = dict(sorted(found["columns"].items(), key=lambda item: number(item[1]["ggml"])))
        except EngineError as error:
            found["refused"][wheel] = re.sub(r"'/\S+'", "", str(error)).replace("  ", " ")
        print(wheel, found["columns"].get(wheel, found["refused"].get(wheel)), flush=True)
        yield found
    if page:
        text = Path(page).read_text(encoding="utf-8")
        Path(page).write_text(MARKS.sub(lambda _: "\n".join(["", *table(found["columns"]), "", ""]), text))
    yield found


def number(text: str) -> tuple[int, ...]:
    """Return a version as what sorts."""
    return tuple(map(int, re.findall(r"\d+", text)))


def wheel_of(library: str) -> str:
    """Return the wheel of a library as `name version`; its path where it comes from none."""
    if library in WHEELS:
        return f"{WHEELS[library][0]} {version(WHEELS[library][0])}"
    return " ".join(Path(library).name.split("-")[:2]) if library.endswith(".whl") else library


def column(library: str) -> dict[str, Any]:
    """Return what one library shows."""
    with TemporaryDirectory(prefix="allocsim.") as folder:
        if library.endswith(".whl"):
            with zipfile.ZipFile(library) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if ".so" in name])
        with open_library(folder if library.endswith(".whl") else library) as child:
            return column_of(child)


def column_of(child: Child) -> dict[str, Any]:
    """Return the pairs of a library that are wrong, those that are safe, the ops that break their contract, and all that ran."""
    pairs, contracts = audit(child, threads=(1, 2)), audit_guarded(child, threads=(4,)).rows
    wrong = {f"{row['op']} over source {row['source']}": fault(row) for row in pairs.unsafe}
    return {
        "ggml": pairs.version,
        "pairs": wrong,
        "safe": sorted({f"{row['op']} over source {row['source']}" for row in pairs.rows} - {*wrong}),
        "contracts": {
            f"{row.op} {DOES[kind]}": f"{count} of {row.forms} forms"
            for row in contracts
            for kind, (count, *_) in row.misdeeds.items()
        },
        "ran": [row.op for row in contracts],
    }


def fault(row: dict[str, Any]) -> str:
    """Return how a pair is wrong: with one thread, by a race of several, or both."""
    raced = f"races at {row['races_at']} threads"
    return raced if row["threads"] == row["races_at"] else f"unsafe, {raced}" if row["races_at"] else "unsafe"


def table(columns: dict[str, dict[str, Any]]) -> list[str]:
    """Return the columns in lines of Markdown: a row for each pair and each misdeed that one of them shows."""
    rows = [
        ["ggml", *(one["ggml"] for one in columns.values())],
        ["---"] * (len(columns) + 1),
        ["wheel", *columns],
    ]
    for kind, right, known, absent in (("pairs", "safe", "safe", "not in place"), ("contracts", "no", "ran", "no op")):
        for what in sorted({what for one in columns.values() for what in one[kind]}):
            name = what if kind == "pairs" else what.split(" ")[0]
            cells = [one[kind].get(what, right if name in one[known] else absent) for one in columns.values()]
            rows.append([what, *cells])
    return [f"| {' | '.join(cells)} |" for cells in rows]


if __name__ == "__main__":
    run_one_of(
        ggml_fuzzing,
        ggml_recording,
        ggml_versions,
        recorded_sessions,
        split_graphs,
        failed={"ggml_fuzzing": "unexplained", "recorded_sessions": "accused"},
        known={"split_graphs": {"ggml": KNOWN}},
    )
