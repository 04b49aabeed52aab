"""Kernels that numba kept: found without its compiler, and the same machine code."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core.caching import UserProvidedCacheLocator

from engine.kernels import compiled
from engine.kernels.compiled import jit, loss, maps, normal, softmax
from engine.kernels.loading import load

EVERY_KERNEL = """
import hashlib
import sys
import numpy as np
from numba.core.runtime import rtsys
from engine.k_audit.audit_cases import DTYPES, default_cases
from engine.kernels import KERNELS

seen, calls = hashlib.sha256(), 0
for case in default_cases():
    if case.kind not in (sys.argv[1:] or KERNELS) or case.elements > 300 or any(x.dtype == "f64" for x in case.operands):
        continue
    rng = np.random.default_rng(1)
    operands = [(rng.random(x.shape) * 0.5 + 0.25).astype(DTYPES[x.dtype]) for x in case.operands]
    for kernel in KERNELS[case.kind].values():
        results = [np.zeros(x.shape, DTYPES[x.dtype]) for x in case.results]
        function, args = kernel.bind(case.params, tuple(operands), tuple(results))
        function(*args)
        calls += 1
        for array in results:
            seen.update(array.tobytes())
print(calls, seen.hexdigest(), rtsys._init)
"""
"""Runs every variant of every kernel, or of some kinds, in float32; prints how many calls, what they wrote, and whether numba made its compiler ready."""


def run_kernels(folder, *kinds):
    """Return what a process prints that keeps machine code in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", EVERY_KERNEL, *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def warm(tmp_path):
    """Return a folder with the machine code that lies beside the kernels by now: what it lacks is compiled into it alone."""
    place = tmp_path / UserProvidedCacheLocator.get_suitable_cache_subpath(jit.__file__)
    place.mkdir()
    for kept in (Path(jit.__file__).parent / "__pycache__").glob("*.nb?"):
        shutil.copy(kept, place)
    return tmp_path


@pytest.mark.slow
def test_a_process_that_finds_every_kernel_kept_never_makes_numbas_compiler_ready(warm):
    """A second process on the same folder writes the same bytes, and compiles nothing: not even what numba compiles for itself."""
    first, later = run_kernels(warm), run_kernels(warm)

    assert int(first[0]) > 250
    assert first[:2] == later[:2]
    assert later[2] == "False"


def test_a_process_that_finds_a_kernel_not_kept_makes_numbas_compiler_ready(tmp_path):
    """Where it is told that nothing was compiled, something could have been."""
    assert [run_kernels(tmp_path, "silu")[2] for _ in range(2)] == ["True", "False"]


def signature(*arrays):
    return tuple(numba.typeof(array) for array in arrays)


def twice(x, y):
    for i in range(len(x)):
        y[i] = 2 * x[i]


ARRAYS = np.arange(3.0), np.zeros(3)


def test_what_was_never_compiled_is_not_found():
    """Whoever asks compiles it then."""
    assert not load(numba.njit(cache=True, _nrt=False)(twice), signature(*(array.astype(np.int16) for array in ARRAYS)))


def test_a_function_without_a_cache_is_not_found():
    """Where numba found no folder to write to."""
    assert not load(numba.njit(_nrt=False)(twice), signature(*ARRAYS))


@pytest.mark.parametrize("counts", [True, False])
def test_code_that_counts_references_is_left_to_numba(counts):
    """It needs what numba compiles for itself; the cache does not tell it from code asked for without."""

    def counted(x, y):
        for i in range(len(x)):
            y[i] = x[i]

    numba.njit(cache=True)(counted).compile(signature(*ARRAYS))
    dispatcher = numba.njit(cache=True, _nrt=counts)(counted)

    assert not load(dispatcher, signature(*ARRAYS))
    dispatcher.compile(signature(*ARRAYS))
    assert dispatcher.stats.cache_hits, "numba itself finds it"


def test_what_is_found_runs_and_is_found_at_once_from_then_on():
    """A dispatcher with the code loaded is like one that compiled it."""
    numba.njit(cache=True, _nrt=False)(twice).compile(signature(*ARRAYS))
    dispatcher = numba.njit(cache=True, _nrt=False)(twice)

    assert load(dispatcher, signature(*ARRAYS))
    found = dispatcher.overloads[signature(*ARRAYS)]
    found.entry_point(*ARRAYS)
    assert ARRAYS[1].tolist() == [0.0, 2.0, 4.0]
    assert load(dispatcher, signature(*ARRAYS))
    assert dispatcher.overloads[signature(*ARRAYS)] is found


def test_a_numba_without_the_private_names_compiles_as_it_would():
    """Nothing is lost but memory."""

    dispatcher = SimpleNamespace(overloads={}, targetctx=None, _cache=object())

    assert not load(dispatcher, signature(*ARRAYS))


def test_a_kernel_is_bound_by_its_machine_code():
    """`entry` returns the function itself, without numba's dispatch."""
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    function = compiled.entry(maps.silu, (x, y))
    function(x, y)

    assert function is maps.silu.overloads[signature(x, y)].entry_point
    assert (y > 0.73).all()


def test_a_kernel_calls_no_code_that_another_kernel_could_bring():
    """Each would bring its own copy of a shared sum, made vectors in its own way; the linker takes the first, and bits would hang on what was loaded before."""
    real, matrix, vector = numba.float32, numba.float32[:, ::1], numba.float32[::1]
    wanted = {
        loss.cross_entropy_loss: (matrix, matrix, vector),
        loss.cross_entropy_loss_back: (vector, matrix, matrix, numba.int64, matrix),
        loss.cross_entropy_classes: (matrix, numba.int32[::1], vector),
        loss.cross_entropy_classes_back: (vector, matrix, numba.int32[::1], numba.int64, matrix),
        softmax.log_soft_max: (matrix, matrix),
        maps.silu: (vector, vector),
        normal.rms_norm: (matrix, real, matrix),
    }
    for dispatcher, argtypes in wanted.items():
        fresh = jit._njit(**jit.OPTIONS)(dispatcher.py_func)
        fresh.compile(argtypes)
        (compiled_now,) = fresh.overloads.values()
        code = compiled_now.library.get_llvm_str()
        own = compiled_now.fndesc.llvm_func_name
        called = set(re.findall(r"(?:call|invoke)[^@\n]*@\"?([^\s(\"]*kernels8compiled[^\s(\"]*)", code))

        assert called <= {own}, (dispatcher, called)
