"""Random small programs: buffers, values and ops, well formed by construction.

A draft grows op by op. What an op reads was made before it, or by nobody; what it writes is a new value, in a new buffer
or in one that is there (a mutation, a carry). Layouts are contiguous, strided, flipped, transposed, packed, empty, or
broadcast where nothing writes them.
"""

import random
from dataclasses import dataclass, field
from math import prod

from .reading import BITS, PACKED, default_strides

DTYPES = ("u8", "u8", "u8", "i8", "f8_e4m3", "f16", "f16", "bf16", "f32", "c64")
KINDS = ("f", "g", "h", "copy", "matmul", "collective")


@dataclass
class Draft:
    rng: random.Random
    leave_out: frozenset
    pool: dict
    """name -> buffer, for buffers of role parameter and state: one across programs."""
    arenas: int
    packed: bool
    buffers: list = field(default_factory=list)
    values: list = field(default_factory=list)
    ops: list = field(default_factory=list)
    streams: int = 1
    careful: bool = False
    """Whether programs are to be free of defects of their own: nothing unwritten or overwritten is read."""
    made: set = field(default_factory=set)
    """Values that hold something: an op made them, or content was laid for them."""

    def chance(self, feature, probability):
        """Say whether a feature is wanted here; never where the caller left it out."""
        return feature not in self.leave_out and self.rng.random() < probability


def program(rng, name, *, pool, arenas, leave_out, count, packed, streams, careful):
    """Return a random program of about `count` ops, as the document writes it."""
    draft = Draft(rng, leave_out, pool, arenas, packed, streams=streams, careful=careful)
    for buffer in pool.values():
        if rng.random() < 0.7:
            _persistent(draft, buffer)
    while len(draft.ops) < count:
        rng.choices((_upload, _kernel, _view, _same, _download), (2, 6, 1.2, 2, 1))[0](draft)
    if rng.random() < 0.8:
        _download(draft)
    _finish(draft)
    written = {"name": name, "buffers": draft.buffers, "values": draft.values, "ops": draft.ops}
    if streams > 1:
        written["streams"] = [f"s{i}" for i in range(streams)]
    if draft.chance("path", 0.15):
        written["path"] = "loop 2, branch then"
    return written


def extent(value):
    """Return the half-open range of bytes of its buffer that a value reaches over; (0, 0) for an empty one."""
    shape = value["shape"]
    if 0 in shape:
        return 0, 0
    width = PACKED.get(value["dtype"]) or BITS[value["dtype"]]
    strides = value.get("strides") or default_strides(shape, value["dtype"])
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    bits = value.get("bit_offset", 0) + (width * shape[-1] if shape and value["dtype"] in PACKED else width)
    first = value.get("offset", 0) + sum(r for r in reach if r < 0)
    return first, value.get("offset", 0) + sum(r for r in reach if r > 0) + -(-bits // 8)


def volume(value):
    """Return the bits that a value's elements hold."""
    return prod(value["shape"]) * (PACKED.get(value["dtype"]) or BITS[value["dtype"]])


def _persistent(draft, buffer):
    draft.buffers.append(dict(buffer))
    index = len(draft.buffers) - 1
    draft.values.append({"name": buffer["name"], "buffer": index, "dtype": "u8", "shape": [buffer["nbytes"]]})
    draft.made.add(len(draft.values) - 1)
    if draft.rng.random() < 0.3:
        draft.values.append(_within(draft, index, buffer["nbytes"]))
        draft.made.add(len(draft.values) - 1)


def _within(draft, buffer, nbytes):
    """Return a value over some bytes of a buffer that is there."""
    rng = draft.rng
    first = rng.randrange(nbytes)
    count = rng.randint(1, nbytes - first)
    value = {"name": f"v{len(draft.values)}", "buffer": buffer, "dtype": "u8", "shape": [count], "offset": first}
    if draft.chance("negative stride", 0.15):
        value |= {"offset": first + count - 1, "strides": [-1]}
    return value


def _dtype(draft):
    if draft.packed and draft.rng.random() < 0.5:
        return draft.rng.choice(tuple(PACKED))
    return draft.rng.choice(DTYPES)


def _shape(draft, dtype):
    rng = draft.rng
    if draft.chance("empty shape", 0.05):
        return rng.choice(([0], [2, 0], [0, 3]))
    if draft.chance("scalar", 0.06):
        return []
    most = 9 if dtype in PACKED else max(2, 64 // BITS[dtype])
    if rng.random() < 0.3:
        return [rng.choice((1, 2, 3)), rng.randint(1, max(2, most // 2))]
    return [rng.randint(1, most)]


def _layout(draft, value):
    """Give a new value, alone in its buffer, strides and an offset of its own, sometimes."""
    rng, shape, dtype = draft.rng, value["shape"], value["dtype"]
    if dtype in PACKED:
        if draft.chance("bit offset", 0.4):
            width = PACKED[dtype]
            value["bit_offset"] = rng.randrange(0, 8, width)
            if len(shape) > 1:
                row = -(-(value["bit_offset"] + shape[-1] * width) // 8)
                value["strides"] = [row * prod(shape[d + 1 : -1]) for d in range(len(shape) - 1)] + [0]
        return
    size, draw = BITS[dtype] // 8, rng.random()
    if not shape or 0 in shape or draw > 0.3:
        return
    if draw < 0.1 and draft.chance("negative stride", 1):
        strides = default_strides(shape, dtype)
        value["offset"] = (shape[-1] - 1) * size
        value["strides"] = [*strides[:-1], -size]
    elif draw < 0.2 and len(shape) == 2:
        value["strides"] = [size, size * shape[0]]
    elif draw < 0.3 and shape[-1] > 1 and draft.chance("gapped stride", 1):
        value["strides"] = [2 * s for s in default_strides(shape, dtype)]
        value["offset"] = rng.choice((0, size))


def _fresh(draft, like=None):
    """Add a new value in a new buffer, of the layout of another value if one is named; return its index."""
    rng = draft.rng
    if like is None:
        dtype = _dtype(draft)
        value = {"dtype": dtype, "shape": _shape(draft, dtype)}
        _layout(draft, value)
    else:
        value = {k: v for k, v in like.items() if k not in ("name", "buffer")}
    buffer = {
        "name": f"b{len(draft.buffers)}",
        "nbytes": max(
            extent(value)[1] + rng.choice((0, 0, 0, 1, 4)), 0 if 0 in value["shape"] and rng.random() < 0.5 else 1
        ),
    }
    if draft.chance("role input", 0.2):
        buffer["role"] = "input"
    if draft.chance("buffer alignment", 0.1):
        buffer["alignment"] = rng.choice((1, 2, 4))
    if draft.arenas > 1 and rng.random() < 0.3:
        buffer["arena"] = rng.randrange(draft.arenas)
    draft.buffers.append(buffer)
    return _add(draft, {"name": f"v{len(draft.values)}", "buffer": len(draft.buffers) - 1, **value})


def _add(draft, value):
    draft.values.append(value)
    return len(draft.values) - 1


def _again(draft, v):
    """Add a value in the buffer of another, of its layout or over some bytes of the buffer; return its index."""
    value = draft.values[v]
    if draft.careful and draft.buffers[value["buffer"]].get("read_only"):
        return _fresh(draft)
    nbytes = draft.buffers[value["buffer"]]["nbytes"]
    if nbytes == 0 or (not _own_elements_meet(value) and draft.rng.random() < 0.7):
        return _add(draft, {**value, "name": f"v{len(draft.values)}"})
    return _add(draft, _within(draft, value["buffer"], nbytes))


def _own_elements_meet(value):
    strides = value.get("strides")
    if value["dtype"] in PACKED or strides is None:
        return False
    return any(s == 0 and n > 1 for s, n in zip(strides, value["shape"], strict=True))


def _alias(draft, v):
    """Return a new view of a value: a part of it, flipped, broadcast, empty, or the bytes of its buffer."""
    rng, value = draft.rng, draft.values[v]
    shape, dtype = value["shape"], value["dtype"]
    view = {**value, "name": f"v{len(draft.values)}"}
    draw = rng.random()
    nbytes = draft.buffers[value["buffer"]]["nbytes"]
    if nbytes == 0 or draw < 0.2:
        return view
    persistent = draft.buffers[value["buffer"]].get("role") in ("parameter", "state")
    if draw < 0.3 and draft.chance("empty shape", 1):
        return {**view, "shape": [0], "strides": [0] if dtype in PACKED else [BITS[dtype] // 8]}
    if draw < 0.45 and dtype not in PACKED and draft.chance("broadcast", 1):
        return {
            **view,
            "shape": [rng.randint(2, 3), *shape],
            "strides": [0, *(value.get("strides") or default_strides(shape, dtype))],
        }
    if draw < 0.6 and shape and dtype not in PACKED and 0 not in shape:
        strides = list(value.get("strides") or default_strides(shape, dtype))
        return {
            **view,
            "offset": value.get("offset", 0) + (shape[0] - 1) * strides[0],
            "strides": [-strides[0], *strides[1:]],
        }
    if draft.careful and not persistent:
        return _part(draft, value, view)
    return _within(draft, value["buffer"], nbytes)


def _part(draft, value, view):
    """Return some of the bytes of a contiguous value; of another, the value itself."""
    first, end = extent(value)
    if value["dtype"] in PACKED or value.get("strides") is not None or end - first < 2:
        return view
    start = draft.rng.randrange(first, end)
    name, buffer = view["name"], value["buffer"]
    return {
        "name": name,
        "buffer": buffer,
        "dtype": "u8",
        "shape": [draft.rng.randint(1, end - start)],
        "offset": start,
    }


def _source(draft):
    """Return a value to read: mostly one that holds something, sometimes one that nobody made."""
    rng = draft.rng
    if draft.made and rng.random() < (0.995 if draft.careful else 0.96):
        made = sorted(draft.made)
        return rng.choice(made[-4:] if rng.random() < 0.6 else made)
    if draft.careful:
        _upload(draft)
        return draft.ops[-1]["results"][0]
    if draft.values and rng.random() < 0.3:
        produced = {v for op in draft.ops for v in op.get("results", ())}
        idle = [v for v in range(len(draft.values)) if v not in produced]
        if idle:
            return rng.choice(idle)
    return _fresh(draft)


def _target(draft, operands):
    """Return a new value to write: in a new buffer, like an operand or not, or in a buffer that is there."""
    rng = draft.rng
    wanted = [v for v in operands if not _own_elements_meet(draft.values[v])]
    if wanted and rng.random() < 0.5:
        v = rng.choice(wanted)
        return _again(draft, v) if draft.chance("mutation", 0.3) else _fresh(draft, draft.values[v])
    if draft.values and draft.chance("mutation", 0.3):
        return _again(draft, rng.randrange(len(draft.values)))
    return _fresh(draft)


def _emit(draft, kind, operands, results, **more):
    op = {"kind": kind, "operands": list(operands), "results": list(results), **more}
    if draft.rng.random() < 0.3:
        op["name"] = f"{kind}_{len(draft.ops)}"
    if not operands and draft.rng.random() < 0.5:
        del op["operands"]
    if draft.streams > 1:
        op["stream"] = draft.rng.randrange(draft.streams)
    draft.ops.append(op)
    if draft.careful:
        _forget(draft, results)
    draft.made.update(results)


def _forget(draft, results):
    """Take back values that an op produced where later results lie on them."""
    produced = {v for op in draft.ops for v in op.get("results", ()) if op["kind"] != "view"}
    for w in results:
        for v in sorted(draft.made & produced - set(results)):
            if _near(draft, v, w):
                draft.made.discard(v)


def _near(draft, v, w):
    """Say whether the bytes that two values reach over meet in one buffer."""
    a, b = draft.values[v], draft.values[w]
    (first, end), (start, stop) = extent(a), extent(b)
    return a["buffer"] == b["buffer"] and max(first, start) < min(end, stop)


def _apart(draft, results):
    """Put results that lie on each other into buffers of their own."""
    for i, w in enumerate(results):
        if any(_near(draft, v, w) for v in results[:i]):
            results[i] = _fresh(draft, draft.values[w])


def _declare(draft, operands, results, more):
    """Declare what a careful kernel must: a pair for each operand that a result lies on."""
    for r, w in enumerate(results):
        for o, v in enumerate(operands):
            if not _near(draft, v, w):
                continue
            layouts = [{k: x for k, x in draft.values[i].items() if k != "name"} for i in (v, w)]
            if layouts[0] == layouts[1] and more.get("in_place", ()) is None:
                continue
            pairs = more["in_place"] = [p for p in more.get("in_place") or () if p[:2] != [o, r]]
            pairs.append([o, r] if layouts[0] == layouts[1] else [o, r, "whole"])


def _upload(draft):
    like = draft.rng.choice(draft.values) if draft.values else None
    if like and not _own_elements_meet(like) and not _kept(draft, like["buffer"]) and draft.rng.random() < 0.3:
        v = _add(draft, {**like, "name": f"v{len(draft.values)}"})
    else:
        v = _fresh(draft)
        if draft.rng.random() < 0.7:
            draft.buffers[draft.values[v]["buffer"]]["role"] = "input"
    _emit(draft, "host.write", (), (v,))


def _download(draft):
    count = draft.rng.choice((1, 1, 2))
    _emit(draft, "host.read", [_source(draft) for _ in range(count)], ())


def _view(draft):
    v = _source(draft)
    view = _add(draft, _alias(draft, v))
    if draft.rng.random() < 0.6:
        _emit(draft, "view", (v,), (view,))
    elif v in draft.made:
        draft.made.add(view)


def _kernel(draft):
    rng = draft.rng
    operands = [_source(draft) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    if operands and draft.chance("operand twice", 0.05):
        operands.append(operands[0])
    results = [_target(draft, operands) for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))]
    more = {}
    if operands and results:
        draw = rng.random()
        if draw < 0.2 and draft.chance("null contract", 1):
            more["in_place"] = None
        elif draw < 0.75:
            more["in_place"] = _pairs(draft, operands, results)
    if draft.careful:
        _apart(draft, results)
        _declare(draft, operands, results, more)
    _emit(draft, rng.choice(KINDS), operands, results, **more)


def _pairs(draft, operands, results):
    """Return declared pairs: all that fit one another, or some at random, each with a strength or without."""
    rng = draft.rng
    pairs = []
    for o, v in enumerate(operands):
        for r, w in enumerate(results):
            fits = extent(draft.values[v]) == extent(draft.values[w])
            if rng.random() > (0.8 if fits else 0.35):
                continue
            alike = draft.values[v]["shape"] == draft.values[w]["shape"]
            strength = rng.choice((None, "exact", "bytes", "whole") if alike else ("bytes", "bytes", "whole", "exact"))
            strength = None if strength in draft.leave_out else strength
            pairs.append([o, r] if strength is None else [o, r, strength])
    return pairs


def _same(draft):
    """Add a `same`: each result of the bits of its operand, in a new buffer or in one that is there."""
    rng = draft.rng
    if not draft.chance("same", 1):
        return
    operands = [_source(draft) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    results = [_equal(draft, draft.values[v]) for v in operands]
    more = {}
    if rng.random() < 0.25:
        more["in_place"] = rng.choice((None, _pairs(draft, operands, results), _pairs(draft, operands, results)))
    if draft.careful:
        _apart(draft, results)
        _declare(draft, operands, results, more)
    _emit(draft, "same", operands, results, **more)


def _kept(draft, buffer):
    """Say whether a careful program keeps its hands off a buffer."""
    return draft.careful and draft.buffers[buffer].get("read_only", False)


def _equal(draft, value):
    rng = draft.rng
    bits = volume(value)
    if bits == 0 or bits % 8:
        flat = {"dtype": value["dtype"], "shape": list(value["shape"])}
        return _fresh(draft, flat)
    draw = rng.random()
    if draw < 0.12 and not _own_elements_meet(value) and not _kept(draft, value["buffer"]):
        return _add(draft, {**value, "name": f"v{len(draft.values)}"})
    fitting = [
        i
        for i, other in enumerate(draft.values)
        if volume(other) == bits
        and other is not value
        and not _own_elements_meet(other)
        and not _kept(draft, other["buffer"])
    ]
    if draw < 0.3 and fitting:
        return _add(draft, {**draft.values[rng.choice(fitting)], "name": f"v{len(draft.values)}"})
    if draw < 0.4:
        roomy = [i for i, b in enumerate(draft.buffers) if b["nbytes"] >= bits // 8 and not _kept(draft, i)]
        if roomy:
            index = rng.choice(roomy)
            first = rng.randint(0, draft.buffers[index]["nbytes"] - bits // 8)
            name = f"v{len(draft.values)}"
            return _add(draft, {"name": name, "buffer": index, "dtype": "u8", "shape": [bits // 8], "offset": first})
    if draw < 0.65 and not _own_elements_meet(value):
        return _fresh(draft, value)
    return _fresh(draft, {"dtype": "u8", "shape": [bits // 8]})


def _finish(draft):
    """Give ops of several streams their waits, and buffers what is left: read-only, sizes with a range, a value beyond."""
    rng = draft.rng
    faithful = draft.careful or rng.random() < 0.5
    producer = {v: i for i, op in enumerate(draft.ops) for v in op.get("results", ())}
    for j, op in enumerate(draft.ops if draft.streams > 1 else ()):
        others = [
            i for i in range(j) if draft.ops[i].get("stream", 0) != op["stream"] and draft.ops[i]["kind"] != "host.read"
        ]
        mine = {draft.values[v]["buffer"] for v in [*op.get("operands", ()), *op["results"]]}
        near = [
            i
            for i in others
            if mine & {draft.values[v]["buffer"] for v in [*draft.ops[i].get("operands", ()), *draft.ops[i]["results"]]}
        ]
        needed = near if faithful else [producer[v] for v in op.get("operands", ()) if producer.get(v) in others]
        chosen = sorted(
            {i for i in needed if faithful or rng.random() < 0.7} | {i for i in others if rng.random() < 0.1}
        )
        if chosen:
            op["after"] = chosen
    written = {draft.values[v]["buffer"] for op in draft.ops if op["kind"] != "host.write" for v in op["results"]}
    for i, buffer in enumerate(draft.buffers):
        persistent = buffer.get("role") in ("parameter", "state")
        if not persistent and draft.chance("read only", 0.1 if i not in written else 0 if draft.careful else 0.05):
            buffer["read_only"] = True
        if not persistent and draft.chance("nbytes range", 0.04):
            most = max((extent(v)[1] for v in draft.values if v["buffer"] == i), default=0)
            buffer["nbytes_range"] = [
                rng.randint(min(most, buffer["nbytes"]), buffer["nbytes"]),
                buffer["nbytes"] + rng.randint(0, 3),
            ]
        elif not persistent and buffer["nbytes"] > 1 and draft.chance("value outside", 0 if draft.careful else 0.01):
            buffer["nbytes"] -= 1
