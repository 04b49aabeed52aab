"""What an answer costs: of a faulty plan at full size, of documents made to hurt, of large files of other systems.

    python benchmarks/answers.py answer [--rounds 5] [--out FILE]
    python benchmarks/answers.py hurtful [--size N] [--case NAME,...] [--command NAME,...] [--seconds S] [--out FILE]
    BENCH_PEERS=python-with-jax-and-litert python benchmarks/answers.py reading [--rounds N] [--keep FOLDER] [--out FILE]

`answer`: how long an answer takes at full size: a fault planted into the plan of 30 layers of training, and the clean plan. Processor time of the median
round, in one process, compiled code on disk and nothing of the document known: `check` of the clean plan, and causes with every cure of each faulty one
(`allocsim.verdict.judge`). No kernel runs. The aim: 2 s for an answer with its cure, where one thing is wrong.

`hurtful`: the commands on documents made to hurt: each must come to an end, with a verdict or with one line. Every document of `tests/hurtful.py` is written
to a file, and every command is run on it as a user runs it: a process of its own, of which CPU seconds, the most memory and the exit status are recorded. A
row is `bad` where the process did not end within `--seconds` of wall time, ended by a signal or with another status than 0, 1 or 2, or showed a traceback.
Exit status 1 where one is. A document that is refused takes its place too: status 2, and the line.

`reading`: how long it takes to read and to judge large files of other systems, in processor time of this process.

| file | made by | aim |
|---|---|---|
| the dump of a training step of 24 layers with LoRA | XLA, through `lora_jax.py` | 2 s |
| a `.tflite` of 1,000 tensors with an offline plan | `litert_models.py` | 1 s |
| a snapshot of PyTorch's caching allocator with 200,000 blocks | this script | 4 s |

A time is the least of the rounds, for `systems.load` and `check` together, after one round that is not counted (imports, compiled code). The first two are
made by the interpreter that BENCH_PEERS names; one that lacks what is needed leaves its row out, with the reason.
"""

import pickle
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness import HERE, PEERS, Found, cpu, forked, grown, run_one_of, took, why_not

import hurtful as cases
import numpy as np

from allocsim import systems
from allocsim.allocators import exact, find
from allocsim.allocators.constraints import Constraints
from allocsim.document import write
from allocsim.judge.fast import check
from allocsim.model import HOST_WRITE, Document, Plan, Problem, Program, Run
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence, save
from engine.graph.lowering import lower
from repro import lora_setup
from repro.scenarios.ggml_1501 import SCENARIO

AIM = 2.0


def flagship() -> tuple[Program, Problem, Plan]:
    """Return the program that the scenario ggml-1501 trains, an honest belief, and ggml's placement of it."""
    setup = lora_setup.set_up(SCENARIO.training)
    program = lower(setup.graph, (setup.loss,), kernels=SCENARIO.kernels).program
    problem = exact.believe(program, Constraints.of(program))
    return program, problem, find("ggml").place(problem)


def ends_early(problem: Problem, count: int) -> Plan:
    """Return the plan of a belief that ends `count` lives, spread over the program, at their last reader but one."""
    program, stop = problem.program, problem.stop.copy()
    ops, home = program.ops, program.values.buffer
    steps = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    readers: dict[int, list[int]] = {}
    for step, buffer in zip(steps.tolist(), home[ops.operands].tolist(), strict=True):
        readers.setdefault(buffer, []).append(step)
    apart = problem.own | program.buffers.persistent | problem.pinned
    chosen = [b for b, at in sorted(readers.items()) if len(set(at)) > 1 and not apart[b]]
    for buffer in chosen[:: max(len(chosen) // count, 1)][:count]:
        stop[buffer] = sorted(set(readers[buffer]))[-2] + 1
    kept = problem.may_share[~np.isin(problem.may_share, np.flatnonzero(stop != problem.stop)).any(axis=1)]
    return find("ggml").place(replace(problem, stop=stop, may_share=kept))


def shifted(plan: Plan) -> Plan:
    """Return the plan with one slot moved by 64 bytes: the first behind the middle for which that is a fault."""
    placed = np.flatnonzero(plan.placed)
    for buffer in placed[len(placed) // 2 :].tolist():
        offset = plan.offset.copy()
        offset[buffer] += 64
        moved = replace(plan, offset=offset)
        if not check(Document.of(moved), limit=1).clean:
            return moved
    raise AssertionError("every slot can be moved")


def answer(*, rounds: int = 5) -> Iterator[Found]:
    """Judge the clean plan, then each faulty one."""
    program, problem, plan = flagship()
    uploads = np.flatnonzero(program.ops.is_kind(HOST_WRITE)).tolist()
    clean = Document.of(Run.of(plan), Run.of(plan))
    seconds, report = cpu(lambda: check(clean), rounds)
    rows: list[Found] = [{"name": "clean, check", "seconds": round(seconds, 3), "violations": report.count}]
    made = ends_early(problem, 1), ends_early(problem, 20), shifted(plan)
    faulty = dict(zip(("one life ends early", "twenty lives end early", "one slot moved"), made, strict=True))
    documents = {name: Document.of(Run.of(made), Run.of(made)) for name, made in faulty.items()}
    documents["an upload left out"] = Document.of(Run.of(plan), Run.of(plan, skip=(uploads[0],)))
    for name, document in documents.items():
        seconds, verdict = cpu(lambda document=document: judge(Evidence(document=document)), rounds)
        causes = [f"{cause.class_} {cause.party}" for cause in verdict.causes]
        cured = sum(cause.cure is not None for cause in verdict.causes)
        row = {"name": name, "seconds": round(seconds, 3), "violations": verdict.report.count}
        rows.append({**row, "causes": causes, "cured": cured})
        slow = [row["name"] for row in rows if row["seconds"] > AIM and len(row.get("causes", ())) < 2]
        yield {"ops": len(program.ops), "buffers": len(program.buffers), "runs": 2, "rows": rows, "too_slow": slow}


Row = dict[str, Any]
COMMANDS: dict[str, list[str]] = {
    "check": ["check", "{document}"],
    "check --explain": ["check", "--explain", "2", "--limit", "100", "{document}"],
    "check --sarif": ["check", "--sarif", "{folder}/out.sarif", "--junit", "{folder}/out.xml", "{document}"],
    "verdict": ["verdict", "{folder}/evidence"],
    "explain": ["explain", "{document}", "0"],
    "diff": ["diff", "{document}", "{document}"],
    "plot map": ["plot", "{document}", "--kind", "map", "-o", "{folder}/map.png"],
    "plot lifetimes": ["plot", "{document}", "--kind", "lifetimes", "-o", "{folder}/lifetimes.png"],
    "plot live": ["plot", "{document}", "--kind", "live", "-o", "{folder}/live.png"],
}
BUILDERS = {**{name: case.build for name, case in cases.CASES.items()}, "all at once": cases.all_at_once}


def hurtful(
    *,
    size: int = 1_000_000,
    case: tuple[str, ...] = tuple(BUILDERS),
    command: tuple[str, ...] = tuple(COMMANDS),
    seconds: float = 300.0,
) -> Iterator[Found]:
    """Run every command on every document."""

    def rows() -> Iterator[Row]:
        for name in case:
            with tempfile.TemporaryDirectory() as folder:
                nbytes, _ = forked(lambda name=name, folder=folder: document_of(name, size, Path(folder)))
                for each in command:
                    row = {"case": name, "size": size, "mebibytes": nbytes >> 20, "command": each}
                    yield row | became(COMMANDS[each], folder, seconds)

    return grown(rows(), under="rows", bad=lambda rows: sum(row["bad"] for row in rows))


def document_of(case: str, size: int, folder: Path) -> int:
    """Write a document, and the evidence a verdict is made from; return its bytes."""
    document = BUILDERS[case](size)
    write(document, folder / "document.json")
    save(Evidence(document=document), folder / "evidence")
    return (folder / "document.json").stat().st_size


def became(command: list[str], folder: str, seconds: float) -> Row:
    """Run one command and say what became of it."""
    words = [word.format(document=f"{folder}/document.json", folder=folder) for word in command]
    ran = took(sys.executable, "-m", "allocsim", *words, seconds=seconds)
    said = [line for text in (ran["err"], ran["out"]) for line in text.splitlines() if line.strip()]
    return {
        "seconds": round(ran["cpu"], 2),
        "most_mebibytes": ran["peak_mib"],
        "status": ran["status"],
        "bad": ran["status"] not in {0, 1, 2} or any("Traceback" in line for line in said),
        "said": said[0].strip().replace(f"{folder}/", "")[:160] if said else "",
    }


BASE: Final = 0x7F0000000000
BLOCK: Final = 512
LIVING: Final = 1000
"""Blocks of the snapshot that live at once."""
FILES: Final[dict[str, tuple[float, list[str], str]]] = {
    "XLA, 24 layers": (2.0, ["lora_jax.py", "24"], "*jit_step*buffer-assignment.txt"),
    "tflite, 1,000 tensors": (1.0, ["litert_models.py", "{}/model.tflite"], "model.tflite"),
    "snapshot, 200,000 blocks": (4.0, [], "snapshot.pickle"),
}
"""File -> aim in seconds, script of the peers that makes it, pattern of its name."""


def snapshot(blocks: int) -> bytes:
    """Return a snapshot in which each block takes the place of the one given out `LIVING` before."""
    events = [
        {"action": "segment_alloc", "addr": BASE, "size": BLOCK * LIVING, "stream": 0, "time_us": 0, "frames": []}
    ]
    for number in range(blocks):
        row = {"addr": BASE + number % LIVING * BLOCK, "size": BLOCK, "stream": 0, "time_us": number + 1, "frames": []}
        if number >= LIVING:
            events += [row | {"action": "free_requested"}, row | {"action": "free_completed"}]
        events.append(row | {"action": "alloc"})
    return pickle.dumps({"segments": [], "device_traces": [events], "allocator_settings": {}}, protocol=4)


def measured(path: Path, rounds: int) -> dict[str, Any]:
    """Return what a file holds, and the processor time of reading and judging it."""
    runs = [cpu(lambda: (one := systems.load(path), check(one))) for _ in range(rounds + 1)]
    seconds, (document, report) = [spent for spent, _ in runs], runs[-1][1]
    return {
        "ops": sum(len(program.ops) for program in document.programs),
        "buffers": sum(len(program.buffers) for program in document.programs),
        "violations": len(report.violations),
        "first_seconds": round(seconds[0], 3),
        "seconds": round(min(seconds[1:]), 3),
    }


def reading(*, rounds: int = 3, peers: str = PEERS, keep: str = "") -> Iterator[Found]:
    """Make the files that do not lie in `keep`, and measure."""
    rows: list[Found] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(keep or made).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "snapshot.pickle").is_file():
            (folder / "snapshot.pickle").write_bytes(snapshot(200_000))
        for name, (aim, words, pattern) in FILES.items():
            row: Found = {"file": name, "aim": aim}
            if not list(folder.glob(pattern)):
                (script, *others), dumped = words, f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
                made_by = [word.format(folder) for word in others]
                ran = took(peers, HERE / script, *made_by, PYTHONPATH="", XLA_FLAGS=dumped)
                row |= {"left_out": why_not(ran)} if ran["status"] else {}
            paths = sorted(folder.glob(pattern))
            rows.append(row | (measured(paths[0], rounds) if paths else {}))
            beyond = [row["file"] for row in rows if row.get("seconds", 0) > row["aim"]]
            yield {"rows": rows, "beyond their aims": beyond}


if __name__ == "__main__":
    run_one_of(
        answer,
        hurtful,
        reading,
        failed={"answer": "too_slow", "hurtful": "bad", "reading": "beyond their aims"},
        known={"hurtful": {"case": BUILDERS, "command": COMMANDS}},
    )
