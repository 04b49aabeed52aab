"""The public surface of the package."""

import subprocess
import sys
from importlib import import_module

import pytest

import engine


def test_every_public_name_is_what_its_module_has():
    """`__all__` and the table agree, and each name is found where the table says, also after its module was imported."""
    assert sorted(engine.__all__) == sorted(engine._HOMES)
    for name, home in engine._HOMES.items():
        assert getattr(engine, name) is getattr(import_module(home), name)
    assert set(engine.__all__) <= set(dir(engine))
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        _ = engine.Grpah


def test_importing_the_package_loads_nothing_heavy():
    """The command line can name the engine without paying for numpy or numba; building and lowering compile nothing."""
    code = (
        "import sys, engine; assert 'numpy' not in sys.modules;"
        "from engine.models.llama import LlamaConfig, training_graph;"
        "from engine.graph.lowering import lower; lower(training_graph(LlamaConfig()).graph); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
