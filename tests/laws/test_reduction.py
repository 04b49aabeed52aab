"""Reduction on generated documents: what is left shows the same fault, nothing single can go, and the file to paste is the document."""

from dataclasses import replace

import numpy as np
import pytest
from columns import difference
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import documents

from allocsim.document import dumps, loads
from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.outcomes.description import describe
from allocsim.reduction import reduce, same_fault, script
from allocsim.reduction.cut import cut
from allocsim.reduction.parts import rebuilt, without_meta
from allocsim.reduction.smaller_shapes import flattened, lengths, shortened
from allocsim.verdict.attribution import charges, leading


def told_apart(document):
    """Return the document with a name of its own for every value, so that a value is known again under another number."""
    programs = [
        replace(
            program,
            values=replace(program.values, names=tuple(f"{number}.{index}" for index in range(len(program.values)))),
        )
        for number, program in enumerate(document.programs)
    ]
    return rebuilt(document, programs=programs)


def built(source):
    """Run the source of a test file; return its document after its own test has passed."""
    space = {}
    exec(compile(source, "reduced", "exec"), space)
    space["test_the_fault_is_found"]()
    return space["document"]()


@given(documents())
@settings(max_examples=30)
def test_the_script_builds_the_very_document_and_its_test_passes(document):
    bare = without_meta(document)
    assert difference(built(script(bare)), bare) is None


@given(documents(), st.integers(0, 999))
@settings(max_examples=40)
def test_what_is_cut_is_well_formed_dense_and_reads_nothing_that_was_lost(document, seed):
    document = told_apart(document)
    random = np.random.default_rng(seed)
    masks = [random.random(len(p.ops)) < 0.6 for p in document.programs]
    smaller = cut(document, ops=masks)
    assume(smaller is not None)
    assert difference(loads(dumps(smaller)), smaller) is None
    for before, after in zip(document.programs, smaller.programs, strict=True):
        assert len(after.ops) <= len(before.ops)
        named = {value for op in after.ops for value in (*op.operands, *op.results)}
        was_named = {before.values[value].name for op in before.ops for value in (*op.operands, *op.results)}
        assert all(value.index in named or value.name not in was_named for value in after.values)
    # a read of a value whose maker is gone goes too: cutting leaves no read without its writer that had one
    for before, after in zip(document.programs, smaller.programs, strict=True):
        made = {before.values[value].name for op in before.ops for value in op.results}
        for op in after.ops:
            assert all(after.producer[v] >= 0 or after.values[v].name not in made for v in op.operands)


@given(documents())
@settings(max_examples=25)
def test_cutting_nothing_changes_nothing(document):
    assert difference(cut(document), document) is None


@given(documents(sound=True))
@settings(max_examples=25)
def test_a_sound_document_stays_sound_when_its_shapes_shrink_flat(document):
    flat = flattened(document)
    if flat is None:
        return
    kinds = {v.kind for v in check(flat).violations}
    # flattening forgets shapes, never bytes: only what rests on layouts may come up
    assert kinds <= {"UnsafeInPlace", "BadShare", "Overlap"}


@given(documents())
@settings(max_examples=25)
def test_shapes_shrink_to_well_formed_documents_or_not_at_all(document):
    for old in lengths(document):
        try:
            made = shortened(document, old, 1)
        except AllocsimError:
            continue
        if made is not None:
            assert difference(loads(dumps(made)), made) is None


@given(documents())
@settings(max_examples=15)
def test_the_reduced_document_has_the_same_fault_and_no_other_and_is_1_minimal_in_ops(document):
    assume(sum(len(program.ops) for program in document.programs) <= 30)
    cause = leading(document)
    assume(cause is not None)
    found = reduce(document)
    assert found.complete
    assert found.cause is not None
    known = {one.key for one in charges(document)[1]}
    assert cause.key in {one.key for one in charges(found.document)[1]} <= known
    keep = same_fault(document, cause)
    programs = found.document.programs
    for index, program in enumerate(programs):
        for op in range(len(program.ops)):
            masks = [np.ones(len(p.ops), dtype=bool) for p in programs]
            masks[index][op] = False
            try:
                smaller = cut(found.document, ops=masks)
                assert smaller is None or not keep(smaller)
            except AllocsimError:
                pass
    assert difference(built(script(found.document)), found.document) is None


@given(documents())
@settings(max_examples=30)
def test_every_violation_can_be_described_and_names_its_parties(document):
    for cause in charges(document)[1]:
        text = describe(document, cause.violation, cause=cause)
        assert text.startswith(f"{cause.violation.kind}: ")
        assert all(line.isprintable() for line in text.splitlines())
        if cause.violation.op is not None:
            assert sum(line.startswith("  > ") for line in text.splitlines()) == 1


@pytest.mark.slow
@given(documents())
@settings(max_examples=10)
def test_reduction_is_deterministic(document):
    assume(leading(document) is not None)
    assert dumps(reduce(document).document) == dumps(reduce(document).document)
