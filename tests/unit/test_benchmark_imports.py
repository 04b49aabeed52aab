"""What a benchmark imports of the project exists: benchmarks are run seldom, and names move."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = {"allocsim", "engine", "repro", "reports"}


def asked(path):
    """Return the names that a script takes from the project's modules, wherever in it."""
    imports = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
    return [(node.module, name.name) for node in imports if not node.level and node.module for name in node.names]


def there(module, name):
    found = import_module(module)
    return hasattr(found, name) or (hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_of_the_project_is_there(path):
    gone = [
        f"{module}.{name}" for module, name in asked(path) if module.split(".")[0] in HOUSE and not there(module, name)
    ]
    assert gone == []
