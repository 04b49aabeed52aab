"""Calls that abort, raise, or take too long end in one clear error, and the next call works."""

import pytest
from ggml_live import live
from ggml_tasks import elements, mapped_files, stays

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.child import OPENMP, Child, ChildDiedError, link_openmp
from allocsim.systems.ggml.access.library import versions
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, step

ILLEGAL = GraphRecipe(steps=(leaf("f32", 3), leaf("f32", 4), step("mul_mat", "%0", "%1")), expand=(2,), outputs=(2,))
LEGAL = GraphRecipe(steps=(leaf("f32", 4), leaf("f32", 4), step("mul_mat", "%0", "%1")), expand=(2,), outputs=(2,))


def test_a_failed_assert_says_what_ggml_said_and_spares_the_server():
    child = live("after")

    with pytest.raises(
        ChildDiedError, match=r"died in elements \(SIGABRT\): .*GGML_ASSERT\(ggml_can_mul_mat\(a, b\)\) failed"
    ):
        child.call(elements, ILLEGAL)

    assert child.call(elements, LEGAL)[2].shape == (1, 1, 1, 1)


def test_a_python_error_in_a_task_names_itself():
    with pytest.raises(EngineError, match=r"IndexError in the child \(graph_recipes\.py"):
        live("after").call(elements, GraphRecipe(steps=(step("sqr", "%7"),), expand=(0,)))


def test_a_task_that_outlives_its_time_is_ended():
    child = live("after")

    with pytest.raises(ChildDiedError, match=r"did not finish stays within 0\.01 s"):
        child.call(stays, timeout=0.01)

    assert child.call(versions)["version"] == "0.26.0"


def test_a_server_that_is_gone_between_two_calls_is_the_end_of_the_second():
    live("before")
    with Child("before") as child:
        child._process.kill()
        child._process.wait()

        with pytest.raises(ChildDiedError, match=r"died in elements \(SIGKILL\)"):
            child.call(elements, LEGAL)


def test_closing_twice_is_harmless():
    live("before")
    child = Child("before")

    child.close()
    child.close()


def test_runs_are_the_same_in_every_process():
    first, second = (live("after").call(elements, LEGAL) for _ in range(2))

    assert first[2].tobytes() == second[2].tobytes()


def test_where_the_system_has_no_openmp_that_of_another_package_is_linked_and_used(tmp_path, monkeypatch):
    live("before")
    live("after")
    assert link_openmp(tmp_path)
    borrowed = (tmp_path / OPENMP).resolve().name
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    with Child("after") as child:
        assert borrowed in child.call(mapped_files)
        assert child.call(elements, LEGAL)[2].shape == (1, 1, 1, 1)


def test_no_openmp_anywhere_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    assert not link_openmp(tmp_path)
