"""A recorded training step (tests/data/plans/torch): clean, and the laws of every importer hold for it. No torch."""

from plan_laws import PLANS, law_of_elide, law_of_shift

from allocsim import systems
from allocsim.judge.fast import check
from allocsim.liveness.holding import holding
from allocsim.systems.torch.peak_lines import lines_of, peak_bytes

SAMPLE = systems.load(PLANS / "torch" / "lora_eager.json")


def test_the_recorded_step_is_clean_and_its_addresses_are_what_the_process_had():
    report = check(SAMPLE)
    plan = SAMPLE.plans[0]

    assert report.violations == ()
    assert {w.kind for w in report.warnings} <= {"LifetimeTooLong"}
    assert report.stats.peak_bytes == peak_bytes(plan) == 3_926_592
    assert len(plan.events) > len(plan.program.buffers)


def test_a_slot_shifted_onto_a_live_neighbour_is_found():
    assert law_of_shift(SAMPLE, seed=1) > 0


def test_an_op_taken_out_is_missed():
    assert law_of_elide(SAMPLE, seed=2) > 0


def test_who_is_alive_at_the_peak_is_told_with_the_reason():
    lines = lines_of(SAMPLE, most=3)
    held = holding(SAMPLE.plans[0].problem)

    assert sum(row.nbytes for row in held.buffers) == held.nbytes >= held.needed
    assert lines[4].startswith(f"alive at op {held.step}: {len(held.buffers)} blocks")
    assert sum("needs it; given back before op" in line for line in lines) == 3
    assert any(line.startswith("plan       greedy_by_size needs") for line in lines)
