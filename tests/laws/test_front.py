"""Laws of the front on generated expressions: its backward program is what `engine.autodiff` makes of the same graph, op by op."""

from math import prod

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocsim.allocators import find
from allocsim.judge.fast import check
from allocsim.model import Document, Run
from engine import tensor
from engine.autodiff import backward
from engine.front import functions as fn
from engine.front import reverse
from engine.front.extension import extend
from engine.front.record import history
from engine.graph import Graph

SHAPES = ((), (3,), (2, 3), (3, 2), (2, 2), (1, 3))


def pick(tensors, number, fits=lambda _: True):
    found = [t for t in tensors if fits(t)]
    assume(found)  # a concatenation can make a length that no other tensor has
    return found[-1 - number % len(found)]


MOVES = (
    lambda ts, i, _: pick(ts, i).tanh(),
    lambda ts, i, _: pick(ts, i).sigmoid(),
    lambda ts, i, _: pick(ts, i) * 0.5,
    lambda ts, i, _: pick(ts, i) ** 3,
    lambda ts, i, j: (a := pick(ts, i)) * pick(ts, j, lambda t: t.shape in (a.shape, ())),
    lambda ts, i, j: (a := pick(ts, i)) + pick(ts, j, lambda t: t.shape in (a.shape, ())),
    lambda ts, i, j: (a := pick(ts, i)) - pick(ts, j, lambda t: t.shape == a.shape),
    lambda ts, i, j: (
        (a := pick(ts, i, lambda t: t.ndim == 2)) @ pick(ts, j, lambda t: t.ndim == 2 and t.shape[0] == a.shape[1])
    ),
    lambda ts, i, _: pick(ts, i, lambda t: t.ndim == 2).T,
    lambda ts, i, _: pick(ts, i, lambda t: t.ndim > 0).sum(0),
    lambda ts, i, _: pick(ts, i).reshape(-1),
    lambda ts, i, j: (a := pick(ts, i, lambda t: t.ndim > 0)).softmax(j % a.ndim),
    lambda ts, i, j: (a := pick(ts, i, lambda t: t.ndim > 0)).max(j % a.ndim, keepdims=bool(j & 4)),
    lambda ts, i, j: (a := pick(ts, i, lambda t: t.ndim > 0)).mean(j % a.ndim),
    lambda ts, i, j: (a := pick(ts, i, lambda t: t.ndim > 0))[j % a.shape[0] :],
    lambda ts, i, j: (a := pick(ts, i, lambda t: t.ndim > 0))[..., [0, j % a.shape[-1], 0]],
    lambda ts, i, j: pick(ts, i)[None, ..., None],
    lambda ts, i, _: fn.concat([a := pick(ts, i, lambda t: 0 < t.ndim < 4), a * 2.0], -1),
    lambda ts, i, j: fn.where((a := pick(ts, i)) > 0, a, pick(ts, j, lambda t: t.shape in (a.shape, ()))),
    lambda ts, i, j: fn.maximum(a := pick(ts, i), pick(ts, j, lambda t: t.shape == a.shape)),
    lambda ts, i, j: fn.dropout(pick(ts, i), 0.3, seed=j),
    lambda ts, i, j: fn.attention(
        a := pick(ts, i, lambda t: t.ndim == 2), b := pick(ts, j, lambda t: t.ndim == 2 and t.shape[1] == a.shape[1]), b
    ),
    lambda ts, i, _: fn.cross_entropy(a := pick(ts, i, lambda t: t.ndim == 2), np.arange(len(a)) % a.shape[1]),
    lambda ts, i, j: pick(ts, i).astype(("float16", "bfloat16")[j % 2]).astype("float64"),
)

numbers = st.integers(0, 7)
programs = st.lists(st.tuples(st.integers(0, len(MOVES) - 1), numbers, numbers), min_size=1, max_size=14)


def expression(moves, seed):
    """Return (end, leafs): the sum of all that nothing else uses, by two leafs of each shape that want a gradient."""
    generator = np.random.default_rng(seed)
    leafs = [tensor(generator.standard_normal(shape), requires_grad=True) for shape in SHAPES for _ in range(2)]
    tensors = list(leafs)
    for move, i, j in moves:
        tensors.append(MOVES[move](tensors, i, j))
    end = tensors[-1].sum()
    for t in tensors[len(leafs) : -1]:
        end = end + t.sum() * 0.25
    return end, leafs


def as_graph(order):
    """The history as a graph of the engine, and its tensors by position."""
    graph, tensors = Graph("twin"), {}
    for position, node in enumerate(order):
        if node.recipe is None:
            tensors[node] = graph.input(f"leaf_{position}", node.shape, node.dtype)
        else:
            tensors[node] = graph.op(node.kind, *[tensors[s] for s in node.sources], **node.recipe.params)
    return graph, [tensors[node] for node in order]


@given(moves=programs, seed=st.integers(0, 99))
@settings(max_examples=30)
def test_the_program_is_autodiffs_op_by_op(moves, seed):
    """Kinds, operands, layouts and what is wanted agree with the extension of the same graph."""
    end, _ = expression(moves, seed)
    order = history(end._node)
    extension = extend(order)
    graph, tensors = as_graph(order)
    wanted = [tensors[p] for p, node in enumerate(order) if node.recipe is None and node.needs_grad]
    seeded = graph.input("seed", (1,), "f64")
    graph.expand(*tensors)  # in the order of creation, as the front has it
    found = backward(graph, tensors[-1], parameters=wanted, seed=seeded)
    added = [node for node in graph.nodes if node.stage == "backward"]
    names = {tensor: ("node", p) for p, tensor in enumerate(tensors)} | {seeded: ("node", len(order))}
    names |= {tensor: ("op", k) for k, tensor in enumerate(added)}
    expected = [(str(n.kind), tuple(names[s] for s in n.operands), n.shape) for n in added]

    program, saved = extension.program, extension.saved
    known = {v: ("node", p) for v, p in enumerate(saved)} | {len(saved) + k: ("op", k) for k in range(len(added))}
    mine = [
        (
            extension.actions[extension.action_of[op.step]].kind,
            tuple(known[v] for v in op.operands),
            program.values[op.results[0]].shape,
        )
        for op in program.ops
        if op.results
    ]
    assert mine == expected
    assert {p: known[v] for p, v in extension.gradients} == {
        p: names[found[t]] for p, t in enumerate(tensors) if t in found
    }


@given(moves=programs, seed=st.integers(0, 99))
@settings(max_examples=25)
def test_its_plan_is_sound_and_a_second_pass_reads_the_new_values(moves, seed):
    """The judge finds nothing; a kept program over other data gives the bits of one made anew, under either planner."""
    end, leafs = expression(moves, seed)
    extension = extend(history(end._node))
    for allocator in ("ggml", "reference"):
        plan = find(allocator).plan(extension.program)
        assert check(Document.of(Run.of(plan), Run.of(plan))).violations == ()
    reverse._kept.clear()
    end.backward()
    kept, again = [], expression(moves, seed + 1)
    again[0].backward()
    assert len(reverse._kept) == 1
    kept = [leaf.grad for leaf in again[1]]
    reverse._kept.clear()
    anew = expression(moves, seed + 1)
    anew[0].backward(allocator="reference")
    for mine, other in zip(kept, anew[1], strict=True):
        assert (mine is None) == (other.grad is None)
        assert mine is None or mine.data.tobytes() == other.grad.data.tobytes()
    assert sum(prod(leaf.shape) for leaf in leafs) > 0


def keys(draw, shape):
    """A key of numbers, slices of positive steps, None and ... ."""
    lengths = st.sampled_from([None, -3, -1, 0, 1, 2, 5])
    steps = st.sampled_from([None, 1, 2, 3])
    items = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        slices = st.builds(slice, lengths, lengths, steps)
        items.append(draw(st.one_of(slices, st.integers(-n, n - 1)) if n else slices))
        items += [None] * draw(st.sampled_from([0, 0, 0, 1]))
    return (*items, ...) if draw(st.booleans()) else tuple(items)


@given(data=st.data())
@settings(max_examples=75)
def test_views_and_what_is_written_through_them_are_numpys(data):
    """Views of views, by keys, turns, splits and new axes, with writes through any of them: every tensor holds what numpy's array holds."""
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    start = np.random.default_rng(0).standard_normal(shape)
    pairs = [(tensor(start), start.copy())]
    for _ in range(data.draw(st.integers(1, 8))):
        mine, theirs = data.draw(st.sampled_from(pairs))
        move = data.draw(st.sampled_from(["key", "key", "turn", "axis", "split", "add", "mul", "set", "copy"]))
        if move == "key":
            key = keys(data.draw, theirs.shape)
            pairs.append((mine[key], theirs[(*key, ...)] if ... not in key else theirs[key]))
        elif move == "turn" and theirs.ndim:
            order = data.draw(st.permutations(range(theirs.ndim)))
            pairs.append((mine.transpose(*order), theirs.transpose(order)))
        elif move == "axis":
            lengths = [1, *theirs.shape] if data.draw(st.booleans()) else [n for n in theirs.shape if n != 1]
            pairs.append((mine.reshape(lengths), theirs.reshape(lengths, copy=False)))
        elif move == "split" and theirs.ndim and theirs.shape[-1]:
            pairs += zip(fn.split(mine, [1, theirs.shape[-1] - 1], -1), np.split(theirs, [1], -1), strict=True)
        elif move == "add":
            theirs += 1.5
            mine.add_(1.5)
        elif move == "mul":
            theirs *= theirs.copy()
            mine.mul_(mine)
        elif move == "set":
            key = keys(data.draw, theirs.shape)
            theirs[key] = 0.25
            mine.set_(key, 0.25)
        elif move == "copy":
            pairs.append((mine * 1.0, theirs.copy()))
    for mine, theirs in pairs:
        assert mine.shape == theirs.shape
        assert mine.numpy().tolist() == theirs.tolist()
