"""Right schedules of a server are not accused; with one fence, wait or count left out they are found
wherever an order of the device shows wrong bytes.
"""

from collections import Counter

from schedules import Schedule

from allocsim.recordings import judge


def test_right_schedules_are_not_accused():
    for seed in range(400):
        made = Schedule(seed)
        assert made.shown() is None, seed
        assert judge(made.events).findings == [], seed


def test_a_fence_a_wait_or_a_count_left_out_is_found_wherever_an_order_shows_it():
    shown: Counter[str] = Counter()
    for seed in range(60):
        for without in range(len(Schedule(seed).kinds)):
            broken = Schedule(seed, without=without)
            if broken.shown() is not None:
                shown[broken.kinds[without]] += 1
                assert judge(broken.events).findings, (seed, without)
    assert min(shown[kind] for kind in ("fence", "wait", "count")) > 3
    assert shown.total() > 200
