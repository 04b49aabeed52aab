"""Every document that the verdict, the cure and the reduction make of a valid one is valid: it can be written, and read again."""

import json

import pytest
from oracle2.generate import generate

from allocsim import loads
from allocsim.cure.defects import listed
from allocsim.document import dumps
from allocsim.errors import AllocsimError
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence

EACH = 40


def documents(first):
    """Yield the documents of version 2 by these seeds that the program takes."""
    for seed in range(first, first + EACH):
        try:
            yield seed, loads(json.dumps(generate(seed)))
        except AllocsimError:
            continue


def read_again(document, *, sizes=True):
    """Judge a document as it is read from what is written of it."""
    again = loads(dumps(document))
    assert dumps(again) == dumps(document)
    return listed(document, sizes=sizes)


@pytest.mark.parametrize(
    "first",
    [500_080, *(pytest.param(first, marks=pytest.mark.campaign) for first in (500_000, 500_040, 500_120, 500_160))],
)
def test_what_the_verdict_and_the_cure_ask_the_judge_is_a_document(first):
    for seed, document in documents(first):
        if not listed(document).clean:
            verdict = judge(Evidence(document=document), judged=read_again)
            assert verdict.causes, seed
