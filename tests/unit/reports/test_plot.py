"""`plot` and `write_report`: the right files, whole or not at all, and one clear error where they
cannot be written.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from few import few_of

import reports
from allocsim.errors import ModelError, OutputError, UnknownNameError
from allocsim.model import Document
from reports import folder as folder_module
from reports import plot, write_report
from reports.figures import FIGURES, style
from reports.folder import check_folder
from reports.page import page

NAMES = ("gradients", "loss", *FIGURES)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("kind", "suffix", "magic"),
    [
        *((kind, ".pdf", b"%PDF") for kind in FIGURES),  # PNG and SVG of every kind are drawn in `test_figures.py`
        *(
            (next(iter(FIGURES)), suffix, magic)
            for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".SVG", b"<?xml"))
        ),
    ],
)
def test_the_suffix_decides_the_format(legal: Document, tmp_path: Path, kind: str, suffix: str, magic: bytes) -> None:
    plot(legal, kind, tmp_path / f"x{suffix}")
    assert (tmp_path / f"x{suffix}").read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [f"x{suffix}"]


def test_the_map_shows_what_the_checks_find(stale_read: Document) -> None:
    assert "StaleRead" in str([text.get_text() for text in reports.draw(stale_read, "map").axes[0].texts])


@pytest.mark.parametrize("name", ["x.jpg", "x", ".png", "x.png.gz"])
def test_another_suffix_is_refused_before_anything_is_drawn(legal: Document, tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"names no format of pictures; \.png, \.svg and \.pdf do"):
        plot(legal, "map", tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_another_kind_is_refused_with_near_names(legal: Document, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="kind of figure 'maps' does not exist; did you mean map"):
        plot(legal, "maps", tmp_path / "x.png")


def test_an_unwritable_path_is_an_output_error(legal: Document, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "missing" / "x.png", tmp_path / "file" / "x.png"):
        with pytest.raises(OutputError, match="cannot be written"):
            plot(legal, "map", target)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OutputError, match="folder"):
        plot(legal, "map", tmp_path / "folder.png")


def test_a_failing_figure_leaves_the_old_picture(legal: Document, tmp_path: Path) -> None:
    plot(legal, "map", tmp_path / "x.png")
    before = tree(tmp_path)
    with pytest.raises(ModelError):
        plot(legal, "map", tmp_path / "x.png", run=9)
    assert tree(tmp_path) == before


def test_matplotlib_is_not_imported_before_a_picture_is_asked_for() -> None:
    code = "import sys, reports, reports.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_report_is_the_record_a_page_and_pictures(record: dict, legal: Document, tmp_path: Path) -> None:
    write_report(record, legal, tmp_path / "out")
    expected = {"report.json", "report.md"} | {
        f"figures/{name}{suffix}" for name in NAMES for suffix in (".png", ".svg") if name != "streams"
    }
    assert set(tree(tmp_path / "out")) == expected
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8")) == record
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_a_document_the_pictures_of_memory_are_left_out(record: dict, tmp_path: Path) -> None:
    write_report(record, None, tmp_path / "out")
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"loss", "gradients"}


def test_a_run_cut_short_still_gives_a_report(tmp_path: Path) -> None:
    write_report({}, None, tmp_path / "out")
    assert set(tree(tmp_path / "out")) == {"report.json", "report.md"}


def test_numbers_json_has_no_word_for_become_null(record: dict, tmp_path: Path) -> None:
    record["modes"] = {
        "default": {"loss": [np.float32(1.5), float("nan"), np.float64("inf")], "arena_bytes": np.int64(7)}
    }
    write_report(record, None, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["modes"]["default"]
    assert found == {"loss": [1.5, None, None], "arena_bytes": 7}


def test_a_second_report_replaces_the_first_and_keeps_what_is_not_its_own(record: dict, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report(record, None, out)
    (out / "evidence.json").write_text("evidence")
    (out / "notes").mkdir()
    (out / "notes" / "mine.txt").write_text("mine")
    write_report({"scenario": "other"}, None, out)
    assert set(tree(out)) == {"report.json", "report.md", "evidence.json", "notes/mine.txt"}
    assert "# other" in (out / "report.md").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_report_joins_saved_evidence(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "evidence.json").write_text("evidence")
    write_report({}, None, tmp_path / "out")
    assert set(tree(tmp_path / "out")) == {"report.json", "report.md", "evidence.json"}


def test_a_folder_with_other_things_in_it_is_not_touched(record: dict, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match="holds other things than a report"):
        write_report(record, None, tmp_path)
    assert tree(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_folder_can_be_asked_about_before_the_work(record: dict, tmp_path: Path) -> None:
    check_folder(tmp_path / "deep" / "out")
    assert not list(tmp_path.iterdir())
    write_report(record, None, tmp_path / "out")
    check_folder(tmp_path / "out")
    (tmp_path / "thesis.tex").write_text("years of work")
    for target in (tmp_path, tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "out", tmp_path / "\0"):
        with pytest.raises(OutputError):
            check_folder(target)


def test_a_file_in_the_way_is_an_output_error(record: dict, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    for target in (tmp_path / "out", tmp_path / "out" / "deeper"):
        with pytest.raises(OutputError):
            write_report(record, None, target)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_an_output_error(record: dict, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot be written"):
        write_report(record, None, tmp_path / "out")


@pytest.mark.parametrize("breaks_at", few_of((1, 5, 10, 2, 3, 4, 6, 7, 8, 9), 3))
def test_a_failure_at_any_picture_leaves_the_old_report_whole(
    record: dict, legal: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_at: int
) -> None:
    out = tmp_path / "out"
    write_report({"scenario": "old"}, None, out)
    before, drawn = tree(tmp_path), []

    def failing(_figure: object, _suffix: str) -> bytes:
        drawn.append(1)
        if len(drawn) == breaks_at:
            raise OSError(28, "No space left on device")
        return b"picture"

    monkeypatch.setattr(style, "render", failing)
    with pytest.raises(OutputError, match="No space left on device"):
        write_report(record, legal, out)
    assert tree(tmp_path) == before


def test_a_failure_of_any_rename_leaves_the_old_report_whole(
    record: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write_report({"scenario": "old"}, None, out)
    (out / "notes.txt").write_text("mine")
    before, real = tree(tmp_path), Path.rename
    for breaks_at in (1, 2, 3):
        calls: list[Path] = []

        def failing(self: Path, target: Path, at: int = breaks_at, calls: list[Path] = calls) -> Path:
            calls.append(self)
            if len(calls) == at:
                raise OSError(5, "Input/output error")
            return real(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(folder_module.Path, "rename", failing)
            with pytest.raises(OutputError, match="Input/output error"):
                write_report(record, None, out)
        assert tree(tmp_path) == before


def test_an_interrupt_leaves_the_old_report_whole(
    record: dict, legal: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report({"scenario": "old"}, None, tmp_path / "out")
    before = tree(tmp_path)

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(style, "render", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report(record, legal, tmp_path / "out")
    assert tree(tmp_path) == before


def test_the_page_says_verdict_losses_detectors_gradients_cure_and_pictures(record: dict) -> None:
    said = page(record, NAMES)
    for words in (
        "The verdict is the one expected (class C04, fault kernel).",
        "The plan is legal (0 conflicts in 5 ops)",
        "- Also class C06, fault: **caller**",
        "| the cure           |                 +64 bytes |",
        "+4 MiB (+4,194,304 bytes)",
        "| K   | kernel audit             | violations |     1 | kinds: exp      |",
        "|    4 |  7.5184 | 0.2110 |    0.2110 |",
        "| 1,000, -0.2000 |",
        "reference is zero",
        "![Memory map of the default run](figures/map.png)",
    ):
        assert words in said


def test_the_page_shows_the_first_step_with_a_wrong_gradient(record: dict) -> None:
    right = [{"step": 1, "layer": 0, "tensor": "q", "ratio": 1.0, "cosine": 1.0}]
    wrong = [{"step": 2, "layer": 0, "tensor": "q", "ratio": 0.5, "cosine": 0.9}]
    record["modes"]["default"]["gradients"] = right + wrong
    assert "## Gradients at step 2" in page(record)
    record["modes"]["default"]["gradients"] = right
    assert "## Gradients at step 1" in page(record)


def test_a_verdict_other_than_expected_is_said(record: dict) -> None:
    assert "is **not** the one expected" in page({**record, "matches": False})


def test_a_clean_run_has_a_page() -> None:
    verdict = {"class": None, "fault": None, "victim": None, "also": [], "cure": None, "text": "Nothing is wrong."}
    said = page({"scenario": "s", "matches": True, "expected": {"class": None, "fault": None}, "verdict": verdict})
    assert "(nothing wrong)" in said
    assert "Cure" not in said


def test_names_from_files_cannot_break_the_page(record: dict) -> None:
    record["verdict"]["victim"]["value_name"] = "a|b`c\n# d"
    record["scenario"] = "<script>alert(1)</script>"
    record["modes"] = {"x|y": {"loss": [1.0]}}
    said = page(record)
    assert "<script>" not in said.replace("\\<script", "")
    assert "\n# d" not in said
    assert "x\\|y" in said


def test_a_long_run_shows_forty_steps_with_the_first_and_the_last() -> None:
    said = page({"modes": {"default": {"loss": [1000.0 - k for k in range(1000)]}}})
    assert "40 of 1,000 steps" in said
    assert "|     1 | 1000.0000 |" in said
    assert "| 1,000 |    1.0000 |" in said
