"""The documentation as a site: every page is in the navigation, no link is dead, nothing comes from elsewhere."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "docs/site/build.py"))


def test_every_page_has_a_place_in_the_navigation():
    listed = {page for pages in SITE["DOORS"].values() for page in pages}
    below = {
        page
        for page in map(str, SITE["pages"]())
        if page.startswith(("docs/upstream/", "benchmarks/results/", "tests/oracle2/"))
    }

    assert {str(page) for page in SITE["pages"]()} - below == listed - below


def test_the_site_is_built_and_no_link_is_dead(tmp_path):
    pytest.importorskip("zensical")
    ran = subprocess.run(
        [sys.executable, ROOT / "docs/site/build.py", "--out", tmp_path / "site"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert (tmp_path / "site/site/docs/verdict.html").exists()
    assert "fonts.g" not in (tmp_path / "site/site/index.html").read_text()


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="b.html">b</a>', ["a.html: b.html leads nowhere"]),
        ('<a href="#here">b</a>', ["a.html: #here names no place of a.html"]),
        ('<a href="#here">b</a><p id="here">', []),
        ('<a href="https://example.org">out</a>', []),
        ('<script src="https://example.org/x.js"></script>', ["a.html: takes https://example.org/x.js from elsewhere"]),
        ('<link rel="stylesheet" href="//example.org/x.css">', ["a.html: takes //example.org/x.css from elsewhere"]),
        ('<img src="x.png">', ["a.html: x.png leads nowhere"]),
    ],
)
def test_what_is_wrong_with_a_page_is_said(tmp_path, page, said):
    (tmp_path / "a.html").write_text(page)

    assert SITE["wrong"](tmp_path) == said
