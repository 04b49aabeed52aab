"""A verdict depends on bytes and steps alone: not on names, not on how anything is numbered, not on which process reaches it."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_runs import ALL, small
from strategies import documents

from allocsim import cure
from allocsim.builder import ProgramBuilder
from allocsim.evidence import Evidence, KernelRow, Origin, load, save
from allocsim.model import Document, Plan, Problem, Program, Role, Run
from allocsim.verdict import judge


class Shuffled:
    """A program with its buffers and values renumbered and every name replaced; persistent names stay equal where they were."""

    def __init__(self, program: Program, rng: np.random.Generator, known: dict[str, str]) -> None:
        self.old = program
        self.buffer_of = rng.permutation(len(program.buffers)).astype(np.int64)  # old -> new
        self.value_of = rng.permutation(len(program.values)).astype(np.int64)
        self.new = self._build(known)

    def _build(self, known):
        old = self.old
        builder = ProgramBuilder("q", arenas=old.arenas, streams=[f"s{n}" for n, _ in enumerate(old.streams)])
        for buffer in np.argsort(self.buffer_of).tolist():
            name = old.buffers.names[buffer]
            persistent = old.buffers.persistent[buffer]
            builder.buffer(
                known.setdefault(name, f"w{len(known)}") if persistent else f"m{buffer}",
                int(old.buffers.nbytes[buffer]),
                role=Role(int(old.buffers.role[buffer])),
                arena=int(old.buffers.arena[buffer]),
                alignment=int(old.buffers.alignment[buffer]),
                read_only=bool(old.buffers.read_only[buffer]),
            )
        for index in np.argsort(self.value_of).tolist():
            value = old.values[index]
            home = int(self.buffer_of[value.buffer])
            builder.value(f"t{index}", home, value.dtype, value.shape, strides=value.strides, offset=value.offset)
        for op in old.ops:
            operands, results = (tuple(self.value_of[list(values)].tolist()) for values in (op.operands, op.results))
            path = old.ops.meta.get(op.step, {}).get("call")
            meta = {"call": [f"c{part!r}" for part in path]} if path else None
            builder.op(op.kind, operands, results, name="op", in_place=op.in_place, stream=op.stream, after=op.after, meta=meta)
        return builder.build()

    def column(self, old):
        new = np.empty_like(old)
        new[self.buffer_of] = old
        return new

    def problem(self, old: Problem) -> Problem:
        to = self.buffer_of
        return Problem(
            program=self.new,
            **{name: self.column(getattr(old, name)) for name in ("start", "stop", "nbytes", "pinned", "own")},
            fixed={int(to[b]): offset for b, offset in old.fixed.items()},
            order=to[old.order].astype(np.int32),
            may_share=to[old.may_share].astype(np.int32).reshape(-1, 2),
            gaps={int(to[b]): gaps for b, gaps in old.gaps.items()},
        )

    def plan(self, old: Plan, problems) -> Plan:
        events = old.events.copy()
        events[:, 2] = self.buffer_of[events[:, 2]]
        return Plan(
            program=self.new,
            problem=problems[id(old.problem)] if old.problem is not None else None,
            events=events,
            **{name: self.column(getattr(old, name)) for name in ("arena", "offset", "nbytes")},
        )


def shuffled(evidence: Evidence, seed: int) -> Evidence:
    """Return the same evidence with everything renamed and renumbered."""
    rng, known, old = np.random.default_rng(seed), {}, evidence.document
    first = {}
    for program in old.programs:  # a plan that runs on two programs pairs their buffers by index: both are renumbered alike
        maker = Shuffled(program, np.random.default_rng(seed), known)
        first[id(program)] = maker
    problems = {id(p): first[id(p.program)].problem(p) for p in old.problems}
    plans = {id(p): first[id(p.program)].plan(p, problems) for p in old.plans}
    session = old.session and tuple(
        Run(plan=plans[id(r.plan)], program=first[id(r.program)].new, skip=r.skip) for r in old.session
    )
    made = Document(
        programs=tuple(first[id(p)].new for p in old.programs),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=session,
    )
    del rng
    return Evidence(
        document=made,
        audit=evidence.audit,
        origins=evidence.origins
        and tuple(
            Origin(**{**_fields(o), "value": int(first[id(old.runs[o.run].program)].value_of[o.value])}) for o in evidence.origins
        ),
        sanitizer=evidence.sanitizer and tuple(renumbered(i, first[id(old.runs[i.run].program)]) for i in evidence.sanitizer),
        diverges=evidence.diverges,
        cure=evidence.cure,
    )


def renumbered(incident, maker):
    """Return an incident with its values and its buffer as a shuffled program has them."""
    new = {"value": maker.value_of, "held_value": maker.value_of, "buffer": maker.buffer_of}
    known = {name: int(to[getattr(incident, name)]) for name, to in new.items() if getattr(incident, name) is not None}
    return replace(incident, **known)


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def essence(verdict):
    """Return what must not change: classes, parties and counts in order, statuses, the price of the cure."""
    return (
        [(f.class_, f.fault, f.count, f.run, f.step) for f in verdict.findings],
        {name: (says["status"], says["count"]) for name, says in verdict.detectors.items()},
        (verdict.cure_bytes, verdict.pin_all_bytes),
    )


@pytest.fixture(scope="module", params=ALL)
def result(request):
    return small(request.param)


@given(documents(), st.integers(0, 99))
def test_names_and_numbers_do_not_matter_to_generated_documents(drawn, seed):
    evidence = Evidence(document=drawn)
    assert essence(judge(shuffled(evidence, seed))) == essence(judge(evidence))


@given(documents(), st.integers(0, 99), st.data())
def test_nor_do_they_beside_measured_evidence(drawn, seed, data):
    places = [(r, op.step) for r, it in enumerate(drawn.runs) for op in it.program.ops if op.results and op.kind != "view"]
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=3, unique=True)) if places else []
    origins = tuple(
        Origin(run=r, op=step, what="result", position=0, value=drawn.runs[r].program.ops[step].results[0], max_error=1.0)
        for r, step in sorted(chosen)
    )
    kinds = sorted({drawn.runs[r].program.ops[step].kind for r, step in chosen})
    audit = tuple(
        KernelRow(kind=kind, operand=0, result=0, declared=True, measured="unsafe", max_error=1.0, cases=1) for kind in kinds
    )
    evidence = Evidence(document=drawn, audit=audit, origins=origins, diverges=bool(origins))
    assert essence(judge(shuffled(evidence, seed))) == essence(judge(evidence))


@given(documents(sound=True))
def test_sound_documents_have_a_sound_verdict(drawn):
    verdict = judge(Evidence(document=drawn, audit=(), origins=(), diverges=False))
    assert verdict.sound, verdict.text


@given(documents())
def test_a_verdict_has_a_fault_exactly_where_the_checks_find_a_violation(drawn):
    verdict = judge(Evidence(document=drawn))
    assert verdict.sound == verdict.report.clean
    assert all(finding.class_ in verdict.text for finding in verdict.findings)
    json.dumps(verdict.as_json(), allow_nan=False)


@pytest.mark.parametrize("seed", [1, 2])
def test_names_and_numbers_do_not_matter_to_scenarios(result, seed):
    other = judge(shuffled(result.evidence, seed))
    assert essence(other) == essence(result.verdict)
    assert other.causes == frozenset(result.scenario.expected)


def test_saved_evidence_gives_the_same_verdict_in_a_fresh_process(result, tmp_path):
    save(result.evidence, tmp_path)
    assert judge(load(tmp_path)).as_json() == result.verdict.as_json()
    done = subprocess.run(
        [sys.executable, "-m", "allocsim.cli", "verdict", "--json", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == json.loads(
        json.dumps({"verdict": result.verdict.as_json(), "detectors": result.verdict.detectors})
    )


@given(documents())
def test_saved_documents_give_the_same_verdict(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("evidence")
    evidence = Evidence(document=drawn)
    save(evidence, folder)
    assert judge(load(folder)).as_json() == judge(evidence).as_json()


def test_a_renumbered_belief_is_cured_by_the_same_changes_at_the_same_price():
    """The search for a cure, on a plan judged by S: elements by what they are and when the buffers live, not by number."""
    result = small("ggml-1501-as-reported+ggml-1501-seed")
    prices = set()
    for seed in (None, 1, 2, 3):
        evidence = result.evidence if seed is None else shuffled(result.evidence, seed)
        prices.add(_static_cure(evidence.document))
    assert len(prices) == 1


def _static_cure(doc: Document):
    from allocsim.allocators import find  # noqa: PLC0415 - only here
    from allocsim.checks import check  # noqa: PLC0415 - only here
    from repro.run import _suspects  # noqa: PLC0415 - only here

    plan = doc.runs[0].plan

    def right(other):
        return check(Document.of(*(Run.of(other, skip=r.skip) for r in doc.runs)), limit=1).clean

    suspects, others = _suspects(Evidence(document=doc))
    found = cure.find(plan.problem, find("ggml").place, suspects=suspects, others=others, right=right)
    assert found is not None
    assert found.minimal
    first = plan.problem.start
    kinds = sorted((type(e).__name__, int(first[e.buffer]) if hasattr(e, "buffer") else e) for e in found.elements)
    return tuple(kinds), found.plan.peak_bytes
