"""tinygrad's schedules: real ones, the laws, planted faults, and what is refused."""

import json

import pytest
from plan_laws import DAMAGED, PLANS, causes, law_of_damage, law_of_elide, law_of_shift

from allocsim import systems
from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.model import Document, Role
from allocsim.systems.tinygrad.tinygrad_schedule import GRANULE, loads

FOLDER = PLANS / "tinygrad"
NAMES = ("layer", "lora")


def planned(document):
    """The programs in which something is planned."""
    return Document.of(*(plan for plan in document.plans if (plan.arena >= 0).any()))


@pytest.mark.parametrize("name", NAMES)
def test_a_real_schedule_is_told_by_its_content_and_stays_clean(name):
    document = systems.load(FOLDER / f"{name}.json")
    report = check(document)

    assert report.violations == ()
    assert report.stats.lower_bound_bytes <= report.stats.peak_bytes
    for plan in document.plans:
        held = plan.program.buffers.role == Role.STATE
        assert ((plan.arena < 0) == held).all()
        assert not (plan.offset % GRANULE).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_shifted_onto_a_live_neighbour_is_found(name):
    assert law_of_shift(planned(systems.load(FOLDER / f"{name}.json")), seed=1) > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_op_taken_out_is_missed(name):
    assert law_of_elide(planned(systems.load(FOLDER / f"{name}.json")), seed=2) > 0


def schedule(*calls, held=(0,), offsets=(None, 0, 256, 0)):
    buffers = [
        {"id": i, "size": 100, "held": i in held, "arena": None if i in held else 0, "offset": offset}
        for i, offset in enumerate(offsets)
    ]
    rows = [{"kind": "SINK", "bufs": bufs} for bufs in calls]
    return json.dumps([{"n_calls": len(rows), "calls": rows, "buffers": buffers}]).encode()


def test_a_chain_that_hands_its_bytes_on_is_clean_and_a_late_reader_convicts_the_plan(tmp_path):
    path = tmp_path / "dump.json"
    path.write_bytes(schedule([1, 0], [2, 1], [3, 2], [0, 3]))
    assert causes(path) == []
    path.write_bytes(schedule([1, 0], [2, 1], [3, 2], [0, 3, 1]))
    assert [party for _, party in causes(path)] == ["plan"]


def test_a_buffer_that_is_read_before_it_is_written_is_judged():
    kinds = [v.kind for v in check(loads(schedule([0, 1], [1, 0], [0, 1]))).violations]

    assert kinds == ["UninitialisedRead"]


def test_an_offset_off_the_granule_is_found():
    kinds = {v.kind for v in check(loads(schedule([1, 0], [0, 1], offsets=(None, 100)))).violations}

    assert kinds == {"Misaligned"}


def test_what_a_kernel_reads_and_writes_is_taken_at_its_word():
    dump = json.loads(schedule([1, 0], [1, 0], [0, 1], offsets=(None, 0)))
    dump[0]["calls"][1] |= {"writes": [0], "reads": [0, 1]}
    report = check(loads(json.dumps(dump).encode()))

    assert report.violations == ()
    assert [w.kind for w in report.warnings] == ["AssumedInPlace"]


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda d: d[0]["calls"][0]["bufs"].append(9), r"\[0\].calls\[0\]: buffer 9 does not exist"),
        (lambda d: d[0]["calls"][0].update(writes=[7]), "position 7 does not exist"),
        (lambda d: d[0]["buffers"][1].update(id=0), "two buffers have the same id"),
        (lambda d: d[0]["buffers"][1].update(held=True), "must either be held or have an arena"),
        (lambda d: d[0]["buffers"][1].update(size=-1), "size"),
        (lambda d: d[0].pop("calls"), "calls"),
        (lambda d: [row.update(held=True, arena=None, offset=None) for row in d[0]["buffers"]], "no plan here"),
    ],
)
def test_a_dump_that_contradicts_itself_is_refused_in_one_line(damage, rule):
    dump = json.loads(schedule([1, 0], [2, 1]))
    damage(dump)
    with pytest.raises(DocumentError, match=rule) as error:
        loads(json.dumps(dump).encode())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
@DAMAGED
def test_damaged_dumps_end_in_one_line(name, times):
    read, refused = law_of_damage((FOLDER / f"{name}.json").read_bytes(), loads, seed=4, times=times)

    assert refused > 0
    assert read + refused == times
