"""`llama_sessions.py LIBRARY MODEL SEED CONTEXTS`: right hosts of llama.cpp, drawn: contexts of one to four sequences that
decode prompts and single tokens together or alone, in batches of several runs, share tokens, remove, copy, shift and keep.
"""

import random
import sys

from llama_api import Bool, P, call, context_of, decode, sequence

drawn = random.Random(int(sys.argv[3]))


def host():
    """Run one host, which knows which positions each sequence has."""
    count = drawn.choice((1, 2, 4))
    most = drawn.choice((32, 512))
    context, memory = context_of(
        drawn.choice((64, 128, 256)) * count, count, batch=most, run=min(most, drawn.choice((8, 32, 512)))
    )
    held = {name: set() for name in range(count)}
    for _ in range(drawn.randrange(10, 40)):
        act(context, memory, held, most)
    call("llama_free", None, (P, context))


def act(context, memory, held, most):
    """Do one thing."""
    kind, name = drawn.random(), drawn.randrange(len(held))
    own = held[name]
    if kind < 0.55:
        decode_some(context, memory, held, most)
    elif kind < 0.62 and not any(held.values()):
        together = [(drawn.randrange(3, 90), at, list(held)) for at in range(drawn.randrange(1, 20))]
        if not decode(context, *together):
            for positions in held.values():
                positions |= {at for _, at, _ in together}
    elif kind < 0.75 and own:
        low = drawn.choice(sorted(own))
        if sequence(memory, "rm", name, low, -1):
            own -= {at for at in own if at >= low}
    elif kind < 0.85 and len(held) > 1:
        other = drawn.choice([each for each in held if each != name])
        sequence(memory, "rm", other, -1, -1)
        sequence(memory, "cp", name, other, -1, -1)
        held[other] = set(own)
    elif kind < 0.93 and len(own) > 8:
        low = drawn.randrange(1, max(own) - 4)
        by = drawn.randrange(1, min(low + 4, max(own) - low))
        if sequence(memory, "rm", name, low, low + by):
            sequence(memory, "add", name, low + by, -1, -by)
            held[name] = {at if at < low else at - by for at in own if not low <= at < low + by}
    elif 0.93 <= kind < 0.95:
        sequence(memory, "keep", name)
        for other in held:
            held[other] = own if other == name else set()
    elif kind >= 0.97:
        clear(memory, held)


def decode_some(context, memory, held, most):
    """Decode the next tokens of some sequences, one after the other or by position."""
    rows = [
        (drawn.randrange(3, 90), max(held[name], default=-1) + 1 + k, [name])
        for name in drawn.sample(list(held), drawn.randrange(1, len(held) + 1))
        for k in range(drawn.choice((1, 1, 1, 5, 20, 40)))
    ][:most]
    if drawn.random() < 0.3:
        rows.sort(key=lambda row: row[1:])
    status = decode(context, *rows)
    if not status:
        for _, at, (name,) in rows:
            held[name].add(at)
    else:
        clear(memory, held)


def clear(memory, held):
    """Forget all sequences."""
    call("llama_memory_clear", None, (P, memory), (Bool, drawn.random() < 0.5))
    for name in held:
        held[name] = set()


for _ in range(int(sys.argv[4])):
    host()
