"""The plain judge and the columns say the same, field by field, of whatever is drawn."""

import json
from hashlib import sha256

import pytest
import strategies
from agreement_plain import agree, compare
from few import ENOUGH, few_of
from hypothesis import given
from hypothesis import strategies as st
from oracle2.generate import generate

from allocsim import document as native
from allocsim.judge import plain

DOCUMENTS = st.one_of(
    strategies.documents(), strategies.documents(), strategies.documents(sound=True), strategies.instances()
)


@pytest.mark.parametrize("first", few_of(range(1_000_000, 1_000_300, 100), 1))
def test_the_judges_agree_on_documents_of_version_2(first):
    for seed in range(first, first + 100):
        assert agree(seed, screens=seed % 2 == 0) == [], f"seed {seed}"


TELLING = (3, 5, 16, 36, 108, 115, 130, 144, 257, 336, 524, 651, 655, 736, 1129, 1226, 1462)
"""The first documents that told changes of one place of the plain judge from it, for which hundreds of others were not enough."""


def test_the_judges_agree_where_a_change_of_one_place_of_the_plain_one_shows():
    drawn = json.dumps([generate(seed) for seed in TELLING], sort_keys=True)
    assert sha256(drawn.encode()).hexdigest()[:16] == "23fc2f93792f7f85", (
        "other documents are drawn: look for seeds that tell anew"
    )
    for seed in TELLING:
        assert agree(seed) == [], f"seed {seed}"


@given(DOCUMENTS)
@ENOUGH
def test_the_judges_agree_on_documents_of_version_1_and_their_plans(document):
    assert compare(json.loads(native.dumps(document))) == []


def test_a_parameter_that_nothing_touches_is_live_under_a_believed_gap():
    """The campaign found it: seeds 13906, 15645, 23331, 26263 and 38179."""
    for seed in (13906, 15645, 23331, 26263, 38179):
        assert agree(seed) == [], f"seed {seed}"


def test_what_an_allocation_lies_over_is_told_in_the_order_in_which_it_was_allocated():
    """Two live buffers under a third, the higher number allocated first."""
    written = {
        "format": "allocsim",
        "version": 1,
        "arenas": [{"name": "a"}],
        "programs": [{"buffers": [{"nbytes": 8} for _ in range(3)], "values": [], "ops": []}],
        "plans": [
            {
                "program": 0,
                "slots": [{"arena": 0, "offset": 0, "nbytes": 8} for _ in range(3)],
                "events": [[0, "alloc", 2], [0, "alloc", 1], [0, "alloc", 0]],
            }
        ],
    }
    assert compare(written) == []
    found = plain.judge(plain.read(written)).violations
    over = [(v.buffer, v.other_buffer) for v in found if v.kind == "AllocOverLive"]
    assert over == [(1, 2), (0, 2), (0, 1)]


@pytest.mark.parametrize("gapped", ["0", "1"])
def test_a_pair_of_which_one_is_in_a_gap_saves_no_bytes(gapped):
    """A class counts live buffers alone: with buffer 0 or 1 in its gap, the other's bytes are needed."""
    written = {
        "format": "allocsim",
        "version": 1,
        "programs": [{"buffers": [{"nbytes": 3}, {"nbytes": 1}], "values": [], "ops": []}],
        "problems": [
            {"program": 0, "start": [1, 1], "stop": [2, 2], "may_share": [[0, 1], [1, 0]], "gaps": {gapped: [[1, 2]]}}
        ],
        "plans": [{"program": 0, "problem": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 3}] * 2}],
    }
    assert compare(written) == []
    assert plain.judge(plain.read(written)).stats.lower_bound_bytes == {"0": 1, "1": 3}[gapped]


def test_a_program_without_ops_has_no_step_at_which_a_parameter_counts():
    written = {
        "format": "allocsim",
        "version": 1,
        "programs": [{"buffers": [{"nbytes": 8, "role": "parameter"}], "values": [], "ops": []}],
        "plans": [{"program": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 8}]}],
    }
    assert compare(written) == []
    assert plain.judge(plain.read(written)).stats.lower_bound_bytes == 0
