"""The table of what each version of ggml gets wrong is that of its results, and what is installed agrees with its column."""

import json
import re
import sys
from pathlib import Path

import pytest
from ggml_live import BOTH, live

from allocsim.systems.ggml.access.library import WHEELS
from allocsim.systems.ggml.k_audit.guarded_audit import audit_guarded
from allocsim.systems.ggml.k_audit.library_audit import audit

ROOT = Path(__file__).parents[4]
sys.path.append(str(ROOT / "benchmarks"))

from harness import run  # noqa: E402 - as above

from ggml_at_length import DOES, MARKS, fault, table  # noqa: E402 - after the path above
from ggml_at_length import ggml_versions as measure  # noqa: E402 - as above

RESULTS = json.loads((ROOT / "benchmarks" / "results" / "ggml_versions.json").read_text())
COLUMNS = RESULTS["columns"]


def test_the_table_of_the_page_is_that_of_the_results_and_has_ten_columns_and_more():
    written = MARKS.search((ROOT / "docs" / "ggml.md").read_text())

    assert written is not None
    assert written[0].split("\n")[1:-2] == table(COLUMNS)
    assert len({one["ggml"] for one in COLUMNS.values()}) >= 10


def test_what_is_refused_is_refused_for_what_it_lacks():
    said = RESULTS["refused"].values()

    assert said
    assert all(re.search("does not export|found .* expected", reason) for reason in said)


@pytest.mark.parametrize("which", BOTH)
def test_the_column_of_a_library_here_is_what_its_audit_finds(which):
    """Of the ops of the table, and with one thread: races show by chance."""
    column = column_of(which)
    ops = sorted({pair.split()[0] for one in COLUMNS.values() for pair in one["pairs"]})
    found = audit(live(which), ops=ops, threads=(1,))

    assert {f"{row['op']} over source {row['source']}" for row in found.unsafe} == {
        pair for pair, words in column["pairs"].items() if words.startswith("unsafe")
    }


@pytest.mark.parametrize("which", BOTH)
def test_an_op_that_breaks_its_contract_here_stands_in_its_column(which):
    column = column_of(which)
    (row,) = audit_guarded(live(which), ops=["RWKV_WKV7"], threads=(2,)).rows

    assert {
        f"RWKV_WKV7 {DOES[kind]}": f"{count} of {row.forms} forms" for kind, (count, *_) in row.misdeeds.items()
    } == {what: forms for what, forms in column["contracts"].items() if what.startswith("RWKV_WKV7 ")}


def column_of(which):
    """The column of the wheel that is installed; skip where another version of it is."""
    wheel, number = WHEELS[which][0], live(which).call(version)
    found = [one for name, one in COLUMNS.items() if name.split()[0] == wheel and one["ggml"] == number]
    if not found:
        pytest.skip(f"{wheel} with ggml {number} has no column")
    return found[0]


def version(library):
    """Task: what the library calls itself."""
    return library.version


def test_the_words_of_the_table():
    old = {"ggml": "0.1", "pairs": {"A over source 0": "unsafe"}, "safe": [], "contracts": {}, "ran": ["B"]}
    new = {"ggml": "0.2", "pairs": {}, "safe": ["A over source 0"], "contracts": {"C leaves bytes": "1 of 2 forms"}, "ran": ["C"]}  # fmt: skip

    assert table({"wheel 1": old, "wheel 2": new}) == [
        "| ggml | 0.1 | 0.2 |",
        "| --- | --- | --- |",
        "| wheel | wheel 1 | wheel 2 |",
        "| A over source 0 | unsafe | safe |",
        "| C leaves bytes | no op | 1 of 2 forms |",
    ]


@pytest.mark.parametrize(
    ("threads", "races_at", "words"),
    [(1, 0, "unsafe"), (1, 2, "unsafe, races at 2 threads"), (2, 2, "races at 2 threads")],
)
def test_a_pair_that_is_wrong_with_several_threads_alone_races(threads, races_at, words):
    assert fault({"threads": threads, "races_at": races_at}) == words


@pytest.mark.parametrize(("name", "said"), [("missing.whl", "no such wheel"), ("text.whl", "is no wheel")])
def test_what_is_no_wheel_is_refused_in_a_line_and_nothing_is_measured(tmp_path, monkeypatch, capsys, name, said):
    (tmp_path / "text.whl").write_text("text")
    monkeypatch.setattr(sys, "argv", ["ggml_versions.py", str(tmp_path / name), "--out", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit) as ended:
        run(measure)

    assert (ended.value.code, (tmp_path / "out.json").exists()) == (2, False)
    assert capsys.readouterr().err == f"{tmp_path / name}: {said}\n"
