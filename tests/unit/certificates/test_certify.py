"""The checker made from the proof, the judge, and an oracle of claims: they agree. Skipped where it is not built."""

import json
import random

import pytest
from commands import allocsim
from damaged_claims import damaged
from oracle2.generate import generate
from terms_oracle import Truth, reaches_outside

from allocsim.certificates import certificate_of, certificate_text, certified, proved, terms_of, terms_text
from allocsim.document import loads
from allocsim.judge.fast import check

REFUSED = ("StaleRead", "UninitialisedRead", "Race", "ResultsOverlap", "UnsafeInPlace", "AssumedInPlace")

built = pytest.mark.skipif(
    not (proved.ROOT / proved.BUILT).is_file(), reason="the checker is not built here: `make proof` needs coq and OCaml"
)

LATE = {
    "format": "allocsim", "version": 2,
    "programs": [{
        "name": "p",
        "buffers": [{"name": name, "nbytes": 4} for name in "xyz"],
        "values": [{"name": name, "buffer": at, "dtype": "f32", "shape": []} for at, name in enumerate("xyz")],
        "ops": [
            {"kind": "host.write", "results": [0]},
            {"name": "f", "kind": "f", "operands": [0], "results": [1]},
            {"name": "g", "kind": "g", "operands": [0], "results": [2]},
            {"name": "h", "kind": "h", "operands": [1, 2], "results": []},
        ],
    }],
    "plans": [{"program": 0, "slots": [{"arena": 0, "offset": offset, "nbytes": 4} for offset in (0, 32, 64)]}],
}  # fmt: skip


STATE = {
    "format": "allocsim", "version": 2,
    "programs": [{
        "name": name,
        "buffers": [{"name": "x", "nbytes": 4}, {"name": "kept", "nbytes": 4, "role": "state"}],
        "values": [{"name": value, "buffer": at, "dtype": "f32", "shape": []} for at, value in enumerate("xs")],
        "ops": ops,
    } for name, ops in (
        ("put", [{"kind": "host.write", "results": [0]}, {"kind": "f", "operands": [0], "results": [1]}]),
        ("get", [{"kind": "g", "operands": [1], "results": [0]}, {"kind": "host.read", "operands": [0]}]),
    )],
    "plans": [{"program": at, "slots": [{"arena": 0, "offset": 0, "nbytes": 4}, "own"]} for at in (0, 1)],
    "session": [{"plan": 0}, {"plan": 1}],
}  # fmt: skip


def documents(first, count):
    """Yield (seed, parsed document) of one size each."""
    for seed in range(first, first + count):
        parsed = generate(seed, leave_out=frozenset({"nbytes range"}))
        if not any(buffer.get("nbytes_range") for program in parsed["programs"] for buffer in program["buffers"]):
            yield seed, parsed


@built
def test_what_the_judge_finds_clean_is_accepted_and_wrong_reads_races_and_aliases_are_refused():
    seen = set()
    for seed, parsed in documents(9_000, 80):
        document = loads(json.dumps(parsed))
        report, terms = check(document, strict=True), terms_of(document)
        answer = certified(terms_text(terms), certificate_text(certificate_of(terms)))
        wrong = [v.kind for v in report.violations if v.kind in REFUSED]
        assert answer.holds or not report.clean, seed
        assert not (answer.holds and wrong), seed
        seen |= {answer.part, *wrong}
    assert seen >= {None, "reads", "promises", "order", *REFUSED[:3], *REFUSED[4:]}


@built
def test_a_state_outside_the_arenas_is_one_for_all_programs():
    document = loads(json.dumps(STATE))
    terms = terms_of(document)
    assert check(document, strict=True).clean
    assert certified(terms_text(terms), certificate_text(certificate_of(terms))).holds


@built
@pytest.mark.parametrize("waits", [[], [0]], ids=["unordered", "ordered"])
def test_two_halves_of_a_byte_race_for_hardware_writes_bytes(waits):
    half = {"buffer": 0, "dtype": "i4", "shape": [1]}
    program = {
        "name": "p", "streams": ["a", "b"], "buffers": [{"name": "byte", "nbytes": 1}],
        "values": [{"name": "low", **half}, {"name": "high", **half, "bit_offset": 4}],
        "ops": [
            {"kind": "f", "results": [0]},
            {"kind": "f", "results": [1], "stream": 1, "after": waits},
            {"kind": "host.read", "operands": [0, 1], "after": [1]},
        ],
    }  # fmt: skip
    plan = {"program": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 1}]}
    document = loads(json.dumps({"format": "allocsim", "version": 2, "programs": [program], "plans": [plan]}))
    terms = terms_of(document)
    assert check(document, strict=True).clean == bool(waits)
    assert certified(terms_text(terms), certificate_text(certificate_of(terms))).part == (None if waits else "order")


@built
def test_a_certificate_with_one_false_claim_is_refused():
    damages = set()
    for seed, parsed in documents(9_100, 60):
        rng, terms = random.Random(seed), terms_of(loads(json.dumps(parsed)))
        certificate, text = certificate_of(terms), terms_text(terms)
        if reaches_outside(parsed) or not certified(text, certificate_text(certificate)).holds:
            continue
        truth = Truth(parsed, terms)
        for wrong in (damaged(rng, truth, certificate) for _ in range(4)):
            if wrong is not None:
                damages.add(wrong[1])
                assert not certified(text, certificate_text(wrong[0])).holds, (seed, wrong[1])
    assert damages == {"start", "length", "node", "result", "shift", "piece left out", "clock"}


@built
def test_a_file_is_accepted_by_a_certificate_that_check_wrote(tmp_path):
    file, certificate = tmp_path / "plan.json", tmp_path / "plan.certificate"
    file.write_text(json.dumps(LATE))
    assert allocsim("check", file, "--certificate", certificate).returncode == 0
    said = allocsim("certify", file, "--certificate", certificate)
    assert said.returncode == 0
    assert (
        said.stdout
        == f"{file}: accepted: 4 reads of 4 ops in 1 run find what they must, in every order that keeps the waits\n"
    )


@built
def test_a_refusal_names_the_op_and_ends_with_1(tmp_path):
    slots = [{"arena": 0, "offset": offset, "nbytes": 4} for offset in (0, 0, 64)]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**LATE, "plans": [{"program": 0, "slots": slots}]}))
    said = allocsim("certify", file)
    assert said.returncode == 1
    assert "refused at op 2 'g' of run 0: what it reads is not shown to be what it must find" in said.stdout
    entry = json.loads(allocsim("certify", file, "--json").stdout)
    assert (entry["accepted"], entry["part"], entry["run"], entry["op"]) == (False, "reads", 0, 2)


@built
@pytest.mark.parametrize(
    "text",
    [
        "",
        "allocsim-certificate 2",
        "allocsim-certificate 1 claims 1 1 1 0 x",
        "allocsim-certificate 1 claims 9999999999999999999",
    ],
)
def test_a_certificate_that_is_none_is_bad_input_in_one_line(tmp_path, text):
    file, certificate = tmp_path / "plan.json", tmp_path / "plan.certificate"
    file.write_text(json.dumps(LATE))
    certificate.write_text(text)
    said = allocsim("certify", file, "--certificate", certificate)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)


@built
@pytest.mark.parametrize(
    "change",
    [
        lambda program: program._replace(values=(program.values[0]._replace(buffer=9), *program.values[1:])),
        lambda program: program._replace(ops=(program.ops[0]._replace(after=(2,)), *program.ops[1:])),
        lambda program: program._replace(ops=(program.ops[0]._replace(results=(7,)), *program.ops[1:])),
        lambda program: program._replace(buffers=program.buffers[1:]),
    ],
    ids=["no such buffer", "a wait for what comes later", "no such value", "a slot too many"],
)
def test_terms_that_refer_to_nothing_are_refused(change):
    terms = terms_of(loads(json.dumps(LATE)))
    certificate = certificate_text(certificate_of(terms))
    wrong = terms._replace(programs=(change(terms.programs[0]),))
    assert certified(terms_text(terms), certificate).holds
    assert certified(terms_text(wrong), certificate).part == "terms"


@built
@pytest.mark.parametrize("run", [{"waits": (1,)}, {"read_after": 0}, {"program": 1}, {"plan": 1}])
def test_runs_that_refer_to_nothing_are_refused(run):
    ops = [*LATE["programs"][0]["ops"], {"kind": "host.read", "operands": [1]}]
    document = {**LATE, "programs": [{**LATE["programs"][0], "ops": ops}], "session": [{"plan": 0}, {"plan": 0}]}
    terms = terms_of(loads(json.dumps(document)))
    certificate = certificate_text(certificate_of(terms))
    wrong = terms._replace(session=(terms.session[0]._replace(**run), terms.session[1]))
    assert certified(terms_text(terms), certificate).holds
    assert certified(terms_text(wrong), certificate).part == "terms"


def test_where_the_checker_is_not_built_one_line_says_how(tmp_path, monkeypatch):
    monkeypatch.setattr(proved, "ROOT", tmp_path)
    said = allocsim("certify", tmp_path / "plan.json")
    assert said.returncode == 2
    assert (
        said.stderr
        == "allocsim: the proved checker is not built: `make proof` in a checkout, with Debian's coq and ocaml-nox\n"
    )


def test_sizes_that_only_the_run_decides_are_refused_with_their_place(tmp_path):
    file = tmp_path / "plan.json"
    program = {
        **LATE["programs"][0],
        "buffers": [{"name": name, "nbytes": 4, "nbytes_range": [4, 8]} for name in "xyz"],
    }
    file.write_text(json.dumps({**LATE, "programs": [program]}))
    said = allocsim("check", file, "--certificate", tmp_path / "out")
    assert said.returncode == 2
    assert "programs[0].buffers[0].nbytes_range" in said.stderr
