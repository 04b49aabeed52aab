"""What a result may meet within its op, what may be believed of it, and reads of what nobody wrote, each row once, alone and in a batch."""

from dataclasses import replace

import pytest

from allocsim import check
from allocsim.fuzzing.batch import flat, join, join_plans
from allocsim.model import Document
from repro.small.words import belief, plan, program

SOUND = {
    "in place, exactly": ("x = host.write; y = f! x; host.read y", "x=0 y=0"),
    "exactly, though the buffers begin apart": ("b = e; x[4] = host.write; y:b[4@32] = f! x; host.read y", "x=32 b=0"),
    "exactly, the other way round": (
        "x = e; b = e; u:x = host.write; v:x[4@32] = g; y:b[4] = f! v; host.read y",
        "x=0 b=32",
    ),
    "in another buffer": ("x = host.write; y = f! x; host.read y", "x=0 y=64"),
    "behind the operand": ("x = host.write; y = f! x; host.read y", "x=0 y=32"),
    "before the operand": ("x = host.write; y = f! x; host.read y", "x=32 y=0"),
    "the second operand, which is declared": (
        "w = host.write; x = host.write; y = f!1 w x; host.read y",
        "w=0 x=64 y=64",
    ),
    "two results of one buffer side by side": ("a[4] v:a[4@16] = f; host.read a; host.read v", "a=0"),
}
UNSOUND = {
    "in place, not declared": ("x = host.write; y = f x; host.read y", "x=0 y=0"),
    "not the operand that is declared": ("w = host.write; x = host.write; y = f! w x; host.read y", "w=0 x=64 y=64"),
    "behind its operand's first byte": ("b = e; x = host.write; y:b[4@40] = f! x; host.read y", "x=32 b=0"),
    "before its operand's last byte": (
        "b = e; x = host.write; v:x[4@32] = g; y:b[4@8] = f! v; host.read y",
        "x=0 b=32",
    ),
    "one element further": ("b = e; x[4] = host.write; y:b[4@4] = f! x; host.read y", "x=0 b=0"),
    "in another layout": ("b = e; x = host.write; y:b[4] = f! x; host.read y", "x=0 b=0"),
    "two results of one buffer": ("a[4] v:a[4@12] = f; host.read v", "a=0"),
    "a first op reads what nobody wrote": ("y = f x; host.read y", "x=0 y=64"),
    "a last op reads what nobody wrote": ("x = e; host.read x; host.read y", "x=0 y=64"),
    "two results of two buffers": ("a b = f; host.read a; host.read b", "a=0 b=0"),
}

BELIEVED = {
    "declared": ("x = host.write; y = f! x; host.read y", "x>y"),
    "declared of the second operand": ("w = host.write; x = host.write; y = f!1 w x; host.read y", "x>y"),
    "declared of the first of two results": ("x = host.write; y z = f! x; host.read y; host.read z", "x>y"),
    "of the donor's values one lies behind": ("x = host.write; v:x[4@32] = g; y = f! x v; host.read y", "x>y"),
}
WRONGLY_BELIEVED = {
    "not declared": ("x = host.write; y = f x; host.read y", "x>y"),
    "declared of another operand": ("w = host.write; x = host.write; y = f! w x; host.read y", "x>y"),
    "declared of another result": ("x = host.write; y z = f! x; host.read y; host.read z", "x>z"),
    "the donor is read once more": ("x = host.write; y = f! x; z = g x y; host.read z", "x>y"),
    "the op writes into the donor": ("w = e; x = host.write; y v:x[4@32] = f! x; host.read y", "x>y"),
    "in another layout": ("x = host.write; y[4] = f! x; host.read y", "x>y"),
    "another value of the donor is met": ("x = host.write; v:x[4] = view x; y = f! x v; host.read y", "x>y"),
    "no op has both": ("x = host.write; z = g x; y = f! z; host.read y", "x>y"),
}


def named(plans):
    """The programs that are named where all are judged as one batch."""
    batch = join([made.program for made in plans])
    laid, strange = flat(batch, join_plans(batch, plans))
    assert not strange
    return batch.unsound(laid)


@pytest.mark.parametrize("believed", [False, True])
def test_programs_are_named_whose_result_meets_what_it_may_not_and_no_other(believed):
    made = [(program(text), slots) for text, slots in (SOUND | UNSOUND).values()]
    plans = [plan(one, slots, belief(one) if believed else None) for one, slots in made]
    plans = [one if believed else replace(one, problem=None) for one in plans]

    wrong = [place for place, one in enumerate(plans) if not check(Document.of(one)).clean]
    assert named(plans) == wrong
    if not believed:
        assert wrong == [*range(len(SOUND), len(plans))]


def test_programs_are_named_of_which_a_wrong_pair_is_believed_and_no_other():
    """Every buffer lies apart from all others: what is wrong is believed alone."""
    made = [(program(text), share) for text, share in (BELIEVED | WRONGLY_BELIEVED).values()]
    plans = [plan(one, _apart(one), belief(one, share=share)) for one, share in made]

    wrong = [place for place, one in enumerate(plans) if not check(Document.of(one)).clean]
    assert wrong == [*range(len(BELIEVED), len(plans))]
    assert named(plans) == wrong


def _apart(made):
    return " ".join(f"{name}={64 * place}" for place, name in enumerate(made.buffers.names))
