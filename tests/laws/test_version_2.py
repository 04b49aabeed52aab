"""Laws of what version 2 of the document added: it comes back from JSON and from GraphML, and survives whatever makes programs of programs."""

import io
import json
from collections.abc import Callable

import networkx as nx
import numpy as np
from columns import difference
from few import ENOUGH
from hypothesis import given
from hypothesis import strategies as st
from newer import documents, programs
from strategies import documents as older_documents

from allocsim import document
from allocsim.errors import DocumentError, ModelError
from allocsim.fuzzing.batch import join
from allocsim.model import Document, Program
from allocsim.programs.fingerprints import fingerprint
from allocsim.programs.networkx_graph import from_networkx, to_networkx
from allocsim.reduction.cut import cut

ODD = st.sampled_from(
    (
        None,
        True,
        -1,
        0,
        1,
        3,
        8,
        1 << 62,
        1 << 64,
        0.5,
        "",
        "bytes",
        "same",
        "i4",
        "f32",
        [],
        [0],
        [1, 0],
        [0, 0, "whole"],
        {},
    )
)
KEYS = (
    "after",
    "read_after",
    "nbytes_range",
    "bit_offset",
    "path",
    "in_place",
    "strides",
    "shape",
    "dtype",
    "version",
    "kind",
)


@given(documents())
@ENOUGH
def test_what_is_written_comes_back_equal_and_is_written_alike(made: Document) -> None:
    data = document.dumps(made)
    again = document.loads(data)
    assert difference(made, again) is None
    assert document.dumps(again) == data


@given(older_documents())
@ENOUGH
def test_a_document_without_anything_new_says_version_1(made: Document) -> None:
    assert json.loads(document.dumps(made))["version"] == 1


@given(documents())
@ENOUGH
def test_a_document_says_2_exactly_where_a_reader_of_version_1_would_refuse_it(made: Document) -> None:
    """A key or a dtype is refused; a `same` is not, but means something else there."""
    tree = json.loads(document.dumps(made))
    same = any(op["kind"] == "same" for program in tree["programs"] for op in program["ops"])
    says = tree["version"]
    tree["version"] = 1
    said = complaint(lambda: document.loads(json.dumps(tree)))
    assert said is None or said.endswith('needs "version": 2')
    assert says == (2 if said or same else 1)


@given(documents(), st.data())
@ENOUGH
def test_a_document_with_parts_replaced_is_read_or_refused_in_one_line(made: Document, data: st.DataObject) -> None:
    tree = json.loads(document.dumps(made))
    tree["version"] = 2
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from([node for node in walk(tree) if isinstance(node, dict)]))
        key = data.draw(st.sampled_from(sorted({*node, *KEYS})))
        node[key] = data.draw(ODD)
    said = complaint(lambda: document.loads(json.dumps(tree), "f.json"))
    if said is None:
        found = document.loads(json.dumps(tree))
        assert difference(found, document.loads(document.dumps(found))) is None
        return
    assert said.startswith("f.json: ")
    assert "\n" not in said


def complaint(attempt: Callable[[], object]) -> str | None:
    """Return what is said of something that is no document or program, None where it is one."""
    try:
        attempt()
    except (DocumentError, ModelError) as error:
        return str(error)
    return None


def walk(node: object) -> list:
    """Return every list and object inside."""
    children = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    return ([node] if isinstance(node, dict | list) else []) + [found for child in children for found in walk(child)]


@given(programs())
@ENOUGH
def test_a_program_comes_back_from_graphml(made: Program) -> None:
    file = io.BytesIO()
    nx.write_graphml(to_networkx(made), file)
    file.seek(0)
    assert difference(made, from_networkx(nx.read_graphml(file))) is None


@given(programs(), st.data())
@ENOUGH
def test_a_graph_with_attributes_replaced_is_read_or_refused_in_one_line(made: Program, data: st.DataObject) -> None:
    graph = to_networkx(made)
    places = [
        graph.graph,
        *(attributes for _, attributes in graph.nodes(data=True)),
        *(edge for _, _, edge in graph.edges(data=True)),
    ]
    place = data.draw(st.sampled_from([one for one in places if one]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(
        ODD | st.sampled_from(["[", "[1", '{"a": 1}', "null", "3", "[[0]]", "[" * 9999])
    )
    assert "\n" not in (complaint(lambda: from_networkx(graph)) or "")


@given(st.lists(programs(), min_size=2, max_size=2))
@ENOUGH
def test_programs_joined_and_taken_apart_again_are_the_same(made: list[Program]) -> None:
    batch = join(made)
    for index, program in enumerate(made):
        assert fingerprint(batch[index]) == fingerprint(program)


@given(documents(), st.data())
@ENOUGH
def test_a_pair_of_a_document_cut_keeps_what_it_promises(made: Document, data: st.DataObject) -> None:
    """A pair stays with its strength where operand and result both stay, and both sides of a `same` go together."""
    kept = [np.array([data.draw(st.booleans()) for _ in range(len(p.ops))], dtype=np.bool_) for p in made.programs]
    left = cut(made, ops=kept)
    for before, after in zip(made.programs, left.programs if left is not None else (), strict=left is not None):
        promised, known = promises(before)
        left_over, stay = promises(after)
        assert left_over == {key: strengths for key, strengths in promised.items() if key in stay}
        assert stay <= known


def promises(program: Program) -> tuple[dict[tuple[str, str], list[int]], set[tuple[str, str]]]:
    """Return the strengths of the pairs, and all (operand, result) there are, values told by their buffers."""
    named = [program.buffers.names[buffer] for buffer in program.values.buffer.tolist()]
    found: dict[tuple[str, str], list[int]] = {}
    both = set()
    for op in program.ops:
        both |= {(named[one], named[other]) for one in op.operands for other in op.results}
        for (one, other), strength in zip(op.in_place or (), op.strengths, strict=True):
            found.setdefault((named[op.operands[one]], named[op.results[other]]), []).append(strength)
    return found, both
