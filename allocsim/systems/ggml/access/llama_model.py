"""Load and decode a model with the llama.cpp that some libggml files contain.

    with LlamaModel(library, path) as model:
        model.decode([1, 2, 3])
        model.next_token()

Contract
--------
* A library contains llama.cpp if it exports the functions of llama.h that `FUNCTIONS` lists.
* The parameters of models, the parameters of contexts, and batches are structs that grow from
  version to version. The bridge gets these structs from the library (`llama_model_default_params`)
  and passes them back unread, so it does not need their layout. The library's defaults apply: a
  context of 512 tokens, and weights mapped from the file.
* Tokens are integers; no text is tokenised. `next_token` returns the token with the largest logit.
* The error messages of llama.cpp are kept. If a call fails, the EngineError ends with the last two
  of these messages.

Loading runs llama.cpp's own reader on a file that may be hostile, so load models only in a child
process (`allocsim.systems.ggml.access.child`). This module does not examine graphs and plans;
`allocsim.systems.ggml.capture.computed_graphs` captures them.
"""

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library


class Opaque(ctypes.Structure):
    """A struct of llama.cpp that the bridge passes on unread.

    The 2048 bytes are more than any of these structs needs. On x86-64 a struct of more than 16
    bytes is passed through memory, and the library does not read the bytes behind the struct.
    """

    _fields_ = (("bytes", ctypes.c_uint8 * 2048),)


_LOG: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

_P, _I = ctypes.c_void_p, ctypes.c_int32
FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (_LOG, _P)),
    "llama_model_default_params": (Opaque, ()),
    "llama_model_load_from_file": (_P, (ctypes.c_char_p, Opaque)),
    "llama_model_free": (None, (_P,)),
    "llama_model_get_vocab": (_P, (_P,)),
    "llama_vocab_n_tokens": (_I, (_P,)),
    "llama_context_default_params": (Opaque, ()),
    "llama_init_from_model": (_P, (_P, Opaque)),
    "llama_free": (None, (_P,)),
    "llama_n_ctx": (ctypes.c_uint32, (_P,)),
    "llama_set_n_threads": (None, (_P, _I, _I)),
    "llama_batch_get_one": (Opaque, (_P, _I)),
    "llama_decode": (_I, (_P, Opaque)),
    "llama_get_logits_ith": (_P, (_P, _I)),
}
"""Function -> (result type, argument types), as llama.h has declared them since 2025."""

ERROR_LEVEL: Final = 4
"""The value of `GGML_LOG_LEVEL_ERROR`."""


class LlamaModel:
    """A llama.cpp model and one context of the model, both freed at the end of the `with` block."""

    def __init__(self, library: Library, path: Path, *, threads: int = 1) -> None:
        self._stack = ExitStack()
        self._said: list[str] = []
        self._call = {name: _typed(library, name, *types) for name, types in FUNCTIONS.items()}
        log = _LOG(self._heard)
        self._stack.callback(lambda: log)  # keeps `log` alive, since the library has its address
        self._stack.callback(self._call["llama_log_set"], _LOG(0), None)  # runs before `log` may be freed
        self._call["llama_log_set"](log, None)
        self._call["llama_backend_init"]()
        try:
            given = self._call["llama_model_default_params"]()
            self._model = self._own("llama_model_load_from_file", "llama_model_free", str(path).encode(), given)
            given = self._call["llama_context_default_params"]()
            self._context = self._own("llama_init_from_model", "llama_free", self._model, given)
        except BaseException:
            self._stack.close()
            raise
        self._call["llama_set_n_threads"](self._context, threads, threads)
        self.vocabulary = int(self._call["llama_vocab_n_tokens"](self._call["llama_model_get_vocab"](self._model)))
        """The number of tokens in the model's vocabulary."""
        self.room = int(self._call["llama_n_ctx"](self._context))
        """The number of tokens that fit in the context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def address(self) -> int:
        """The address of the `llama_context`."""
        return self._context

    def decode(self, tokens: Sequence[int]) -> None:
        """Decode these tokens after the tokens already in the context (`llama_decode`). Raises
        EngineError if `llama_decode` returns a status that is not 0.
        """
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self._call["llama_batch_get_one"](ctypes.addressof(array), len(tokens))
        status = self._call["llama_decode"](self._context, batch)
        if status:
            raise EngineError(f"llama_decode of {len(tokens)} tokens gave {status}{self._words()}")

    def next_token(self) -> int:
        """Return the likeliest next token; raise EngineError if llama.cpp has no logits."""
        logits = self._call["llama_get_logits_ith"](self._context, -1)
        if not logits:
            raise EngineError(f"llama.cpp has no logits of the last token{self._words()}")
        return int(np.argmax(np.ctypeslib.as_array((ctypes.c_float * self.vocabulary).from_address(logits))))

    def _own(self, make: str, free: str, *arguments: Any) -> int:
        made = self._call[make](*arguments)
        if not made:
            raise EngineError(f"{make} failed{self._words()}")
        self._stack.callback(self._call[free], made)
        return int(made)

    def _heard(self, level: int, text: bytes | None, _: int | None) -> None:
        if level == ERROR_LEVEL and text:
            self._said.append(text.decode(errors="replace").strip())

    def _words(self) -> str:
        return f": {'; '.join(self._said[-2:])}" if self._said else ""


def _typed(library: Library, name: str, result: Any, arguments: tuple[Any, ...]) -> Any:
    address = library.address(name)
    if not address:
        raise EngineError(f"ggml {library.name!r} has no llama.cpp inside: {library.path.name} does not export {name}")
    return ctypes.CFUNCTYPE(result, *arguments)(address)
