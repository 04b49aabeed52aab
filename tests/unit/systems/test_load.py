"""The format of a file is told by its content."""

import json

import pytest

from allocsim import document, systems
from allocsim.errors import DocumentError, UnknownNameError
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder

NATIVE = document.dumps(Document(programs=(ProgramBuilder("p").build(),)))
DUMP = json.dumps({"meta": {}, "leafs": [], "nodes": []}).encode()


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (NATIVE, "native"),
        (b'\xef\xbb\xbf{"version": 1, "programs": []', "native"),
        (b'{"programs": [{"name": "nodes"}], "meta": {"nodes": []}}', "native"),
        (DUMP, "ggml"),
        (b' {"nodes" : [', "ggml"),
        (b"", "native"),
        (b"lower,upper\n", "native"),
        (b"id,start,size\n", "minimalloc"),
        (b'["leafs"]', "native"),
    ],
)
def test_detect(head, name):
    assert systems.detect(head) == name


def test_every_row_is_named_by_its_key():
    assert [row.name for row in systems.FORMATS.values()] == list(systems.FORMATS)


@pytest.mark.parametrize(("data", "programs"), [(NATIVE, "p"), (DUMP, "graph")])
def test_load_reads_whatever_the_file_is_called(tmp_path, data, programs):
    path = tmp_path / "file.bin"
    path.write_bytes(data)

    assert systems.load(path).programs[0].name == programs


def test_a_format_may_be_said(tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(DUMP)

    with pytest.raises(DocumentError):
        systems.load(path, "native")
    with pytest.raises(UnknownNameError, match="format 'gml' does not exist; did you mean ggml"):
        systems.load(path, "gml")


def test_a_file_that_cannot_be_opened_is_refused_in_one_line(tmp_path):
    with pytest.raises(DocumentError, match=r"nothing\.json: cannot be read: No such file or directory$"):
        systems.load(tmp_path / "nothing.json")
    with pytest.raises(DocumentError, match=r"cannot be read: Is a directory$"):
        systems.load(tmp_path)


def test_what_no_row_recognises_is_refused_as_a_native_document(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"lower,upper\n")

    with pytest.raises(DocumentError, match="starts with 'l'; a document is a JSON object"):
        systems.load(path)
