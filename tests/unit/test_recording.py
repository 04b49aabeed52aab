"""The recording of the main job: its picture is made of what is kept, and it tells what the README tells."""

import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
MADE = runpy.run_path(str(ROOT / "docs" / "recording" / "make.py"))
TEXT = MADE["TEXT"].read_text(encoding="utf-8")


def test_the_picture_is_that_of_the_text_and_small():
    kept = MADE["PICTURE"].read_text(encoding="utf-8")
    assert kept == MADE["picture"](TEXT)
    assert len(kept) < 30_000
    shown = ["".join(line.itertext()) for line in ET.fromstring(kept).iter("{http://www.w3.org/2000/svg}text")]
    assert shown == ["$ make repro", *filter(None, MADE["rows"](TEXT))]
    assert max(map(len, shown)) <= MADE["COLUMNS"]


def test_the_verdict_of_the_recording_is_that_of_the_readme():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    lines = TEXT[TEXT.index("verdict:") :].splitlines()[:4]
    assert all(" ".join(line.split()) in readme for line in lines)
