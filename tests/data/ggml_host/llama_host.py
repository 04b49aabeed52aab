"""`llama_host.py LIBRARY MODEL FAULT [apart]`: llama.cpp with two sequences, whose host decodes,
removes, copies and shifts, by public functions. FAULT goes wrong between llama.cpp and ggml, in a
function that stands there in the library's own table:

none, `taken` (a token's keys go where those of position 7 are), `swapped` (two tokens change their
cells), `opened` (a token reads a cell that was removed), `behind` (a token reads a cell that nobody
wrote), `unturned` and `twice` (positions are shifted, keys are not, or too far), `uncopied` (a
sequence is copied, its keys are not), `stale` (the positions of one step are those of the step
before), `hasty` (llama.cpp gives out results without waiting for them); and `divided`, where the
host divides positions, which goes wrong in llama.cpp itself. In one of two layers alone:
`uncopied_keys`, `uncopied_values`; in values alone: `astray` (those of a token go where those of
position 7 are). The host itself: `elsewhere` (a sequence is saved, removed, and restored into
another one; `restored` is right). With `apart`, attention is computed in parts, and values lie
transposed.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
from llama_api import Int, P, Size, call, context_of, library, path, sequence
from llama_api import decode as decoded

from allocsim.systems.ggml.access.call_slots import redirected
from allocsim.systems.ggml.access.structs import live_record

fault = sys.argv[3]
context, memory = context_of(192, 3, flash="apart" not in sys.argv)
step = 0


def address(name):
    """Return where a function is: the recorder's, where it stands before the library's."""
    return ctypes.cast(getattr(library, name), P).value


def decode(*tokens):
    """Decode tokens, each with its position and sequence."""
    status = decoded(context, *((5 + (7 * at + 3 * name) % 80, at, [name]) for at, name in tokens))
    if status:
        sys.exit(f"llama_decode gave {status}")


def moved(source, target):
    """Save a sequence, remove it, and restore it into one."""
    kept = (ctypes.c_uint8 * call("llama_state_seq_get_size", Size, (P, context), (Int, source)))()
    state = (P, context), (P, ctypes.addressof(kept)), (Size, len(kept))
    call("llama_state_seq_get_data", Size, *state, (Int, source))
    for name in {source, target}:
        asked("rm", name, -1, -1)
    call("llama_state_seq_set_data", Size, *state, (Int, target))


def asked(what, *numbers):
    """Ask the memory for something."""
    sequence(memory, what, *numbers)


# what goes wrong ----------------------------------------------------------------------------------


def numbers(leaf):
    """Return the numbers of a leaf, which write through."""
    kind = {26: ctypes.c_int32, 27: ctypes.c_int64, 0: ctypes.c_uint32, 1: ctypes.c_uint16}[int(leaf["type"])]
    count = int(np.prod(leaf["ne"]))
    return np.ctypeslib.as_array((kind * count).from_address(int(leaf["data"])))


def leaf_behind(at):
    """Return the leaf behind casts and views."""
    record = live_record(at)
    return leaf_behind(int(record["src"][0])) if record["src"][0] else record


def leafs_of(graph, op, operand):
    """Yield the leafs that nodes of an op have as an operand."""
    for k in range(call("ggml_graph_n_nodes", ctypes.c_int, (P, graph))):
        node = live_record(call("ggml_graph_node", P, (P, graph), (ctypes.c_int, k)))
        if call("ggml_op_name", ctypes.c_char_p, (ctypes.c_int, int(node["op"]))) == op and node["src"][operand]:
            yield leaf_behind(int(node["src"][operand]))


def spoil(graph):
    """Change what the leafs of a graph hold, in the step that the fault is for."""
    rows = [numbers(leaf) for leaf in leafs_of(graph, b"SET_ROWS", 1)]
    masks = {
        int(leaf["data"]): leaf
        for op, at in ((b"SOFT_MAX", 1), (b"FLASH_ATTN_EXT", 3))
        for leaf in leafs_of(graph, op, at)
    }
    if fault == "taken" and step == 3:
        for row in {row.ctypes.data: row for row in rows if len(row) == 2}.values():
            row[1] -= 5
    if fault == "astray" and step == 3:
        for leaf in leafs_of(graph, b"SET_ROWS", 1):
            if bytes(leaf["name"]).startswith(b"attn_inp_v_idxs"):
                numbers(leaf)[numbers(leaf).size // 2 :] -= 5
                break
    if fault == "swapped" and step == 2:
        for row in {row.ctypes.data: row for row in rows if len(row) == 12}.values():
            row[[4, 7]] = row[[7, 4]]
    if fault in ("opened", "behind") and step == {"opened": 5, "behind": 3}[fault]:
        for leaf in masks.values():
            numbers(leaf)[30 if fault == "behind" else 15] = 0
    turns = (
        {int(leaf["data"]): numbers(leaf) for leaf in leafs_of(graph, b"ROPE", 1)}
        if fault in ("unturned", "twice")
        else {}
    )
    for turn in turns.values():
        if len(turn) > 100:
            turn[:] *= 0 if fault == "unturned" else 2


def before(name, act):
    """Return a function that acts before, or instead of, another one of two operands."""
    real = ctypes.CFUNCTYPE(Int, P, P)(address(name))

    def stand_in(one, other):
        return real(one, other) if act(one, other) is None else 0

    return ctypes.CFUNCTYPE(Int, P, P)(stand_in)


def copies_not(tensor):
    """Return whether a tensor is not copied, or None."""
    name = bytes(live_record(tensor)["name"]).rstrip(b"\0")
    of = {"uncopied": b"cache_", "uncopied_keys": b"cache_k_l1", "uncopied_values": b"cache_v_l1"}.get(fault)
    return 0 if of and name.startswith(of) else None


functions = {
    "ggml_backend_sched_graph_compute_async": before(
        "ggml_backend_sched_graph_compute_async", lambda _, graph: spoil(graph)
    ),
    "ggml_backend_tensor_copy": before("ggml_backend_tensor_copy", lambda one, _: copies_not(one)),
}


def kept_positions(tensor, data, offset, nbytes):
    """Upload, but for the positions of one step."""
    name = bytes(live_record(tensor)["name"]).rstrip(b"\0")
    if not (fault == "stale" and step == 5 and name == b"inp_pos"):
        upload(tensor, data, offset, nbytes)


upload = ctypes.CFUNCTYPE(None, P, P, Size, Size)(address("ggml_backend_tensor_set"))
set_positions = ctypes.CFUNCTYPE(None, P, P, Size, Size)(kept_positions)
to = {name: ctypes.cast(each, P).value for name, each in functions.items()}
to["ggml_backend_tensor_set"] = ctypes.cast(set_positions, P).value
not_waited = ctypes.CFUNCTYPE(None, P)(lambda _: None)
if fault == "hasty":
    to["ggml_backend_sched_synchronize"] = ctypes.cast(not_waited, P).value

with redirected([Path(path)], to):
    plan = (
        lambda: decode(*((at, 0) for at in range(20))),
        lambda: decode(*((at, 1) for at in range(12))),
        lambda: decode((20, 0), (12, 1)),
        lambda: (asked("rm", 0, 10, -1), decode((10, 0), (13, 1))),
        lambda: decode((11, 0)),
        lambda: decode((12, 0)),
        lambda: (asked("cp", 0, 2, -1, -1), decode((13, 0), (13, 2))),
        lambda: (asked("rm", 2, 2, 4), asked("add", 2, 4, -1, -2), decode((12, 2))),
        lambda: decode((13, 2), (14, 1)),
    )
    divided = (lambda: (asked("div", 2, 6, -1, 2), decode((7, 2))),) if fault == "divided" else ()
    to_one = {"restored": 1, "elsewhere": 2}.get(fault)
    restored = (lambda: (moved(1, to_one), decode((15, 1))),) if to_one else ()
    for step, act in enumerate((*plan, *divided, *restored), 1):  # noqa: B007 - the functions that stand in ask for it
        act()
call("llama_free", None, (P, context))
