"""Translates dtypes of other libraries to those of a document: names of numpy, ml_dtypes and torch,
and their dtype objects.

A name of the document format always wins: `f4` is a packed float of four bits here; numpy's code of
that spelling, a float of four bytes, is accepted only as `numpy.dtype("f4")`, with name `float32`.
A dtype that is packed in one library and takes a whole byte in another (`int4`) is the packed dtype
here.

What this module does not see: arrays. It imports no library whose names it knows.
"""

from difflib import get_close_matches
from typing import Any, Final

from allocsim.errors import ModelError
from allocsim.model import DTYPE_CODES

FOREIGN: Final[dict[str, str]] = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8_e4m3", "float8_e4m3fnuz": "f8_e4m3", "float8_e4m3": "f8_e4m3", "float8_e4m3b11fnuz": "f8_e4m3",
    "float8_e5m2": "f8_e5m2", "float8_e5m2fnuz": "f8_e5m2",
    "int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2", "float4_e2m1fn": "f4",
    "double": "f64", "float": "f32", "half": "f16", "long": "i64", "int": "i32", "short": "i16", "cfloat": "c64", "cdouble": "c128",
    "bool_": "bool",
}  # fmt: skip
"""Foreign name -> a document's dtype.

The short names are torch's; numpy's `float` and `int` are Python's types, of eight bytes.
"""


def dtype_of(thing: Any) -> str | None:
    """Return the document's name of a dtype, given by that name, a foreign name, or a dtype object;
    None for anything else.
    """
    name = thing if isinstance(thing, str) else _name(thing)
    if name is None:
        return None
    name = name.removeprefix("torch.").removeprefix("numpy.").removeprefix("np.")
    return name if name in DTYPE_CODES else FOREIGN.get(name)


def dtype_code(place: str, thing: Any) -> int:
    """Return the code of a dtype (`allocsim.model.DTYPE_CODES`).

    Raise ModelError, at `place`, if `thing` names no dtype.
    """
    word = thing if isinstance(thing, str) and thing in DTYPE_CODES else dtype_of(thing)
    if word is not None:
        return DTYPE_CODES[word]
    near = get_close_matches(thing, [*DTYPE_CODES, *FOREIGN], n=1) if isinstance(thing, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ModelError(place, f"{thing!r} is none of {' '.join(DTYPE_CODES)}{hint}")


def _name(thing: Any) -> str | None:
    """Return the name of a dtype object: numpy's dtypes and scalar types have a name, and torch's
    dtypes print as one.
    """
    if thing is float or thing is int or thing is complex:  # Python's own, as numpy reads them
        return {float: "float64", int: "int64", complex: "complex128"}[thing]
    for spelled in (getattr(thing, "name", None), getattr(thing, "__name__", None), str(thing)):
        if isinstance(spelled, str) and spelled.removeprefix("torch.") in {*FOREIGN, "bool"}:
            return spelled
    return None
