"""A certificate of how small a plan can be is accepted by a file that knows nothing of this package, and a forged one is not."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.certificate import certificate
from allocsim.model import Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.systems.minimalloc import solver_instance as minimalloc

CHECKER = Path(__file__).parents[3] / "docs" / "planners" / "check_certificate.py"


def problem(sizes=(8, 4, 8), lives=((0, 3), (1, 6), (3, 6)), *, gaps=None, alignment=4):
    """By default three lives, of which the first two meet, and so do the last two."""
    builder = ProgramBuilder("lives", arenas=(Arena(name="a", alignment=alignment),))
    for place, nbytes in enumerate(sizes):
        builder.buffer("xyzuvw"[place] if len(sizes) < 7 else f"b{place}", nbytes)
    start, stop = zip(*lives, strict=True)
    return Problem.of(builder.build(), start=start, stop=stop, gaps=gaps or {})


def instance_of(told):
    """The CSV of a problem, as `allocsim convert` writes it."""
    return minimalloc.dumps(Document(programs=(told.program,), problems=(told,))).decode()


def checked(record, instance, folder):
    """The exit status and the one line of the checker."""
    files = folder / "certificate.json", folder / "instance.csv"
    for file, text in zip(files, (record if isinstance(record, str) else json.dumps(record), instance), strict=True):
        file.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(CHECKER), *files], capture_output=True, text=True, check=False)

    assert not done.stderr
    assert done.stdout.count("\n") == 1
    assert done.returncode == int(not done.stdout.startswith("accepted"))
    return done.returncode, done.stdout.strip()


ACCEPTED = "accepted: 12 bytes are enough, fewer than 12 are not"

STEP_BOUND = problem()
INSTANCE = "id,lower,upper,size,alignment\nx,0,3,8,4\ny,1,6,4,4\nz,3,6,8,4\n"


def test_the_checker_is_one_short_file_of_its_own():
    text = CHECKER.read_text(encoding="utf-8")

    assert len(text.splitlines()) < 200
    assert "allocsim" not in text


def test_a_peak_that_is_the_bound_has_a_certificate_that_is_accepted(tmp_path):
    record = certificate(ALLOCATORS["exact"].place(STEP_BOUND))

    assert record == {"peak": 12, "bound": 12, "offsets": {"x": 0, "y": 8, "z": 0}, "proof": [{"step": 1}]}
    assert instance_of(STEP_BOUND) == INSTANCE
    assert checked(record, INSTANCE, tmp_path) == (0, ACCEPTED)


def test_a_gap_counts_for_both(tmp_path):
    told = problem(gaps={0: ((1, 3),)})
    record = certificate(plan_of(told.program, [0, 0, 4], problem=told))

    assert record["peak"] == 12
    assert checked(record, instance_of(told), tmp_path) == (0, ACCEPTED)


def test_a_plan_above_what_is_proved_has_a_certificate_of_both_numbers(tmp_path):
    record = certificate(plan_of(STEP_BOUND.program, [0, 8, 12], problem=STEP_BOUND))

    assert checked(record, INSTANCE, tmp_path) == (0, "accepted: 20 bytes are enough, fewer than 12 are not")


def test_inclusive_ends_are_read_as_such(tmp_path):
    inclusive = "id,start,end,size,gaps\nx,0,2,8,1-2\ny,1,5,4,\nz,3,5,8,\n"
    record = {"peak": 12, "bound": 12, "offsets": {"x": 0, "y": 0, "z": 4}, "proof": [{"step": 3}]}

    assert checked(record, inclusive, tmp_path) == (0, ACCEPTED)


def full(seed, units=6, steps=12):
    """A problem in which as many bytes live at every step: what dies makes room for as much."""
    rng = random.Random(seed)

    def pieces(left):
        while left:
            yield (piece := rng.randrange(1, min(left, 3) + 1))
            left -= piece

    living, done = [(0, piece) for piece in pieces(units)], []
    for step in range(1, steps):
        dying = {place for place in range(len(living)) if rng.random() < 0.4}
        done += [(*living[place], step) for place in sorted(dying)]
        left = sum(living[place][1] for place in dying)
        living = [row for place, row in enumerate(living) if place not in dying]
        living += [(step, piece) for piece in pieces(left)]
    done += [(*row, steps) for row in living]
    return problem([2 * size for _, size, _ in done], [(start, stop) for start, _, stop in done], alignment=2)


def test_what_only_cases_prove_is_proved_and_no_more(tmp_path):
    """Of drawn problems, the certificate says what the search proved; it is accepted, and none of a granule more is."""
    split = []
    for seed in range(70, 290):
        told = full(seed)
        plan = ALLOCATORS["exact"].place(told)
        if plan.peak_bytes == 12:
            continue
        split.append(seed)
        record = certificate(plan, nodes=2000)
        assert plan.meta["exact"]["proved"]
        assert record["bound"] == record["peak"] == 14
        assert checked(record, instance_of(told), tmp_path) == (
            0,
            "accepted: 14 bytes are enough, fewer than 14 are not",
        )
        assert checked(record | {"bound": 16, "peak": 16}, instance_of(told), tmp_path)[0] == 1
        assert certificate(plan, nodes=2)["bound"] == 12
    assert split == [76, 281]


SPLIT = {
    "instance": "id,lower,upper,size\na,0,2,1\nb,0,3,1\n",
    "record": {
        "peak": 2,
        "bound": 2,
        "offsets": {"a": 0, "b": 1},
        "proof": [{"cases": ["a", "b"]}, {"step": 0, "of": ["a"]}, {"step": 1, "of": ["b"]}],
    },
}
"""A proof by cases where none are needed, small enough to be read."""


def test_cases_raise_what_lies_over_and_lower_what_lies_under(tmp_path):
    assert checked(SPLIT["record"], SPLIT["instance"], tmp_path)[0] == 0


def forged(**changes):
    """The certificate of `STEP_BOUND` with other fields, in JSON."""
    return json.dumps({"peak": 12, "bound": 12, "offsets": {"x": 0, "y": 8, "z": 0}, "proof": [{"step": 1}]} | changes)


def cases(*proof):
    """The certificate of `SPLIT` with another proof."""
    return json.dumps(SPLIT["record"] | {"proof": list(proof)})


AB, A, B = {"cases": ["a", "b"]}, {"step": 0, "of": ["a"]}, {"step": 1, "of": ["b"]}

FORGERIES = {
    "a step that is half a step, to count two steps together": (forged(proof=[{"step": 0.5}]), "0.5, no whole number"),
    "a whole step spelled as a float": (forged(proof=[{"step": 1.0}]), "1.0, no whole number"),
    "a step that is true": (forged(proof=[{"step": True}]), "True, no whole number"),
    "a step in words": (forged(proof=[{"step": "1"}]), "'1', no whole number"),
    "a step before the first": (forged(proof=[{"step": -1}]), "-1, no whole number"),
    "a step at which less lives": (forged(proof=[{"step": 0}]), "at step 0 only 8 bytes are needed, not 12"),
    "a step after the last": (forged(proof=[{"step": 6}]), "at step 6 only 0 bytes are needed"),
    "a step without end": (forged(proof=[{"step": 1 << 70}]), "no whole number"),
    "a negative peak of no buffers": (forged(peak=-5, bound=-5, offsets={}, proof=[]), "the peak is -5"),
    "a peak that is a float": (forged(peak=12.0), "the peak is 12.0"),
    "a peak that is not a number": (forged().replace('"peak": 12', '"peak": NaN'), "the peak is nan"),
    "a peak without end": (forged().replace('"peak": 12', '"peak": Infinity'), "the peak is inf"),
    "a peak of five thousand digits": (forged().replace('"peak": 12', f'"peak": {"9" * 5000}'), ""),
    "a peak below what is used": (forged(peak=8, bound=8), "buffer 'y' ends at 12, above the peak"),
    "a bound above the peak": (forged(bound=16), "the bound 16 is above the peak 12"),
    "a bound of more than is needed": (forged(peak=16, bound=16), "only 12 bytes are needed, not 16"),
    "a bound of nothing": (forged(bound=None), "the bound is None"),
    "no proof": (forged(proof=[]), "1 cases are open where the proof ends"),
    "a proof that is no list": (forged(proof={"step": 1}), "the proof is {'step': 1}"),
    "a row that is no record": (forged(proof=[1]), "a row is 1"),
    "a row of other keys": (forged(proof=[{"step": 1, "nbytes": 12}]), "a row is {'step': 1, 'nbytes': 12}"),
    "more rows than are open": (forged(proof=[{"step": 1}, {"step": 1}]), "where 0 cases are open"),
    "a buffer left out": (forged(offsets={"x": 0, "z": 0}), "differ in ['y']"),
    "a buffer that is not of the instance": (forged(offsets={"x": 0, "y": 8, "z": 0, "w": 0}), "differ in ['w']"),
    "no offsets": (forged(offsets=[0, 8, 0]), "differ in ['all']"),
    "an offset below the arena": (forged(offsets={"x": 0, "y": -4, "z": 0}), "-4, no whole number"),
    "an offset between two multiples": (forged(offsets={"x": 2, "y": 8, "z": 0}), "buffer 'x' cannot lie at 2"),
    "an offset that is a float": (forged(offsets={"x": 0.0, "y": 8, "z": 0}), "0.0, no whole number"),
    "an offset in words": (forged(offsets={"x": "0", "y": 8, "z": 0}), "'0', no whole number"),
    "two buffers in one place": (forged(offsets={"x": 0, "y": 0, "z": 8}), "'x' and 'y' share bytes"),
    "two buffers that share a byte": (forged(offsets={"x": 0, "y": 4, "z": 8}), "'x' and 'y' share bytes"),
    "an offset twice, the second of which counts": (
        forged().replace('"x": 0', '"x": 4, "x": 0'),
        "a key is there twice",
    ),
    "a peak twice": (forged().replace('"peak": 12', '"peak": 99, "peak": 12'), "a key is there twice"),
    "sizes of its own": (forged(buffers=[{"name": "x", "nbytes": 4}]), "the keys of a certificate are"),
    "gaps of its own": (forged(gaps={"x": [[0, 3]]}), "the keys of a certificate are"),
    "a key left out": (json.dumps({"peak": 12, "bound": 12, "proof": []}), "the keys of a certificate are"),
    "no record": ("[]", "the keys of a certificate are"),
    "no JSON": ('{"peak": 12', ""),
    "nothing": ("", ""),
    "brackets without end": ("[" * 200_000, ""),
    "a case left open": (cases(AB, A), "1 cases are open where the proof ends"),
    "a case of one buffer": (cases({"cases": ["a", "a"]}, A, B), "are not different buffers"),
    "a case of a buffer that is not there": (cases({"cases": ["a", "c"]}, A, B), "are not different buffers"),
    "a case of three": (cases({"cases": ["a", "b", "b"]}, A, B), "are not different buffers"),
    "buffers of a row that do not live there": (cases(AB, A, {"step": 2, "of": ["a"]}), "live at step 2"),
    "a buffer of a row counted twice": (cases({"step": 0, "of": ["a", "a"]}), "are not different buffers"),
    "buffers of a row that are numbers": (cases({"step": 0, "of": [0, 1]}), "are not different buffers"),
    "buffers of a row that are records": (cases({"step": 0, "of": [{}]}), "are not different buffers"),
    "the same cases again and again": (cases(*[AB] * 400), "401 cases are open"),
}
"""What is forged: the certificate, and words of the refusal."""


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_certificate_is_refused_in_one_line(what, tmp_path):
    record, words = FORGERIES[what]
    instance = SPLIT["instance"] if '"a"' in record else INSTANCE
    status, said = checked(record, instance, tmp_path)

    assert status == 1
    assert said.startswith("not accepted: ")
    assert words in said


MISSHAPEN = {
    "a life that ends before it begins": INSTANCE.replace("1,6", "6,1"),
    "a life in fractions": INSTANCE.replace("1,6", "1.5,6"),
    "a negative size": INSTANCE.replace("8,4", "-8,4"),
    "an alignment of nought": INSTANCE.replace("8,4", "8,0"),
    "an alignment in words": INSTANCE.replace("8,4", "8,four"),
    "a buffer twice": INSTANCE + "x,3,6,8,4\n",
    "a line too short": INSTANCE + "w,3\n",
    "a column twice": INSTANCE.replace("alignment", "size"),
    "a column that is missing": INSTANCE.replace("size,alignment", "alignment,hint"),
    "both kinds of ends": INSTANCE.replace("alignment", "end"),
    "gaps that go back": "id,lower,upper,size,gaps\nx,0,9,8,5-6 1-2\n",
    "a gap with a window": "id,lower,upper,size,gaps\nx,0,9,8,5-6@0:4\n",
    "a sign where digits belong": INSTANCE.replace("1,6", "+1,6"),
    "digits of another alphabet": INSTANCE.replace("1,6", "\u0661,6"),
    "a quotation without end": INSTANCE + '"w,3,6,8,4\n',
    "nothing": "",
}


@pytest.mark.parametrize("what", MISSHAPEN)
def test_an_instance_that_is_none_is_refused_in_one_line(what, tmp_path):
    assert checked(forged(), MISSHAPEN[what], tmp_path)[0] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("8,4\ny", "4,4\ny"), "only 8 bytes are needed"),  # its size halved
        (("1,6", "3,6"), "only 8 bytes are needed"),  # it lives later
        (("0,3", "0,1"), "only 4 bytes are needed"),  # it ends earlier
        (("y,1,6,4,4\n", ""), "differ in ['y']"),  # it is not there
        (("y,1,6,4,4", "y,1,6,4,16"), "buffer 'y' cannot lie at 8"),  # it is aligned otherwise
        (("y,1,6,4", "y,1,6,8"), "above the peak"),  # it is larger
    ],
)
def test_a_certificate_is_of_one_instance(change, words, tmp_path):
    status, said = checked(forged(), INSTANCE.replace(*change), tmp_path)

    assert status == 1
    assert words in said


def test_cases_within_cases_are_counted_and_not_gone_into_without_end(tmp_path):
    names = [f"b{place}" for place in range(310)]
    instance = "id,lower,upper,size\n" + "".join(f"{name},0,1,1\n" for name in names)
    deep = [{"cases": list(pair)} for pair in itertools.pairwise(names)]
    record = {"peak": 310, "bound": 310, "offsets": {name: place for place, name in enumerate(names)}}

    assert "300 deep at most" in checked(record | {"proof": deep}, instance, tmp_path)[1]
    rows = [*deep[:299], *({"step": 0} for _ in range(300))]
    assert checked(record | {"proof": rows}, instance, tmp_path)[0] == 0


def test_files_that_are_not_there_are_one_line():
    done = subprocess.run(
        [sys.executable, "-I", str(CHECKER), "none.json"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr, done.stdout) == (
        1,
        "",
        "not accepted: a certificate and an instance are needed\n",
    )
