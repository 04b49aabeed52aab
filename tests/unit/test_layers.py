"""Imports go downward only, the judge shares no code with the judged, and what should be light to import is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.cli import COMMANDS

ROOT = Path(__file__).parents[2]
LAYERS = ("allocsim", "engine", "repro", "reports", "allocsim.cli")
"""From the bottom up."""

JUDGE = ("allocsim.model", "allocsim.layout", "allocsim.errors", "allocsim.checks")
"""Modules of this project that `allocsim.checks` may import."""

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("allocsim", "engine", "repro", "reports")
    for path in sorted((ROOT / package).rglob("*.py"))
}


def layer(module):
    """Return how high a module stands; None for what is not ours."""
    inside = [name for name in LAYERS if module == name or module.startswith(name + ".")]
    return LAYERS.index(max(inside, key=len)) if inside else None


def imports(module):
    """Return every module that a module's source names in an import statement, wherever it stands."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            # `from allocsim import cli` names a module as much as `import allocsim.cli`
            submodules = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= submodules or {base}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_nothing_above_its_layer(module):
    above = [name for name in imports(module) if layer(name) is not None and layer(name) > layer(module)]
    assert not above, f"{module} imports {above}, which stands above it"


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith("allocsim.checks")])
def test_the_judge_shares_no_code_with_the_judged(module):
    for name in imports(module):
        ours = layer(name) is not None
        assert not ours or any(name == allowed or name.startswith(allowed + ".") for allowed in JUDGE), f"{module} imports {name}"
        outside = name.partition(".")[0]
        assert ours or outside in sys.stdlib_module_names or outside in ("numpy", "numba"), f"{module} imports {name}"


@pytest.mark.parametrize("module", ["allocsim.model", "allocsim.tables", "allocsim.wellformed", "allocsim.layout"])
def test_the_vocabulary_rests_on_itself_alone(module):
    allowed = {"allocsim", "allocsim.errors", "allocsim.layout", "allocsim.wellformed", "allocsim.tables", "allocsim.model"}
    assert {name for name in imports(module) if layer(name) is not None} <= allowed


@pytest.mark.parametrize("module", ["allocsim.liveness", "allocsim.explanation"])
def test_liveness_is_derived_apart_from_the_checks(module):
    assert not [name for name in imports(module) if name.startswith("allocsim.checks")]


HEAVY = ("numba", "networkx", "matplotlib", "rich", "typer", "engine", "reports", "repro")


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import allocsim", (*HEAVY, "numpy", "msgspec")),
        ("import allocsim.checks", (*HEAVY, "msgspec")),
        ("import allocsim; allocsim.ProgramBuilder, allocsim.read, allocsim.check", HEAVY),
        ("import allocsim.cli; assert allocsim.cli.main(['--help']) == 0", (*HEAVY, "numpy", "msgspec")),
    ],
    ids=["package", "checks", "public names", "help"],
)
def test_what_is_light_stays_light(statement, forbidden):
    code = f"import sys; {statement}; sys.stderr.write(' '.join(m for m in {forbidden!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{statement} imports {done.stderr}"


def test_every_row_of_the_command_table_leads_somewhere():
    for row in COMMANDS.values():
        assert row.module in MODULES
        assert f"def {row.attribute}(" in MODULES[row.module].read_text(encoding="utf-8") or f"{row.attribute} = " in MODULES[
            row.module
        ].read_text(encoding="utf-8")
