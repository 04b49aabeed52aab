"""llama.cpp by its public functions, as far as the programs beside this one call it: a model, contexts, batches, sequences."""

import ctypes
import sys

P, Int, Bool, Size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool, ctypes.c_size_t
path, model_path = sys.argv[1:3]
library = ctypes.CDLL(path)


class Params(ctypes.Structure):
    """Parameters of a model or context: passed on as they were given, but for the first numbers (tokens of the context, of
    a batch, of a run; sequences), and whether all sequences share one stream of cells.
    """

    _fields_ = (("numbers", ctypes.c_uint32 * 8), ("rest", ctypes.c_uint8 * 2016))


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = (("count", Int), ("token", P), ("embd", P), ("pos", P), ("n_seq", P), ("seq", P), ("logits", P))


def call(name, result, *arguments):
    """Call a function by its name."""
    function = getattr(library, name)
    function.restype, function.argtypes = result, [kind for kind, _ in arguments]
    return function(*(value for _, value in arguments))


quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, P)(lambda *_: None)
call("llama_log_set", None, (P, ctypes.cast(quiet, P)), (P, None))
call("llama_backend_init", None)
model = call(
    "llama_model_load_from_file",
    P,
    (ctypes.c_char_p, model_path.encode()),
    (Params, call("llama_model_default_params", Params)),
)


def context_of(tokens, sequences, *, batch=512, run=512, flash=True):
    """Return a context with one thread, and its memory; without flash attention it keeps values transposed."""
    given = call("llama_context_default_params", Params)
    words = (Int * 64).from_buffer(given)
    kinds = next(k for k in range(64) if words[k : k + 4] == [-1] * 4)  # of ropes, pooling, attention, flash attention
    words[kinds + 3] = -1 if flash else 0
    given.numbers[0:4] = tokens, batch, run, sequences
    context = call("llama_init_from_model", P, (P, model), (Params, given))
    call("llama_set_n_threads", None, (P, context), (Int, 1), (Int, 1))
    return context, call("llama_get_memory", P, (P, context))


def decode(context, *rows):
    """Decode tokens, each a token, its position and its sequences; return the status, and read results where it is 0."""
    count = len(rows)
    ids, places, many = (
        (Int * count)(*column) for column in zip(*((t, at, len(names)) for t, at, names in rows), strict=True)
    )
    names = [(Int * len(each))(*each) for _, _, each in rows]
    lists = (P * count)(*(ctypes.addressof(each) for each in names))
    batch = Batch(count, *(ctypes.cast(each, P) for each in (ids, None, places, many, lists, None)))
    status = call("llama_decode", Int, (P, context), (Batch, batch))
    if not status:
        call("llama_get_logits_ith", P, (P, context), (Int, -1))
    return status


def sequence(memory, what, *numbers):
    """Ask a memory for something of its sequences."""
    return call(
        f"llama_memory_seq_{what}", Bool if what == "rm" else None, (P, memory), *((Int, each) for each in numbers)
    )
