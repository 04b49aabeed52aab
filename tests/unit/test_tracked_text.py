"""What is in the repository is whole: no text file holds what a merge left behind."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

LEFT_BEHIND = re.compile(r"^(<<<<<<<|>>>>>>>) ", re.MULTILINE)

FOLDERS = ("allocsim", "engine", "repro", "reports", "tests", "benchmarks", "docs", ".")


def test_no_marker_of_a_merge_is_left():
    texts = {
        path
        for folder in FOLDERS
        for kind in ("py", "md", "toml", "txt", "json", "csv")
        for path in (ROOT / folder).glob(f"*.{kind}" if folder == "." else f"**/*.{kind}")
    }

    assert len(texts) > 500
    assert [
        str(path) for path in sorted(texts) if LEFT_BEHIND.search(path.read_text(encoding="utf-8", errors="replace"))
    ] == []
