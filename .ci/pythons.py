"""A short selection of the tests on each further Python that the classifiers name and this machine has.

    python .ci/pythons.py

A Python is looked for by its name on the path and among pyenv's versions; where there is none, that is said, and no fault.
Each has a `.venv-VERSION` of its own, with the packages of `constraints.txt`, made anew when these or `pyproject.toml` change.
The selection is what a version of Python may break: every public name, reading and writing of files, signals and
processes, traced code, guard pages, kernels that are compiled and loaded, training that is killed and goes on. Exit status
1 where a test fails; where the packages cannot be installed, that is said.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE_OF = ("pyproject.toml", "constraints.txt")
TESTS = (
    "test_public_api.py",
    "document/test_versions.py",
    "files/test_files.py",
    "files/test_patience.py",
    "judge/test_dataflow.py",
    "fuzzing/test_tracing.py",
    "p_sanitizer/test_guard.py",
    "engine/kernels/test_loading.py",
    "engine/runtime/test_runtime.py",
    "engine/training/test_training.py",
)
"""Below `tests/unit`; some twenty seconds for each Python."""


def named() -> list[str]:
    """Return the versions that the classifiers name, other than that of this process."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    return [version for version in versions if version != f"3.{sys.version_info.minor}"]


def found(version: str) -> Path | None:
    """Return a Python of that version, None where the machine has none that starts."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(name)
    for python in (*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{version}.*/bin/{name}"), reverse=True)):
        asked = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return python  # a name of pyenv's on the path may stand for no version at all
    return None


def ready(version: str, python: Path) -> Path:
    """Return the Python of a folder that has the packages, made where it has not."""
    folder = ROOT / f".venv-{version}"
    stamp = folder / ".ready"
    starts = (folder / "bin" / "python").exists()  # a link to a Python that may be gone
    if (
        not starts
        or not stamp.exists()
        or any((ROOT / name).stat().st_mtime > stamp.stat().st_mtime for name in MADE_OF)
    ):
        subprocess.run([str(python), "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", "constraints.txt", "-e", ".[dev]"], check=True, cwd=ROOT)
        stamp.touch()
    return folder / "bin" / "python"


def passes(version: str) -> bool:
    """Run the selection on one version; return whether it passes or there is none to run it on."""
    python = found(version)
    if python is None:
        say(f"Python {version}: not tried, this machine has none")
        return True
    tests = [f"tests/unit/{name}" for name in TESTS]
    try:
        pytest = [str(ready(version, python)), "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *tests]
        ended = subprocess.run(pytest, check=False, cwd=ROOT).returncode
    except (subprocess.CalledProcessError, OSError) as error:
        say(f"Python {version}: not tried, its packages cannot be installed here ({error})")
        return True
    say(f"Python {version}: {'fails' if ended else 'passes'}")
    return ended == 0


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    failed = [version for version in named() if not passes(version)]  # each is tried, also behind one that fails
    sys.exit(int(bool(failed)))
