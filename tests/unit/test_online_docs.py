"""What docs/online.md shows beside its blocks and sessions: a state machine, and a recording that is judged."""

import json
import re
from pathlib import Path

from allocsim.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/online.md").read_text(encoding="utf-8")


def test_the_state_machine_of_the_page_runs():
    code = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "state_machine" in code)
    names: dict[str, object] = {}
    exec(compile(code, "docs/online.md", "exec"), names)
    machine = names["TestTlsf"]
    machine.settings = type(machine.settings)(max_examples=5, stateful_step_count=8, deadline=None, database=None)  # type: ignore[attr-defined]
    machine("runTest").runTest()  # type: ignore[operator]


def test_the_recording_of_the_page_is_judged_as_it_says(tmp_path: Path, capsys):
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith('    {"event"')]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["trace", str(tmp_path / "events.jsonl")]) == 1
    cure = re.search(r"\*(free block '0'[^*]*)\*", PAGE)
    assert cure is not None
    said = " ".join(capsys.readouterr().out.split())
    assert " ".join(cure[1].split()) in said
    assert "C09" in said
    at = next(number for number, line in enumerate(lines) if json.loads(line)["event"] == "free")
    lines.insert(at, '{"event": "done", "mark": "step 158"}')
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["trace", str(tmp_path / "events.jsonl")]) == 0
