"""Elements that a record brings: K and D take them, a fault that drawn ones hide shows, and what does not fit is refused."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocsim.errors import EngineError
from allocsim.model import Document
from allocsim.systems.ggml.access.child import Child
from allocsim.systems.ggml.capture_evidence import captured_plans, depart, examine, operands_of
from allocsim.systems.ggml.host_record import host_recorder as recorder
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log
from tests.ggml_host import programs

TWOS = np.full(64, 2, dtype=np.float32)


@pytest.fixture(scope="module", name="document")
def _document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Three runs of a graph whose input is 2 each time, recorded with elements of up to 1 KiB."""
    folder = programs(tmp_path_factory.mktemp("host"))
    recorder.record([str(folder / "host_programs"), "input_once", "right"], folder / "log.jsonl", elements=1024)
    (document,) = documents_of(read_log(folder / "log.jsonl"))
    return document


def _rows(document: Document) -> dict[str, Any]:
    return json.loads(json.dumps(captured_plans(document)[0].rows))  # type: ignore[no-any-return] - rows are JSON


def test_what_a_leaf_held_is_in_its_row(document: Document) -> None:
    """Byte by byte, beside type and shape."""
    (leaf,) = _rows(document)["leafs"]
    assert base64.b64decode(leaf["elements"]) == TWOS.tobytes()


def test_the_answer_says_whose_elements_were_taken(document: Document) -> None:
    """K, D and P find nothing; of one leaf, one was recorded."""
    evidence, whys, by = examine(document, library="before")
    assert (evidence.diverges, whys) == (False, {})
    assert by == "the kernels of ggml 0.13.1; K and D with the recorded elements of 1 of 1 leafs"


def test_ops_read_what_the_recorded_elements_lead_to(document: Document) -> None:
    """The first node reads 2, the third what two ops made of it: 2 * 2."""
    with Child("before") as child:
        first, third = child.call(operands_of, _rows(document), [0, 2], seed=0)
    read = [np.frombuffer(base64.b64decode(one[0]), dtype=np.float32) for one in (first, third)]
    assert [set(one.tolist()) for one in read] == [{2.0}, {4.0}]


@pytest.mark.parametrize("elements", ["AAAA", "no base64 !", 7])
def test_elements_that_do_not_fit_are_refused(elements: object, document: Document) -> None:
    """Rows may come from anybody's file."""
    rows = _rows(document)
    rows["leafs"][0]["elements"] = elements
    with (
        Child("before") as child,
        pytest.raises(EngineError, match="the elements of 'x' are not base64 text that decodes to its type"),
    ):
        child.call(depart, rows, {}, seed=0)


def test_elements_larger_than_was_asked_for_are_not_kept(tmp_path: Path) -> None:
    """None of the 256 bytes of `x` where 255 are the most."""
    folder = programs(tmp_path)
    recorder.record([str(folder / "host_programs"), "input_once", "right"], folder / "log.jsonl", elements=255)
    assert '"e":"elements"' not in (folder / "log.jsonl").read_text()
