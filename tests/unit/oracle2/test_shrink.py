"""A document in which something holds is made small, and it still holds."""

import pytest
from oracle2 import judge
from oracle2.brief import kinds
from oracle2.generate import generate
from oracle2.shrink import shrink


@pytest.mark.parametrize("kind", ["StaleRead", "Race", "Overlap", "UnsafeInPlace"])
def test_a_document_with_a_fault_becomes_one_of_few_ops(kind):
    seed = next(s for s in range(200, 2000) if kind in kinds(judge(generate(s))))
    small = shrink(generate(seed), lambda d: kind in kinds(judge(d)))

    assert kind in kinds(judge(small))
    assert sum(len(p["ops"]) for p in small["programs"]) <= 4
    assert "problems" not in small


def test_what_holds_of_nothing_smaller_stays():
    document = generate(3)

    assert shrink(document, lambda d: d == document) == document
