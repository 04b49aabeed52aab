"""The proved checker, asked: `proof/build/certify`, which `make proof` builds with Coq and OCaml.

What this module does not see: what is asked. The checker's answer is taken word by word.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import allocsim
from allocsim.errors import NotInstalledError, OutputError

ROOT = Path(allocsim.__file__).parents[1]

BUILT: Final = Path("proof") / "build" / "certify"
"""Where `make proof` puts the checker, from the root of a checkout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedAnswer:
    """What the checker says."""

    holds: bool
    part: str | None = None
    """Which part of the checker refused: `terms`, `reads`, `promises` or `order`."""
    node: int | None = None
    """The first node refused, from 1."""


def checker() -> Path:
    """Return the built checker.

    Raises NotInstalledError where it is not built.
    """
    found = ROOT / BUILT
    if not found.is_file():
        raise NotInstalledError(
            "the proved checker is not built: `make proof` in a checkout, with Debian's coq and ocaml-nox"
        )
    return found


def certified(terms: str, certificate: str) -> ProvedAnswer:
    """Ask the checker whether terms and certificate, both as text, are right.

    Raises NotInstalledError where it is not built, OutputError where it does not answer.
    """
    program = checker()
    with TemporaryDirectory(prefix="allocsim-") as folder:
        paths = [Path(folder) / name for name in ("terms", "certificate")]
        for path, text in zip(paths, (terms, certificate), strict=True):
            path.write_text(text, encoding="ascii")
        done = subprocess.run([program, *paths], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    words = done.stdout.split()
    if done.returncode == 0 and words == ["yes"]:
        return ProvedAnswer(holds=True)
    if done.returncode == 1 and len(words) == 3:
        return ProvedAnswer(holds=False, part=words[1], node=int(words[2]))
    raise OutputError(f"the checker did not answer: {done.stderr.strip() or done.returncode}")
