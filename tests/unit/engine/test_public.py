"""The public surface of the package."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import engine


def test_every_public_name_is_what_its_module_has():
    """`__init__.pyi` is the one list, and each name is found where it says, also after its module was imported."""
    stub = Path(engine.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {
        name: f"engine{home}" for home, name in re.findall(r"^from (\.\S+) import (\w+) as \2$", stub, re.MULTILINE)
    }
    assert sorted(engine.__all__) == sorted(homes)
    for name, home in homes.items():
        assert getattr(engine, name) is getattr(import_module(home), name)
    assert set(engine.__all__) <= set(dir(engine))
    with pytest.raises(AttributeError, match="engine attribute Grpah"):
        _ = engine.Grpah


def test_importing_the_package_loads_nothing_heavy():
    """The command line can name the engine without paying for numpy or numba; building and lowering compile nothing."""
    code = (
        "import sys, engine; assert 'numpy' not in sys.modules;"
        "from engine.models.llama import LlamaConfig, training_graph;"
        "from engine.graph.lowering import lower; lower(training_graph(LlamaConfig()).graph); assert 'numba' "
        "not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
