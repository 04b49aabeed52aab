"""Drivers of the kernels that numba compiled.

The machine code unpacks words into numba's calling convention and calls the kernel.

One driver serves every kernel of one signature, since the kernel's address is its first shared
word. It is built from numba's own description of the signature, so it knows nothing of any kernel;
and the kernel is not compiled again, so that its bits are those of the list of calls.

Words of an array are its size and item size, its lengths and its strides (shared) and its address
(own); an integer is a word, a real number its bits in a word, a tuple the words of its numbers.
Numba describes a C-contiguous array by (owner, parent, size, itemsize, address, shape, strides);
these have no owner.

What this module does not see: where anything lies, and which op a kernel belongs to.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock

from engine.tape.loops import ANYHOW, Coded

if TYPE_CHECKING:
    from engine.kernels.binding import Array

_WORD: Final = ir.IntType(64)
_known: Final[dict[str, tuple[int, Any]]] = {}
"""Signature -> address of its driver, and the library that holds it."""


def kernel_call(compiled: Any, args: tuple[Any, ...]) -> Coded | None:
    """Encode a call of what numba compiled (its `CompileResult`).

    Returns None for arguments that have no words.
    """
    described = compiled.fndesc
    if not all(_has_words(kind) for kind in described.argtypes):
        return None
    words: list[int] = [int(compiled.library.get_pointer_to_function(described.llvm_func_name))]
    arrays: list[Array] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            words += [arg.size, arg.itemsize, *arg.shape, *arg.strides]
            arrays.append(arg)
        else:
            words += map(_bits, arg if isinstance(arg, tuple) else (arg,))
    return _driver(compiled), words, arrays, ANYHOW


def _has_words(kind: Any) -> bool:
    if isinstance(kind, types.UniTuple):
        return isinstance(kind.dtype, types.Integer)
    return isinstance(kind, (types.Integer, types.Boolean, types.Array)) or kind in {types.float32, types.float64}


def _bits(number: Any) -> int:
    if isinstance(number, (float, np.float64)):
        return int(np.float64(number).view(np.int64))
    return int(number.view(np.uint32)) if isinstance(number, np.float32) else int(number)


@global_compiler_lock
def _driver(compiled: Any) -> int:
    key = str(compiled.fndesc.argtypes)
    if key not in _known:
        library = compiled.target_context.codegen().create_library("tape")
        module = library.create_ir_module("tape")
        name = f"tape.{len(_known)}"
        _write(module, name, compiled)
        library.add_ir_module(module)
        library.finalize()
        _known[key] = int(library.get_pointer_to_function(name)), library
    return _known[key][0]


def _write(module: Any, name: str, compiled: Any) -> None:
    described = compiled.fndesc
    kind = compiled.target_context.call_conv.get_function_type(described.restype, described.argtypes)
    driver = ir.Function(module, ir.FunctionType(ir.IntType(32), [_WORD, _WORD]), name)
    builder = ir.IRBuilder(driver.append_basic_block("entry"))
    shared, own = (builder.inttoptr(arg, _WORD.as_pointer()) for arg in driver.args)
    taken = {shared: 0, own: 0}

    def word(source: Any) -> Any:
        at = builder.gep(source, [ir.Constant(_WORD, taken[source])])
        taken[source] += 1
        return builder.load(at)

    function = builder.inttoptr(word(shared), kind.as_pointer())
    values: list[Any] = []
    wanted = iter(kind.args[2:])
    for argument in described.argtypes:
        if not isinstance(argument, types.Array):
            parts = argument.count if isinstance(argument, types.UniTuple) else 1
            values += [_as(builder, word(shared), next(wanted)) for _ in range(parts)]
            continue
        owner, parent, size, itemsize, data, *layout = (next(wanted) for _ in range(5 + 2 * argument.ndim))
        values += [ir.Constant(owner, None), ir.Constant(parent, None)]
        values += [_as(builder, word(shared), size), _as(builder, word(shared), itemsize)]
        values.append(_as(builder, word(own), data))
        values += [_as(builder, word(shared), part) for part in layout]
    result, raised = (builder.alloca(kind.args[i].pointee) for i in (0, 1))
    builder.ret(builder.call(function, [result, raised, *values]))


def _as(builder: Any, word: Any, wanted: Any) -> Any:
    """Return a word as what numba passes.

    A pointer, an integer of any width, the bits of a real number.
    """
    if isinstance(wanted, ir.PointerType):
        return builder.inttoptr(word, wanted)
    if isinstance(wanted, ir.FloatType):
        return builder.bitcast(builder.trunc(word, ir.IntType(32)), wanted)
    if isinstance(wanted, ir.DoubleType):
        return builder.bitcast(word, wanted)
    return word if wanted.width == _WORD.width else builder.trunc(word, wanted)
