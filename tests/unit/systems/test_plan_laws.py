"""Two laws on a clean plan of every system with one file for each: a slot moved onto a live neighbour is found, an op taken out is missed.

ExecuTorch's and tinygrad's samples, which need a plan chosen or made, have theirs beside their other tests.
"""

import pytest
from plan_laws import PLANS, law_of_elide, law_of_shift

from allocsim import systems

SAMPLES = (
    *(f"inductor/{name}.txt" for name in ("forward", "backward", "lora_forward")),
    *(
        f"tflite/{name}"
        for name in (
            "if_offline.tflite",
            "rand0_plan.json",
            "rand7_offline.tflite",
            "rand7_plan.json",
            "while_offline.tflite",
        )
    ),
    *(f"xla/{name}" for name in ("cond", "scan", "train", "while")),
    "tvm/layer.txt",
    "iree/layers.txt",
    "iree/loop.txt",
    "iree/carried.txt",
    "iree/unknown.txt",
)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_slot_shifted_onto_a_live_neighbour_is_found(sample):
    assert law_of_shift(systems.load(PLANS / sample), seed=1) > 0


@pytest.mark.parametrize("sample", SAMPLES)
def test_an_op_taken_out_is_missed(sample):
    assert law_of_elide(systems.load(PLANS / sample), seed=2, most=6) > 0
