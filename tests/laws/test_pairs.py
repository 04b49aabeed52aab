"""Pairs are enough: all small kernels over all small layouts, byte by byte, against what pair by pair is judged.

A kernel is a loop over the elements of its results, in some order: for each it reads some elements of its operands, then writes it. Two shapes
are gone through whole: two operands and one result, where both operands may share bytes with the result, and one operand and two results, one
of which may lie on the operand that the other is made of.
"""

import json
from itertools import chain, combinations, permutations, product

import pytest
from few import few_of

from allocsim import document as native
from allocsim.judge.fast import check

NONE, AT_ONE_START, WHOLE = range(3)
"""What a kernel promises of a pair, weakest first; at one start it is `exact`, of results that are smaller `bytes`."""
FAR = 100


def subsets(items):
    return tuple(chain.from_iterable(combinations(items, count) for count in range(len(items) + 1)))


def kernels(operands, results):
    """Yield all kernels: (result, element, reads) in the order of the loop, where a read is (operand, element)."""
    elements = [(r, k) for r, size in enumerate(results) for k in range(size)]
    reads = subsets([(o, k) for o, size in enumerate(operands) for k in range(size)])
    for order in permutations(elements):
        for read in product(reads, repeat=len(order)):
            yield tuple((*element, some) for element, some in zip(order, read, strict=True))


def written(kernel, operands, results, *, apart=False):
    """Return what a kernel writes where its operands and results begin there; a byte that it did not write holds its address."""
    memory, found = {}, []
    for result, element, reads in kernel:
        made = result, element, tuple(memory.get(at, at) for at in (operands[o] + k for o, k in reads))
        found.append(made)
        if not apart:
            memory[results[result] + element] = made
    return found


def right(kernel, layout):
    return written(kernel, *layout) == written(kernel, *layout, apart=True)


def alone(layout, operand, result):
    """Return a layout in which all but one operand and one result lie apart."""
    return tuple(
        tuple(start if n == kept else FAR * (n + 1) + 10 * side for n, start in enumerate(starts))
        for side, (starts, kept) in enumerate(zip(layout, (operand, result), strict=True))
    )


def promised(kernel, pair, layouts, *, larger):
    """Return the strongest promise about a pair that a kernel keeps; of a result that is larger than the operand there is none at one start."""
    seen = {alone(layout, *pair) for layout in layouts}
    if all(right(kernel, layout) for layout in seen):
        return WHOLE
    one_start = [layout for layout in seen if layout[0][pair[0]] == layout[1][pair[1]]]
    return AT_ONE_START if not larger and all(right(kernel, layout) for layout in one_start) else NONE


def document(operands, results, promises, layouts):
    """Return an op with these promises, and a plan for each layout."""
    sizes = [*operands, *results]
    words = {
        (o, r): (None, "exact" if operands[o] == results[r] else "bytes", "whole")[said] for (o, r), said in promises
    }
    first = len(operands)
    program = {
        "buffers": [{"name": f"b{n}", "nbytes": size} for n, size in enumerate(sizes)],
        "values": [{"name": f"v{n}", "buffer": n, "dtype": "u8", "shape": [size]} for n, size in enumerate(sizes)],
        "ops": [
            {"kind": "host.write", "results": list(range(first))},
            {
                "kind": "k",
                "operands": list(range(first)),
                "results": list(range(first, len(sizes))),
                "in_place": [[*pair, word] for pair, word in words.items() if word],
            },
            {"kind": "host.read", "operands": list(range(first, len(sizes)))},
        ],
    }
    plans = [
        {
            "program": 0,
            "slots": [{"arena": 0, "offset": at, "nbytes": size} for at, size in zip((*o, *r), sizes, strict=True)],
        }
        for o, r in layouts
    ]
    return native.loads(
        json.dumps({"format": "allocsim", "version": 2, "programs": [{"name": "p", **program}], "plans": plans})
    )


def accused(operands, results, promises, layouts):
    """Return the layouts in which an op with these promises is told that a result lies unsafely."""
    report = check(document(operands, results, promises, layouts), limit=10**6)
    return {layouts[v.plan] for v in report.violations if v.kind == "UnsafeInPlace"}


TWO_OPERANDS = (2, 2), (2,), [((a, b), (2,)) for a in range(5) for b in range(5)]
TWO_RESULTS = (2,), (2, 1), [((2,), (a, b)) for a in range(5) for b in range(1, 5) if not a <= b < a + 2]
TWO_OF_EACH = (
    (2, 1),
    (1, 2),
    [((2, a), (b, c)) for a in (1, 2, 3, 9) for b in (1, 2, 3, 9) for c in range(1, 4) if not c <= b < c + 2],
)
"""Sizes of operands, of results, and the layouts: apart, one byte over, one start, one byte below."""
SHAPES = pytest.mark.parametrize("shape", few_of([(TWO_OPERANDS,), (TWO_RESULTS,), (TWO_OF_EACH,)], 2))


@SHAPES
def test_a_layout_is_right_where_each_operand_and_each_result_by_themselves_are(shape):
    operands, results, layouts = shape
    pairs, tried, wrong = list(product(range(len(operands)), range(len(results)))), 0, 0
    for kernel in kernels(operands, results):
        for layout in layouts:
            found = right(kernel, layout)
            assert found is all(right(kernel, alone(layout, *pair)) for pair in pairs), (kernel, layout)
            tried, wrong = tried + 1, wrong + (not found)
    assert tried > wrong > 2000


@SHAPES
def test_what_is_clean_is_right_for_every_kernel_that_keeps_its_promises_and_what_is_accused_is_wrong_for_one(shape):
    operands, results, layouts = shape
    pairs = list(product(range(len(operands)), range(len(results))))
    larger, keeping = {(o, r) for o, r in pairs if results[r] > operands[o]}, {}
    for kernel in kernels(operands, results):
        kept = tuple(promised(kernel, pair, layouts, larger=pair in larger) for pair in pairs)
        keeping.setdefault(kept, []).append(kernel)
    every = list(product(*((NONE, WHOLE) if pair in larger else (NONE, AT_ONE_START, WHOLE) for pair in pairs)))
    told = {said: accused(operands, results, tuple(zip(pairs, said, strict=True)), layouts) for said in every}
    for said, unsafe in told.items():
        assert all(right(kernel, layout) for kernel in keeping.get(said, ()) for layout in set(layouts) - unsafe), said
        bound = [kernel for kept, some in keeping.items() if all(map(int.__ge__, kept, said)) for kernel in some]
        for layout in unsafe:
            assert not all(right(kernel, layout) for kernel in bound), (said, layout)
    assert len(told[every[0]]) > len(told[every[-2]]) > len(told[every[-1]]) == 0
