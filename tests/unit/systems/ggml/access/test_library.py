"""Finding, loading and refusing libraries."""

import re
import shutil
import subprocess

import pytest
from ggml_live import BOTH, here, live
from ggml_tasks import (
    probe_as_version,
    probe_with_field_moved,
    probe_with_graph_field_moved,
    probe_without_compute_flags,
)

from allocsim.allocators import ggml_kinds
from allocsim.errors import EngineError, UnknownNameError
from allocsim.systems.ggml.access import declarations, library, probe


@pytest.mark.parametrize("which", BOTH)
def test_every_declared_function_that_is_not_optional_is_exported(which):
    loaded = here(which)

    assert [
        name for name in declarations.SIGNATURES if name not in declarations.OPTIONAL and not loaded.has(name)
    ] == []


def test_the_declarations_are_all_read():
    lines = [line for line in declarations.DECLARATIONS.split("\n") if "(" in line]

    assert len(lines) == len(declarations.SIGNATURES)


@pytest.mark.parametrize(("which", "version", "clamp_listed"), [("before", "0.13.1", False), ("after", "0.26.0", True)])
def test_versions_and_in_place_lists_are_told_apart(which, version, clamp_listed):
    known = live(which).call(probe.probe)

    assert known["version"] == version
    assert ("CLAMP" in known["in_place"]) is clamp_listed


def test_the_planners_kinds_are_those_of_the_libraries():
    """What real libraries lack are names of functions: of UNARY and GLU, which have no op of their own."""
    ops = {op.lower() for which in BOTH for op in here(which).ops}

    assert ops <= ggml_kinds.KINDS
    assert ggml_kinds.KINDS - ops == (ggml_kinds.UNARY | ggml_kinds.GLU) - ops


@pytest.mark.parametrize(
    ("which", "listed"), [("before", ggml_kinds.IN_PLACE_BEFORE_0_25_3), ("after", ggml_kinds.IN_PLACE)]
)
def test_the_planners_list_is_that_of_the_library(which, listed):
    known = live(which).call(probe.probe)

    assert {op.lower() for op in known["in_place"]} == listed - (ggml_kinds.UNARY - {"unary"})


def test_op_numbers_are_looked_up_in_the_library():
    assert here("before").ops["UNARY"] == 86
    assert here("after").ops["UNARY"] == 91


def test_two_libraries_live_in_one_process():
    here("before")
    here("after")

    assert [probe.checked(which).version for which in ("before", "after", "before")] == ["0.13.1", "0.26.0", "0.13.1"]


def test_an_unknown_name_is_told_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean after"):
        library.find("later")


def test_a_missing_path_is_refused_with_one_line():
    with pytest.raises(EngineError, match=r"nowhere/libggml\.so: no such library"):
        library.find("nowhere/libggml.so")


def test_a_folder_without_a_library_is_refused(tmp_path):
    with pytest.raises(EngineError, match=r"holds no libggml-cpu\*\.so"):
        library.find(str(tmp_path))


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "libggml.so"
    path.write_bytes(b"not a library")

    with pytest.raises(EngineError, match=r"libggml\.so cannot be loaded"):
        probe.open_library(str(path))


def test_a_library_that_is_no_ggml_is_refused_without_a_call():
    import _ctypes  # noqa: PLC0415 - any shared object will do

    with pytest.raises(EngineError, match=r"is no complete libggml: it does not export ggml_version"):
        probe.checked(_ctypes.__file__)


def test_a_wheel_that_is_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(library.WHEELS, "before", ("no-such-wheel", "*.so"))

    with pytest.raises(EngineError, match=re.escape("pip install 'allocsim[ggml]'")):
        library.find("before")


def test_a_function_outside_the_declarations_is_not_callable():
    loaded = here("after")

    with pytest.raises(AttributeError):
        loaded.ggml_print_backtrace  # noqa: B018


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize(
    "field", ["type", "buffer", "ne", "nb", "op", "flags", "src", "view_src", "view_offs", "data", "name"]
)
def test_the_probe_finds_a_tensor_field_that_lies_elsewhere(which, field):
    with pytest.raises(EngineError):
        live(which).call(probe_with_field_moved, field, 8)


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize(("field", "by"), [("size", 8), ("n_nodes", 4), ("n_leafs", 8), ("nodes", 8), ("leafs", 8)])
def test_the_probe_finds_a_graph_field_that_lies_elsewhere(which, field, by):
    """`n_nodes` is moved onto `n_leafs`: 8 bytes on is padding, which may hold any number."""
    with pytest.raises(EngineError):
        live(which).call(probe_with_graph_field_moved, field, by)


@pytest.mark.parametrize("version", ["0.9.4", "1.0.0"])
def test_no_library_is_refused_for_its_number(version):
    assert live("after").call(probe_as_version, version)["version"] == version


def test_a_library_that_flags_no_node_as_computed_is_probed():
    """Before 0.9.5 each node was run, and none had the flag."""
    assert live("after").call(probe_without_compute_flags)["version"] == "0.26.0"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_that_lacks_one_function_is_refused_by_that_name(tmp_path):
    names = [name for name in declarations.SIGNATURES if name not in declarations.OPTIONAL]
    made = [f"void {name}(void) {{}}" for name in names if name != "ggml_gallocr_reserve"]
    (tmp_path / "planted.c").write_text("\n".join(made))
    planted = tmp_path / "libggml.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "planted.c"), "-o", str(planted)], check=True)

    with pytest.raises(EngineError, match=r"is no complete libggml: it does not export ggml_gallocr_reserve$"):
        library.load(library.find(str(tmp_path)))
