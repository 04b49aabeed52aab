"""The plain judge and the columns say the same, field by field, of whatever is drawn."""

import json

import pytest
import strategies
from agreement_plain import agree, compare
from hypothesis import given
from hypothesis import strategies as st

from allocsim import document as native

DOCUMENTS = st.one_of(
    strategies.documents(), strategies.documents(), strategies.documents(sound=True), strategies.instances()
)


@pytest.mark.parametrize("first", range(1_000_000, 1_000_300, 100))
def test_the_judges_agree_on_documents_of_version_2(first):
    for seed in range(first, first + 100):
        assert agree(seed, screens=seed % 2 == 0) == [], f"seed {seed}"


@given(DOCUMENTS)
def test_the_judges_agree_on_documents_of_version_1_and_their_plans(document):
    assert compare(json.loads(native.dumps(document))) == []
