"""Laws of the native document: what is written is read back equal, and nothing that is no document gets past the reader."""

import json

import pytest
from columns import difference
from hypothesis import given
from hypothesis import strategies as st
from strategies import documents

from allocsim import document
from allocsim.errors import DocumentError
from allocsim.model import Document

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)

ODD = st.sampled_from((
    None, True, -1, 0, 1, 7, 99, 1 << 31, 1 << 40, 1 << 62, (1 << 62) + 1, -(1 << 62), 1 << 64, 10**40, 0.5, 1e300, "", "own",
    "x", "7", "\u0000", "meta", [], [[]], [0], [-1], [0, 1], {}, {"meta": {}}, {"0": 1}, [1 << 62] * 33,
))  # fmt: skip


@given(documents())
def test_reading_what_was_written_gives_equal_columns(made: Document) -> None:
    data = document.dumps(made)
    again = document.loads(data)
    assert difference(made, again) is None
    assert document.dumps(again) == data


@given(documents(), st.data())
def test_a_document_with_bytes_changed_is_read_or_refused(made: Document, data: st.DataObject) -> None:
    text = bytearray(document.dumps(made))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 8))
        text[at : at + length] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"{", b"}", b"[", b"]", b",", b'"', b"9", b"-"])
        )
    read_or_refused(bytes(text))


@given(documents(), st.data())
def test_a_document_with_parts_replaced_is_read_or_refused(made: Document, data: st.DataObject) -> None:
    tree = json.loads(document.dumps(made))
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(tree, data)
    read_or_refused(json.dumps(tree).encode())


@given(documents(), st.data())
def test_no_proper_beginning_of_a_document_is_one(made: Document, data: st.DataObject) -> None:
    text = document.dumps(made).rstrip()
    with pytest.raises(DocumentError, match=r"is empty|is cut off at|is not JSON"):
        document.loads(text[: data.draw(st.integers(0, len(text) - 1))], "f.json")


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_meta_is_kept_whatever_it_is(meta: dict[str, object]) -> None:
    made = Document(programs=(), meta=meta)
    assert document.loads(document.dumps(made)).meta == meta


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_or_refused(data)


def read_or_refused(data: bytes) -> None:
    try:
        found = document.loads(data, "f.json")
    except DocumentError as error:
        refused = error
    else:
        assert difference(found, document.loads(document.dumps(found))) is None
        return
    assert refused.source == "f.json"
    assert str(refused).startswith("f.json: ")
    assert "\n" not in str(refused)
    assert len(str(refused)) < 400


def mutate(tree: object, data: st.DataObject) -> None:
    """Replace, drop, double or rename one member somewhere inside."""
    holders = [node for node in walk(tree) if node]
    node = data.draw(st.sampled_from(holders))
    action = data.draw(st.sampled_from(["replace", "drop", "copy", "rename"]))
    key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    if action == "replace":
        node[key] = data.draw(ODD | JSON)
    elif action == "drop":
        del node[key]
    elif action == "copy" and isinstance(node, list):
        node.append(node[key])
    elif isinstance(node, dict):
        node[data.draw(st.sampled_from(["nbytes", "program", "0", "x", "", "after", "arena"]))] = node.pop(key)


def walk(node: object) -> list:
    """Return every list and object inside."""
    children = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    return ([node] if isinstance(node, dict | list) else []) + [found for child in children for found in walk(child)]
