"""Every Python block of the documentation, alone, against the types of the package: by mypy, and by pyright where it is installed.

What a fragment takes from the prose around it (a model, a plan) is not known there. `.grad` is None before a backward pass,
as in PyTorch, and the pages do not ask each time. Functions of a reader need no annotations.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

MYPY = (
    *(
        "--strict",
        "--allow-untyped-defs",
        "--allow-incomplete-defs",
        "--allow-untyped-calls",
        "--follow-imports=silent",
    ),
    *(f"--disable-error-code={code}" for code in ("name-defined", "union-attr", "import-untyped", "import-not-found")),
)

PYRIGHT = {
    "include": ["."],
    "typeCheckingMode": "standard",
    "extraPaths": [str(ROOT)],
    **dict.fromkeys(
        (
            *("reportUndefinedVariable", "reportPossiblyUnboundVariable", "reportOptionalMemberAccess"),
            *("reportOptionalOperand", "reportMissingImports", "reportMissingModuleSource"),
        ),
        False,
    ),
}

FOREIGN = re.compile(r"is not a known attribute of module \"(?!allocsim|engine|repro|reports)")
"""Said of a package of others that is not complete."""

GRADIENT = re.compile(r"operand types for \*|Operator \"\*\" not supported|operand is of type")


@pytest.fixture
def folder(tmp_path):
    """The blocks as files, one each."""
    for page in PAGES:
        for number, block in enumerate(
            re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        ):
            (tmp_path / f"{page.stem.lower()}_{number}.py").write_text(block)
    assert len(list(tmp_path.iterdir())) > 70
    return tmp_path


@pytest.mark.slow
def test_mypy_takes_each_documented_block(folder, monkeypatch):
    pytest.importorskip("mypy")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        *MYPY,
        "--explicit-package-bases",
        "--no-incremental",
        ".",
    ]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert said.returncode in (0, 1), said.stderr
    wrong = [line for line in said.stdout.splitlines() if ": error:" in line and not GRADIENT.search(line)]
    assert wrong == []


@pytest.mark.slow
def test_pyright_takes_each_documented_block(folder):
    if (pyright := shutil.which("pyright")) is None:
        pytest.skip("needs pyright on PATH")
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    command = [pyright, "--pythonpath", sys.executable, "--outputjson", "-p", str(folder)]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    lines = [
        f"{Path(one['file']).name}: {one['message']}"
        for one in said["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert said["summary"]["filesAnalyzed"] > 70
    assert [line for line in lines if not FOREIGN.search(line) and not GRADIENT.search(line)] == []
