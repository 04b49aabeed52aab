"""A mixture of experts: each row goes through `active` of E functions, chosen by a router.

    mixed = mixture(x, scores, active=2, slots=slots(rows, experts=8, active=2, factor=1.25),
                    expert=lambda rows: product(weights, rows))
    mixed.result, mixed.balance

Shapes: S rows x [S, D], router scores [S, E], C slots of each expert. Of the soft maximum of its
scores a row takes the `active` largest. All rows that choose an expert queue for its slots: first
choices in their order, behind them the second ones, and so on; who comes behind the last slot is
dropped there, and adds nothing. The rows of the slots, [E, C, D], go through `expert`, which works
on all experts at once, by products of batches of matrices. A row's result is the sum of its
experts' results, each times its share: that of the soft maximum, for `active` > 1 over the sum of
those that it chose. So a row that all its experts drop is 0, and what stands around (a residual)
carries it.

`balance` is E times the sum over experts of the share of rows (of choices, over `active`) that
chose it and the mean of its soft maximum: 1 where both are even, more where they are not. A model
adds some of it to its loss; gradients flow through the mean alone.

The arithmetic is that of one-hot masks [S, E, C] (GShard), done by indices: a stable sort of each
expert's column of choices is its queue, rows are read by it (`get_rows`) and added where they came
from (`get_rows_back`). What lies in a slot that nobody has is some row, times 0. Choices and places
jump; no gradient flows through them.

Rows that come later never take the slot of an earlier row of the same choice, but the first choice
of a later row may take that of the second choice of an earlier one.

Source: Lepikhin et al. 2020 (GShard, arXiv:2006.16668); Fedus et al. 2021 (Switch Transformer,
arXiv:2101.03961), the load balancing loss.

Complexity: O(S E log S + E C (D + expert)).

What this module does not see: what an expert computes, ranks (`engine.sharding.expert_parallel`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from allocsim.errors import EngineError
from engine.graph import Tensor
from engine.ops.row import contiguous
from engine.ops.views import reshaped


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """What a mixture of experts makes."""

    result: Tensor
    """[S, width of the experts' results]."""
    balance: Tensor
    """[1]: how unevenly rows choose."""


def slots(rows: int, *, experts: int, active: int, factor: float) -> int:
    """Return the slots of each expert: its even share of all choices times a factor, rounded up;
    never more than there are rows, nor fewer than one.
    """
    return max(1, ceil(min(rows, active * rows * factor / experts)))  # a factor may be too large for a whole number


def mixture(x: Tensor, scores: Tensor, *, active: int, slots: int, expert: Callable[[Tensor], Tensor]) -> Mixture:
    """Record a mixture of experts.

    Args:
        x: rows, [S, D].
        scores: of the router, [S, E].
        active: experts of a row, 1 to E.
        slots: rows that an expert takes, 1 to S.
        expert: [E, C, D] -> [E, C, width], the rows of each expert through it.

    Raises:
        EngineError: the numbers or shapes do not fit.
    """
    op, (rows, experts) = x.graph.op, scores.shape
    if not 1 <= active <= experts or not 1 <= slots <= rows:
        raise EngineError(
            f"{active} of {experts} experts for each row, {slots} slots for {rows} rows: 1 to all of each"
        )
    share = op("soft_max", scores, name="router_soft_max")
    turn = _choices(share, active)
    chosen = op("step", turn, name="router_chosen")
    taken = op("mul", share, chosen)
    if active > 1:
        taken = op("div", taken, op("sum_axes", taken, axes=-1, keepdims=True))
    queue = op("argsort", op("neg", op("transpose", turn)), name="router_queue")
    places = contiguous(op("slice", queue, starts=(0, 0), lengths=(experts, slots)))
    weight = op("gather", op("transpose", taken), places, name="router_weight")
    ids = op("reshape", places, shape=(experts * slots,))
    sent = op("reshape", op("get_rows", x, ids), shape=(experts, slots, x.shape[-1]), name="dispatched")
    made = expert(sent)
    if made.shape[:-1] != (experts, slots):
        raise EngineError(f"{made} is what experts made of {sent}; it must be a row for each of theirs")
    weighed = op("mul", reshaped(made, (experts * slots, made.shape[-1])), reshaped(weight, (experts * slots, 1)))
    result = op("get_rows_back", weighed, ids, rows=rows, name="combined")
    pair = (op("mean", tensor, axes=0) for tensor in (chosen, share))
    balance = op("scale", op("sum", op("mul", *pair)), s=experts / active, name="router_balance")
    return Mixture(result, balance)


def _choices(share: Tensor, active: int) -> Tensor:
    """Return [S, E]: `active` for a row's first choice, one less for each further one, else 0."""
    op, (rows, experts) = share.graph.op, share.shape
    ones = op("full", shape=(rows, 1), value=1.0, dtype=share.dtype)
    left, turn = share, None
    for number in range(active):
        first = op("scatter", ones, op("reshape", op("argmax", left), shape=(rows, 1)), length=experts)
        ahead = op("scale", first, s=float(active - number))
        turn = ahead if turn is None else op("add", turn, ahead)
        left = op("sub", left, op("scale", first, s=2.0))  # below every share
    assert turn is not None
    return turn
