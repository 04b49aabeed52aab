"""More evidence never finds less, on faults of plans, programs and kernels together, executed on the engine; scenarios and the power suite ask the same of theirs."""

import pytest
from evidences import executed, lost


@pytest.mark.parametrize("programs", [30, pytest.param(90, marks=pytest.mark.campaign)])
def test_more_evidence_never_finds_less_of_what_the_engine_executed(programs):
    tried, kernels, numbers = 0, 0, 0
    for name, evidence in executed(range(programs)):
        less, pairs = lost(evidence)
        assert less == [], name
        tried += pairs
        kernels += any(row.measured == "unsafe" for row in evidence.audit) or bool(evidence.sanitizer)
        numbers += bool(evidence.origins)
    assert tried > 22 * programs
    assert 9 * kernels > 2 * programs
    assert 9 * numbers > 2 * programs
