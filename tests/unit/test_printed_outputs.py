"""What pages show as printed without a prompt or a block before it is what is printed.

Losses that were computed are held to a thousandth: on other processors the last digits differ.
"""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from documented import ROOT, Command, shows

import allocsim
from allocsim.allocators.branch_and_bound import place
from allocsim.allocators.certificate import certificate
from allocsim.cli import main
from allocsim.systems.torch.peak_lines import lines_of

LOSSES = re.compile(r"  \d+( +-?[\d.]+){3}")


def shown(page, first):
    """Return the lines of the indented or fenced output that begins with a line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (block,) = re.findall(
        rf"^(?:    {re.escape(first)}\n(?:    .*\n)*|```text\n{re.escape(first)}\n(?:(?!```).*\n)*)", text, re.MULTILINE
    )
    fenced = block.startswith("```text")
    return tuple(line.removeprefix("" if fenced else "    ") for line in block.splitlines()[fenced:])


def test_the_losses_of_the_readme_are_those_of_the_recording():
    """Of the main job, which runs for minutes: `make repro` was recorded."""
    recorded = (ROOT / "docs/recording/main-job.txt").read_text(encoding="utf-8")
    assert shows(Command("make repro", ("...", *shown("README.md", "loss by step"))), recorded)


def test_the_lines_of_a_peak_are_those_of_the_recorded_step():
    lines = shown("docs/plans.md", "351 ops, 232 blocks, 28 of them allocated before the run and alive after it")
    step = allocsim.read(ROOT / "tests/data/plans/torch/lora_eager.json")
    assert shows(Command("lines()", lines), "\n".join(lines_of(step)))


def test_a_pool_whose_free_blocks_stay_in_its_list_trains_as_the_page_says(capsys):
    arguments = ["diagnose", "training_net:NET", "--online", "online_allocators:BROKEN_STEP", "--steps", "5", "-q"]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    lines = shown("docs/online.md", "loss by step")
    losses = [line for line in lines if LOSSES.fullmatch(line)]
    told = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if LOSSES.fullmatch(line)}
    for line in losses:
        number, *said = line.split()
        assert [float(loss) for loss in told[number]] == pytest.approx([float(loss) for loss in said], rel=1e-3)
    around = ("...", *("..." if line in losses else line for line in lines), "...")
    assert shows(Command("diagnose", around), printed), printed


def test_a_certificate_of_the_tours_plan_is_accepted_with_the_numbers_of_the_page(tmp_path, monkeypatch):
    (line,) = shown("docs/allocators.md", "accepted: 5074500 bytes are enough, fewer than 5074472 are not")
    (problem,) = allocsim.read(ROOT / "examples/tour/step.json").problems
    plan = place(replace(problem, may_share=np.zeros((0, 2), dtype=np.int32)), seconds=60)
    monkeypatch.chdir(tmp_path)
    Path("certificate.json").write_text(json.dumps(certificate(plan)), encoding="utf-8")
    allocsim.write(allocsim.Document.of(plan), "plan.json")
    assert main(["convert", "plan.json", "instance.csv"]) == 0
    command = [sys.executable, ROOT / "docs/planners/check_certificate.py", "certificate.json", "instance.csv"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{line}\n"
