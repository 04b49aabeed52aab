"""More evidence never finds less, on faults of plans, programs and kernels together, executed on the engine; scenarios and the power suite ask the same of theirs."""

from evidences import executed, lost


def test_more_evidence_never_finds_less_of_what_the_engine_executed():
    tried, kernels, numbers = 0, 0, 0
    for name, evidence in executed(range(90)):
        less, pairs = lost(evidence)
        assert less == [], name
        tried += pairs
        kernels += any(row.measured == "unsafe" for row in evidence.audit) or bool(evidence.sanitizer)
        numbers += bool(evidence.origins)
    assert tried > 2000
    assert kernels > 20
    assert numbers > 20
