"""How long an answer takes at full size: a fault planted into the plan of 30 layers of training, and the clean plan.

    python benchmarks/answer.py [--rounds 5] [--out FILE]

Processor time of the median round, in one process, compiled code on disk and nothing of the document known: `check` of the clean plan, and causes with
every cure of each faulty one (`allocsim.verdict.judge`). No kernel runs. The aim: 2 s for an answer with its cure, where one thing is wrong.
"""

from collections.abc import Iterator
from dataclasses import replace

from harness import Found, cpu, run

import numpy as np

from allocsim.allocators import exact, find
from allocsim.allocators.constraints import Constraints
from allocsim.judge.fast import check
from allocsim.model import HOST_WRITE, Document, Plan, Problem, Program, Run
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
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


def measure(*, rounds: int = 5) -> Iterator[Found]:
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


if __name__ == "__main__":
    run(measure, failed="too_slow")
