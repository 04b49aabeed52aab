"""What the children of a campaign (`random_models.py`) do seed by seed: measure, and keep a row beside what was planned.

    python benchmarks/NAME_models.py FOLDER SEED ...

Of each seed FOLDER/SEED/row.json is kept, with `failed` where the system raised; the seed is printed when that is done. A seed written with a `!` is
measured with more doubt: again without reuse, for one. Needs nothing beside Python: it runs in the interpreter of the peer.
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any, Protocol


class Measured(Protocol):
    """Measures a seed; what was planned goes to the folder."""

    def __call__(self, seed: int, folder: Path, *, doubt: bool) -> dict[str, Any]:
        """Return the row of a seed, its `seed` among it."""


def main(measured: Measured) -> None:
    """Measure the seeds of the command line."""
    for word in sys.argv[2:]:
        seed = int(word.rstrip("!"))
        folder = Path(sys.argv[1]) / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            row = measured(seed, folder, doubt=word.endswith("!"))
        except Exception as error:  # noqa: BLE001 - whatever the system raises is the answer for this seed
            traceback.print_exc()
            said = (str(error).strip().splitlines() or [""])[0][:200]
            row = {"seed": seed, "failed": f"{type(error).__name__}: {said}"}
        (folder / "row.json.new").write_text(json.dumps(row), encoding="utf-8")
        (folder / "row.json.new").rename(folder / "row.json")
        print(seed, flush=True)
