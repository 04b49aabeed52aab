"""The price of a cure in words: never nothing of what costs something, and the same wherever it is said."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from allocsim.files.sizes import bytes_of, in_growth
from allocsim.outcomes import judge_file
from allocsim.outcomes.telling import lines_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence

CASES = Path(__file__).parents[2] / "data" / "cases"


@given(st.integers(-(2**60), 2**60))
def test_a_price_in_words_has_its_sign_and_four_digits_and_is_nothing_of_nothing_alone(nbytes):
    words = in_growth(nbytes)
    assert words[0] == ("-" if nbytes < 0 else "+")
    assert abs(bytes_of(words[1:]) - abs(nbytes)) <= abs(nbytes) / 1024
    assert (words == "+0 B") == (nbytes == 0)


def test_check_and_verdict_name_one_cure_at_one_price():
    compared = 0
    for path in sorted(CASES.glob("*.json")):
        outcome = judge_file(str(path), cures=True)
        if outcome.document is None or len(outcome.causes) != 1 or outcome.causes[0].cure is None:
            continue
        said = " ".join(" ".join(lines_of(outcome)).split())
        clause = judge(Evidence(document=outcome.document)).text.partition("; cure: ")[2]
        assert f"cure: {clause.partition(', against')[0]}" in said, path.name
        compared += 1
    assert compared > 10
