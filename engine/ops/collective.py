"""Collectives: ops that every rank of a group does together, each on a tensor of its own.

Rank r of N gives x_r and gets y_r; `[s]` is the s-th of N equal parts along axis 0, and sums are
made in the order of the ranks.

| kind | y_r | gradient of x |
|---|---|---|
| all_gather | x_0, x_1, .. one after the other | reduce_scatter |
| reduce_scatter | sum over s of x_s[r] | all_gather |
| all_reduce | sum over s of x_s | all_reduce; with `backward="identity"` as it is |
| broadcast | x_root | reduce |
| reduce | sum over s of x_s for the root, zeros for others | broadcast |
| all_to_all | x_0[r], x_1[r], .. one after the other | all_to_all |
| send_receive | x of the rank `by` before it, in a ring | send_receive the other way |
| own_part | part r of x, alone; zeros behind the end of x | none: a step of an optimizer needs none |
| all_gather_over | as all_gather, written over dst, which is not read | none, as above |
| send | nothing, [0]: x is brought to `peer` | none: who cuts a graph in two sends gradients |
| recv | what `peer` sends, of `shape` and `dtype`; zeros of a group of one | none, as above |

The loss that is differentiated is the sum of the losses of all ranks; so each gradient is the
transpose of its op over all ranks. `backward="identity"` is for a sum that every rank goes on with
alike, where the loss is one loss (Shoeybi et al. 2019, Megatron-LM, the operator g).

`ranks` is the size of the group and `group` its name: ranks that name one group meet in it, and
which ranks these are is for whoever runs the graph to say. With one rank every op that has an x and
a result is a copy.

What this module does not see: which rank runs it, and how bytes travel.
"""

from math import prod
from typing import Any, Final

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ITEMSIZES, ResultLayout, Tensor
from engine.ops.shapes import HALVES, checked_shape, floating, whole

WORLD: Final = "world"
"""The group of all ranks."""

_GROUP: Final = {"ranks": 1, "group": WORLD}
_BACKWARD: Final = ("all_reduce", "identity")


def part_length(elements: int, ranks: int) -> int:
    """Return the elements of each of `ranks` equal parts that together hold all."""
    return -(-elements // ranks)


def _ranks(params: dict[str, Any]) -> int:
    count = params["ranks"] = whole("ranks", params["ranks"])
    if count < 1 or not isinstance(params["group"], str):
        raise EngineError(f"group {params['group']!r} of {count} ranks: a group has a name and at least one rank")
    return count


def _gathered(params: dict[str, Any], x: Tensor) -> ResultLayout:
    rows, *rest = x.shape
    return ResultLayout(shape=(rows * _ranks(params), *rest), dtype=x.dtype)


def _scattered(params: dict[str, Any], x: Tensor) -> ResultLayout:
    count = _ranks(params)
    _divisible(x, count)
    return ResultLayout(shape=(x.shape[0] // count, *x.shape[1:]), dtype=_summable(x))


def _summable(x: Tensor) -> str:
    """Return the dtype of x: 16 bits too, which travel as they are and are added in f32.

    Raises EngineError for what is no float.
    """
    return x.dtype if x.dtype in HALVES else floating(x)


def _divisible(x: Tensor, count: int) -> None:
    if x.shape[0] % count:
        raise EngineError(f"{x} has {x.shape[0]} rows; {count} ranks must divide them")


def _alike(params: dict[str, Any], x: Tensor) -> ResultLayout:
    count = _ranks(params)
    if "root" in params:
        _member(params, "root")
    if "by" in params:
        params["by"] = whole("by", params["by"]) % count
    return ResultLayout(shape=x.shape, dtype=x.dtype)


def _summed(params: dict[str, Any], x: Tensor) -> ResultLayout:
    _summable(x)
    if params.get("backward", "identity") not in _BACKWARD:
        raise EngineError(f"backward {params['backward']!r} is none of {', '.join(_BACKWARD)}")
    return _alike(params, x)


def _exchanged(params: dict[str, Any], x: Tensor) -> ResultLayout:
    _divisible(x, _ranks(params))
    return _alike(params, x)


def _own_part(params: dict[str, Any], x: Tensor) -> ResultLayout:
    return ResultLayout(shape=(part_length(prod(x.shape), _ranks(params)),), dtype=x.dtype)


def _gathered_over(params: dict[str, Any], x: Tensor, dst: Tensor) -> ResultLayout:
    count = _ranks(params)
    if x.dtype != dst.dtype or x.shape != (part_length(prod(dst.shape), count),) or not dst.contiguous:
        raise EngineError(f"{x} must be one of {count} equal parts of {dst}")
    return ResultLayout(shape=dst.shape, dtype=dst.dtype)


def _member(params: dict[str, Any], name: str) -> None:
    count, rank = _ranks(params), whole(name, params[name])
    if not 0 <= rank < count:
        raise EngineError(f"{name} {rank} must be one of the {count} ranks")
    params[name] = rank


def _sent(params: dict[str, Any], x: Tensor) -> ResultLayout:
    _member(params, "peer")
    return ResultLayout(shape=(0,), dtype=x.dtype)


def _received(params: dict[str, Any]) -> ResultLayout:
    _member(params, "peer")
    if params["dtype"] not in ITEMSIZES:
        raise EngineError(f"dtype {params['dtype']!r} is none of {', '.join(ITEMSIZES)}")
    return ResultLayout(shape=checked_shape(params["shape"]), dtype=params["dtype"])


RULES = (
    row("all_gather(x)", _gathered, params=_GROUP, x="reduce_scatter(g, **params)"),
    row("reduce_scatter(x)", _scattered, params=_GROUP, x="all_gather(g, **params)"),
    row(
        "all_reduce(x)",
        _summed,
        params={**_GROUP, "backward": "all_reduce"},
        x="g if backward == 'identity' else all_reduce(g, **params)",
    ),
    row("broadcast(x)", _alike, params={**_GROUP, "root": 0}, x="reduce(g, **params)"),
    row("reduce(x)", _summed, params={**_GROUP, "root": 0}, x="broadcast(g, **params)"),
    row("all_to_all(x)", _exchanged, params=_GROUP, x="all_to_all(g, **params)"),
    row("send_receive(x)", _alike, params={**_GROUP, "by": 1}, x="send_receive(g, ranks=ranks, group=group, by=-by)"),
    row("own_part(x)", _own_part, params=_GROUP),
    row("all_gather_over(x, dst)", _gathered_over, params=_GROUP, mutates=1, unread="dst"),
    row("send(x)", _sent, params={**_GROUP, "peer": 0}),
    row("recv(*, shape, dtype='f32')", _received, params={**_GROUP, "peer": 0}),
)
