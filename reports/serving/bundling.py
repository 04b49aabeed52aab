"""Which modules the browser's Python needs, and those as a zip of sources.

Needed is what `in_browser` imports, and what that imports, also within functions, by the stub of a
package whose names come late, and by a name in a table (`"allocsim.allocators.greedy"`); what is
imported for types alone is not. The modules are read, none is run.

What this module does not see: what is in them.
"""

import ast
import io
import re
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

STARTS: Final = ("reports.serving.in_browser", "lazy_loader")
PACKAGES: Final = ("allocsim", "reports", "lazy_loader")
STAND_INS: Final = Path(__file__).parent / "stand_ins"

_IN_A_TABLE: Final = re.compile(r"((?:allocsim|reports)(?:\.\w+)+)(?::\w+)?")


@lru_cache(maxsize=1)
def bundle() -> bytes:
    """Return the modules as a zip with fixed times, the stand-ins among them as `numpy` and
    `msgspec`. O(bytes of the modules).
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:

        def put(place: str, file: Path) -> None:
            archive.writestr(zipfile.ZipInfo(place), file.read_bytes(), zipfile.ZIP_DEFLATED)

        for name, file in sorted(needed().items()):
            folder = name.replace(".", "/")
            for source in (file, file.with_suffix(".pyi")):
                if source.exists():
                    put(f"{folder}/{source.name}" if file.stem == "__init__" else f"{folder}{source.suffix}", source)
        for file in sorted(STAND_INS.glob("*/*.py")):
            put(str(file.relative_to(STAND_INS).as_posix()), file)
    return made.getvalue()


def needed() -> dict[str, Path]:
    """Return every module that is needed, with its file."""
    found: dict[str, Path] = {}
    left = list(STARTS)
    while left:
        parts = left.pop().split(".")
        for name in (".".join(parts[:k]) for k in range(1, len(parts) + 1)):
            file = _file_of(name) if parts[0] in PACKAGES and name not in found else None
            if file is None:
                continue
            found[name] = file
            for source in (file, file.with_suffix(".pyi")):
                if source.exists():
                    left.extend(_named(ast.parse(source.read_bytes())))
    return found


@lru_cache(maxsize=4)
def _root(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.parent


def _file_of(name: str) -> Path | None:
    place = _root(name.partition(".")[0]).joinpath(*name.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


def _named(tree: ast.Module) -> Iterator[str]:
    """Yield what a module names that may be a module."""
    for node in _run(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Constant) and (said := _IN_A_TABLE.fullmatch(str(node.value))):
            yield said[1]


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all that runs: not what is under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                yield other
                yield from _run(other)
            continue
        yield node
        yield from _run(node)
