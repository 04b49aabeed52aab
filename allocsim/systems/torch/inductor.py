"""Reads the wrapper that TorchInductor generates (`TORCH_LOGS=output_code`, or the file in its
cache). The wrapper is read as text and never run.

Time is the order of the statements of `call`. One `host.write` per input comes first, and one
`host.read` of the returned tensors comes last.

Memory. Each `empty_strided_*` is a separate allocation. `alloc_from_pool` places a tensor at an
offset in such an allocation (`memory_planning`); the allocation then is a pool and not a tensor.
`new = old; del old  # reuse`, with or without `reinterpret_tensor`, makes a new buffer in the slot
of the old buffer. These reuses are the plan. A `reinterpret_tensor` without a `del` is a view, or a
part of a tensor that is not written yet. If a kernel writes parts of a tensor and also reads the
whole tensor (a concatenation), it reads the tensor after its writes. The operands of the kernel's
op are only the parts that other kernels wrote.

Kernels. The parameter names of a generated kernel give the accesses: an `in_ptr` is read, an
`out_ptr` is written, and an `in_out_ptr` is both, as a declared in-place pair. The pair is `exact`
if the layout is unchanged. The pair is `bytes` if reuses gave the tensor another layout with the
same number of elements of the same dtype, because the kernel stores each element at the address
from which it loaded the element. Otherwise no pair is declared. If a name is passed both as
`in_ptr` and as `out_ptr`, it is an input that the program changes. The old content is recorded as
read before the write, because TorchInductor's scheduler ensures this order. An extern kernel writes
`out` and reads all other tensors, and declares no in-place pair. An aten operator with a name that
ends in `_` writes its first operand. A library kernel without `out` allocates its result:
`assert_size_stride` gives the size, and the dtype, which is not in the text, is taken from the
first operand. A second write to a name is a mutation of its buffer. Inputs have a separate arena,
because the wrapper reuses their memory too; `get_args` gives their sizes. The text has no offsets
of inputs that share a storage. Each such input is placed as if in separate memory, and a wrapper
that writes to such an input or reuses its memory is refused.

The text has no addresses, and does not say which allocation gets the memory that a `del` returns to
the caching allocator. Each allocation therefore has a separate slot; the peak is the sum of all.

What this module does not see: sizes known only at run time, operators that may return memory of an
operand, unknown operators, and statements of any other form. It refuses wrappers with any of these.
"""

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import chain, repeat
from math import prod
from typing import Any, Final

from allocsim.allowances import metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.placing import Placing, Slot
from allocsim.formats.python_text import parsed, refusal
from allocsim.model import HOST_READ, HOST_WRITE, VIEW, WIDTHS, Arena, Document, Role
from allocsim.model.layout import dense_nbytes, dense_strides
from allocsim.programs.dtype_names import dtype_code
from allocsim.systems.torch.operators import NO_ACCESS, NOT_NEW

MAX_STATEMENTS: Final = 1 << 20

ALIGNMENT: Final = 64
"""Alignment of each allocation's offset in bytes. It is chosen here; the text states none."""

SKIPPED: Final = frozenset(
    ("assert_size_stride", "assert_size_stride_grouped", "assert_alignment", "clear", "get_raw_stream", "set_device")
)
"""Calls that access no tensor."""

_GIVEN: Final = frozenset(("rand_strided", "as_strided"))
"""Calls that make an input in `get_args`: as a separate tensor, or in a shared storage."""

_LIBRARY: Final = re.compile(r"(?:(?:torch\.ops\.)?aten|extern_kernels)\.(\w+?)(_?)(?:\.\w+)?$")
"""The name of a library operator. Group 2 is `_` if the operator writes its first operand."""

_KERNEL: Final = re.compile(r"(?:void\s+kernel|def\s+triton_\w+)\(([^)]*)\)")


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a wrapper of TorchInductor."""
    return b"torch._inductor.async_compile" in head


@metered
def loads(data: bytes, source: str = "wrapper") -> Document:
    """Return the program and plan of a wrapper.

    Raise DocumentError, which names the line and the violated rule. O(size of the text).
    """
    tree = parsed(data, source)
    call = next((row for row in ast.walk(tree) if isinstance(row, ast.FunctionDef) and row.name == "call"), None)
    if call is None:
        raise DocumentError(source, "", "no plan here: it has no function `call`")
    try:
        return Document.of(_Wrapper(tree, source).plan(call))
    except DocumentError:
        raise
    except ModelError as error:
        raise DocumentError(source, error.place, error.rule) from None


def _parameter(text: str) -> str:
    """Return the name of a parameter such as `at::Half* in_ptr0` or `XBLOCK : tl.constexpr`."""
    return re.split(r"[\s*]+", re.sub(r"\s*(?<!:):(?!:).*", "", text.strip()))[-1]


def _called(call: ast.Call) -> str:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def _whole(row: ast.expr) -> str:
    """Return `buf1` for both `buf1` and `buf1[0]`."""
    return ast.unparse(row.value if isinstance(row, ast.Subscript) else row)


Layout = tuple[str, tuple[int, ...], tuple[int, ...]]
"""The layout of a tensor: dtype, shape, and strides in elements."""


def _as_it_lies(layout: Layout) -> Layout:
    """Return a layout with its dimensions sorted by descending stride; the bytes are the same."""
    dtype, shape, strides = layout
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    return dtype, tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order)


Written = list[tuple[str, int | None, str]]
"""(name, position of the operand of its in-place pair, strength of the pair), for each write."""


class _Wrapper:
    """Translates the statements of a wrapper into ops, buffers and slots."""

    def __init__(self, tree: ast.AST, source: str) -> None:
        self.source = source
        arenas = (Arena(name="allocated, never given back", alignment=1), Arena(name="inputs", alignment=1))
        self.growing = Placing("call", arenas)
        self.kernels: dict[str, list[str]] = {}
        """Kernel -> the names of the kernel's parameters."""
        self.given: dict[str, ast.Call] = {}
        """Input -> the call in `get_args` that makes the input."""
        self.asserted: dict[str, list[ast.expr]] = {}
        """Name -> the shape and strides that `assert_size_stride` asserts for it."""
        self.parts: dict[str, dict[str, str]] = {}
        """Name of a tuple of results -> result -> its assigned name, "" if it has two names."""
        self.several: set[str] = set()
        """Names of results that a library kernel allocated in an earlier statement."""
        for row in ast.walk(tree):
            if isinstance(row, ast.Call) and _called(row) == "assert_size_stride" and len(row.args) >= 3:
                self.asserted[ast.unparse(row.args[0])] = row.args[1:3]
            elif isinstance(row, ast.Assign):
                self.told(ast.unparse(row.targets[0]), row.value)
        self.ends = [0, 0]
        """The end of the last slot in each arena, in bytes."""
        self.slot: dict[str, Slot] = {}
        self.layout: dict[str, Layout] = {}
        self.now: dict[str, int] = {}
        """Name -> its latest value; the memory of a name without a value is unwritten."""
        self.before: dict[str, int] = {}
        """Unwritten name that reuses the slot of another name -> the value in that slot."""
        self.lies: dict[str, Layout] = {}
        """Name in `before` -> the layout in which the value in its slot was written."""
        self.room: dict[str, tuple[int, int]] = {}
        """Name -> its buffer and its offset in the buffer in bytes, once the buffer exists."""
        self.filled: set[int] = set()
        """Buffers in which at least a part was written."""
        self.shared: set[str] = set()
        """Inputs that share a storage with other inputs, and views of such inputs."""

    def told(self, name: str, value: ast.expr) -> None:
        """Store what an assignment says: a kernel's source, an input, or the name of a result."""
        if isinstance(value, ast.Subscript | ast.Name):
            parts, part = self.parts.setdefault(_whole(value), {}), ast.unparse(value)
            parts[part] = "" if part in parts else name
        if not isinstance(value, ast.Call):
            return
        texts = (str(arg.value) for arg in value.args if isinstance(arg, ast.Constant))
        if found := next(filter(None, map(_KERNEL.search, texts)), None):
            self.kernels[name] = [_parameter(part) for part in found[1].split(",")]
        elif _called(value) in _GIVEN:
            self.given[name] = value

    def plan(self, call: ast.FunctionDef) -> Any:
        """Translate the function `call` into ops; return the plan."""
        count = 0
        rows = list(reversed(call.body))
        while rows:
            row = rows.pop()
            count += 1
            if count > MAX_STATEMENTS:
                raise self.refuse(row, f"there are more than {MAX_STATEMENTS} statements")
            if isinstance(row, ast.With):
                rows += reversed(row.body)
            elif isinstance(row, ast.Assign):
                self.assign(row, rows)
            elif isinstance(row, ast.Expr) and isinstance(row.value, ast.Call):
                self.call(row, row.value)
            elif isinstance(row, ast.Return):
                self.result(row)
            elif not isinstance(row, (ast.Delete, ast.Pass)) and not (
                isinstance(row, ast.Expr) and isinstance(row.value, ast.Constant)
            ):
                raise self.refuse(row, f"{ast.unparse(row)[:60]!r} is not a supported statement")
        return self.growing.plan("inductor")

    def refuse(self, row: ast.AST, rule: str) -> DocumentError:
        return refusal(self.source, row, rule)

    def assign(self, row: ast.Assign, rows: list[ast.stmt]) -> None:
        """Translate an assignment: inputs, an allocation, a reuse or a view."""
        target, value = row.targets[0], row.value
        if isinstance(value, ast.Name) and value.id == "args":
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                self.input(row, part)
            return
        if isinstance(value, ast.Call) and _called(value) in SKIPPED:
            return
        name = target.id if isinstance(target, ast.Name) else ""
        deleted = _deleted_behind(row, rows)
        if name and isinstance(value, ast.Call):
            self.assign_call(row, name, value, deleted)
        elif name and isinstance(value, ast.Name) and value.id in self.slot:
            self.refuse_shared(row, value.id, taken=value.id in deleted)
            self.take(name, value.id, self.layout[value.id], reuse=value.id in deleted)
        elif not name or _whole(value) not in self.several:
            raise self.refuse(row, f"{ast.unparse(row)[:60]!r} is not a supported statement")

    def assign_call(self, row: ast.Assign, name: str, value: ast.Call, deleted: AbstractSet[str]) -> None:
        """Translate an assigned call: an allocation, a tensor in a pool, a view or a kernel."""
        called = _called(value)
        if called.startswith("empty_strided"):
            self.layout[name] = self.described(row, value)
            self.slot[name] = self.place(name, 0)
        elif called == "alloc_from_pool":
            self.from_pool(row, name, value)
        elif called == "reinterpret_tensor":
            old, layout, offset = self.reinterpreted(row, value)
            if offset and old in deleted:
                raise self.refuse(row, "reuses memory from another offset than its start")
            self.refuse_shared(row, old, taken=old in deleted)
            self.take(name, old, layout, reuse=old in deleted, offset=offset)
        else:
            self.by_itself(row, name, value)

    def by_itself(self, row: ast.AST, name: str, call: ast.Call) -> None:
        """Add the op of a library kernel that allocates its results."""
        library = _LIBRARY.match(ast.unparse(call.func))
        given_out = any(word.arg == "out" for word in call.keywords)
        if library is None or library[2] or library[1] in NOT_NEW or "__" in library[1] or given_out:
            raise self.refuse(row, f"{ast.unparse(row)[:60]!r} is not a supported statement")
        read, parts = list(self.tensors(row, call)), self.parts.get(name, {}).values()
        names = [one for one in ([name] if name in self.asserted else parts) if one in self.asserted]
        if not names or not read:
            raise self.refuse(row, f"the size of the result of {library[1]} is not stated")
        for one in names:
            shape, strides = (self.numbers(row, part) for part in self.asserted[one])
            self.layout[one] = self.layout[read[0]][0], shape, strides
            self.slot[one] = self.place(one, 0)
        self.several.add(name)
        self.write_down(row, library[1], self.held(read), [(one, None, "") for one in names])

    def tensors(self, row: ast.AST, call: ast.Call) -> Iterator[str]:
        """Yield the tensors in a library kernel's arguments and in lists there, except `out`."""
        parts = [*call.args, *(word.value for word in call.keywords if word.arg != "out")]
        while parts:
            part = parts.pop(0)
            if isinstance(part, ast.List | ast.Tuple):
                parts[:0] = part.elts
            elif isinstance(part, ast.Name | ast.Subscript) or (
                isinstance(part, ast.Call) and _called(part) == "reinterpret_tensor"
            ):
                yield self.argument(row, part)
            elif any(isinstance(inside, ast.Name) and inside.id in self.slot for inside in ast.walk(part)):
                raise self.refuse(row, f"{ast.unparse(part)[:60]!r} is not a known tensor")

    def from_pool(self, row: ast.AST, name: str, call: ast.Call) -> None:
        """Place a tensor in a pool. Arguments: pool, offset in bytes, dtype, shape, strides."""
        known = len(call.args) == 5 and isinstance(call.args[0], ast.Name) and call.args[0].id in self.slot
        offset = self.numbers(row, call.args[1]) if known else ()
        if len(offset) != 1:
            raise self.refuse(row, f"{ast.unparse(call)[:60]!r} is not a tensor in a known pool")
        pool = ast.unparse(call.args[0])
        if pool in self.room:
            raise self.refuse(row, f"{pool} is a tensor, not a pool")
        self.layout[name] = self.described(row, ast.Call(call.func, [*call.args[3:], call.args[2]], []))
        self.slot[name] = self.slot[pool][0], self.slot[pool][1] + offset[0]

    def input(self, row: ast.AST, target: ast.AST) -> None:
        if not isinstance(target, ast.Name) or target.id not in self.given:
            raise self.refuse(row, f"the size of input {ast.unparse(target)[:60]} is not stated")
        self.layout[target.id] = self.given_layout(row, self.given[target.id])
        if _called(self.given[target.id]) == "as_strided":
            self.shared.add(target.id)
        self.slot[target.id] = self.place(target.id, 1)
        self.now[target.id] = self.fresh(target.id, role=Role.INPUT)
        self.growing.builder.op(HOST_WRITE, (), (self.now[target.id],), name=target.id)

    def given_layout(self, row: ast.AST, call: ast.Call) -> Layout:
        """Return the layout of an input; an input in a shared storage has the storage's dtype."""
        if _called(call) == "rand_strided":
            return self.described(row, call)
        storage = self.given.get(call.args[0].id) if call.args and isinstance(call.args[0], ast.Name) else None
        if storage is None or _called(storage) != "rand_strided" or len(call.args) != 3:
            raise self.refuse(row, f"{ast.unparse(call)[:60]!r} is not a known input")
        shape, strides = (self.numbers(row, part) for part in call.args[1:])
        if len(shape) != len(strides):
            raise self.refuse(row, f"there are {len(strides)} strides for {len(shape)} dimensions")
        return self.described(row, storage)[0], shape, strides

    def place(self, name: str, arena: int) -> Slot:
        """Return a new slot for a name, after all earlier slots of an arena; reserve its bytes."""
        offset = self.ends[arena]
        self.ends[arena] += -(-self.nbytes(name) // ALIGNMENT) * ALIGNMENT
        return arena, offset

    def refuse_shared(self, row: ast.AST, name: str, *, taken: bool) -> None:
        """Raise DocumentError if an input in a shared storage is written or reused."""
        if taken and name in self.shared:
            raise self.refuse(row, f"writes over {name}, but the offset of that input in its storage is not stated")

    def take(self, name: str, old: str, layout: Any, *, reuse: bool, offset: int = 0) -> None:
        """Give a name the memory of `old`: as the slot of a new buffer (`reuse`), or as a view."""
        self.slot[name], self.layout[name] = self.slot[old], layout
        if old in self.shared:
            self.shared.add(name)
        if reuse:
            value = self.now.get(old, self.before.get(old))
            if value is not None:
                self.before[name] = value
                self.lies[name] = self.layout[old] if old in self.now else self.lies[old]
            return
        if old not in self.room:  # the parts of a concatenation are written before the whole tensor
            self.room[old] = self.buffer(old), 0
        buffer, base = self.room[old]
        self.room[name] = buffer, base + offset * self.width(name)
        if old in self.now:
            self.now[name] = self.inside(name)
            self.growing.builder.op(VIEW, (self.now[old],), (self.now[name],), name=name)

    def width(self, name: str) -> int:
        """Return the size of an element in bytes."""
        return int(WIDTHS[dtype_code(name, self.layout[name][0])]) // 8 or 1

    def inside(self, name: str) -> int:
        """Add a new value of a name in its buffer; return the value."""
        (dtype, shape, strides), width = _as_it_lies(self.layout[name]), self.width(name)
        buffer, offset = self.room[name]
        return self.growing.value(name, buffer, dtype, shape, strides=[s * width for s in strides], offset=offset)

    def call(self, row: ast.AST, call: ast.Call) -> None:
        """Add the op of a kernel, with the tensors that the kernel reads and writes."""
        name = _called(call)
        if name in SKIPPED:
            return
        if name == "run" and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            name = call.func.value.id
        read, written = self.by_parameters(row, call, name) if name in self.kernels else self.by_out(row, call)
        if library := _LIBRARY.match(ast.unparse(call.func)):
            name = f"{library[1]}{library[2]}"
        self.write_down(row, name, read, written)

    def by_parameters(self, row: ast.AST, call: ast.Call, name: str) -> tuple[list[int], Written]:
        """Return the reads and writes of a generated kernel, by the names of its parameters."""
        read, written, at = list[int](), Written(), dict[str, int]()
        words = [
            (self.argument(row, part), word)
            for part, word in zip(call.args, chain(self.kernels[name], repeat("")), strict=False)
            if "ptr" in word or ast.unparse(part).partition("(")[0] in {"reinterpret_tensor", *self.slot}
        ]
        made_here = {tensor for tensor, word in words if "out_ptr" in word}
        if not made_here or not all("in_ptr" in word or "out_ptr" in word for _, word in words):
            raise self.refuse(
                row, f"the text does not say what {name[:60]} {'does with an argument' if made_here else 'writes'}"
            )
        for tensor, word in words:
            if word.startswith("in") and "out_ptr" not in word and self.is_made_by(tensor, made_here):
                read += self.other_parts(tensor, made_here)
                continue
            old = self.old(tensor) if word.startswith("in") else None
            if old is not None:
                at[tensor] = len(read)
                read.append(old)
            if "out_ptr" in word:
                how = self.strength(tensor) if word.startswith("in") else "whole"
                written.append((tensor, at.get(tensor), how))
        return read, written

    def by_out(self, row: ast.AST, call: ast.Call) -> tuple[list[int], Written]:
        """Return a library kernel's reads and writes: `out`, or the first operand, is written."""
        out = next((word.value for word in call.keywords if word.arg == "out"), None)
        given, library = list(self.tensors(row, call)), _LIBRARY.match(ast.unparse(call.func))
        if out is not None:
            return self.held(given), [(self.argument(row, out), None, "")]
        known = library is not None and library[2] and not {library[1], f"{library[1]}_"} & (NOT_NEW | NO_ACCESS)
        if not known or not given or not isinstance(next(iter(call.args), None), ast.Name | ast.Call):  # not a list
            raise self.refuse(row, f"{ast.unparse(call)[:60]!r} is not a call of a known kernel")
        read, at = self.held(given), None if self.old(given[0]) is None else 0
        for other in [other for other in self.now if self.room[other][0] == self.room.get(given[0], (-1, 0))[0]]:
            del self.now[other]  # the write overwrites the values of all names in the same buffer
        return read, [(given[0], at, "exact")]

    def held(self, names: list[str]) -> list[int]:
        """Return the values of names; skip names of unwritten memory."""
        return [value for name in names if (value := self.old(name)) is not None]

    def write_down(self, row: ast.AST, name: str, read: list[int], written: Written) -> None:
        """Add the op of a kernel; its results are new values of the names that it writes."""
        pairs = [(at, place, how) for place, (_, at, how) in enumerate(written) if at is not None and how]
        for tensor, *_ in written:
            self.refuse_shared(row, tensor, taken=True)
        made = [self.written(tensor) for tensor, *_ in written]
        self.growing.builder.op(name, read, made, name=name, in_place=pairs)
        for (tensor, *_), value in zip(written, made, strict=True):
            self.now[tensor] = value
            self.before.pop(tensor, None)
            self.lies.pop(tensor, None)

    def strength(self, name: str) -> str:
        """Return the strength of a name's in-place pair (old value, new value); "" for no pair."""
        new, old = self.layout[name], self.lies.get(name, self.layout[name])
        if new == old:
            return "exact"
        return "bytes" if new[0] == old[0] and prod(new[1]) == prod(old[1]) else ""

    def old(self, name: str) -> int | None:
        """Return the value in a name's memory, or None if the memory is unwritten."""
        if name not in self.now and self.room.get(name, (-1, 0))[0] in self.filled:
            self.now[name] = self.inside(name)
        return self.now.get(name, self.before.get(name))

    def is_made_by(self, name: str, made_here: AbstractSet[str]) -> bool:
        """Return whether no op has written a name as a whole and the kernel itself writes parts of
        the name's buffer. The kernel then reads these parts after its writes.
        """
        home = self.room.get(name, (-1, 0))[0]
        return name not in self.now and any(self.room.get(other, (-2, 0))[0] == home for other in made_here)

    def other_parts(self, name: str, made_here: AbstractSet[str]) -> list[int]:
        """Return the values of a tensor's parts that other kernels wrote."""
        home = self.room[name][0]
        return [value for part, value in self.now.items() if self.room[part][0] == home and part not in made_here]

    def written(self, name: str) -> int:
        """Return a new value for a write to a name. The first write to a name adds its buffer."""
        if name not in self.room:
            return self.fresh(name)
        self.filled.add(self.room[name][0])
        return self.inside(name)

    def fresh(self, name: str, **columns: Any) -> int:
        self.room[name] = self.buffer(name, **columns), 0
        self.filled.add(self.room[name][0])
        return self.inside(name)

    def buffer(self, name: str, **columns: Any) -> int:
        return self.growing.buffer(name, self.nbytes(name), self.slot[name], alignment=1, **columns)

    def nbytes(self, name: str) -> int:
        dtype, shape, strides = self.layout[name]
        width = int(WIDTHS[dtype_code(name, dtype)])
        if list(strides) == [s // (width // 8) for s in dense_strides(shape, width)] or 0 in shape:
            return dense_nbytes(shape, width)
        return (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * (width // 8)

    def argument(self, row: ast.AST, part: ast.AST) -> str:
        """Return the name of the tensor in an argument. A view in an argument gets a new name."""
        if isinstance(part, ast.Name) and part.id in self.slot:
            return part.id
        if isinstance(part, ast.Call) and _called(part) == "reinterpret_tensor":
            old, layout, offset = self.reinterpreted(row, part)
            name = f"{old}'s view {len(self.slot)}"
            self.take(name, old, layout, reuse=False, offset=offset)
            return name
        raise self.refuse(row, f"{ast.unparse(part)[:60]!r} is not a known tensor")

    def reinterpreted(self, row: ast.AST, call: ast.Call) -> tuple[str, Layout, int]:
        """Return the operand, the layout and the offset in elements of a `reinterpret_tensor`."""
        if len(call.args) != 4:
            raise self.refuse(row, f"{ast.unparse(call)[:60]!r} is not a known tensor")
        old = self.argument(row, call.args[0])
        shape, strides, offset = (self.numbers(row, word) for word in call.args[1:])
        if len(shape) != len(strides) or len(offset) != 1:
            raise self.refuse(row, f"has {len(strides)} strides, {len(offset)} offsets for {len(shape)} dimensions")
        return old, (self.layout[old][0], shape, strides), offset[0]

    def described(self, row: ast.AST, call: ast.Call) -> Layout:
        """Return the dtype, shape and strides (in elements) of an allocation."""
        words = [*call.args[2:], *(word.value for word in call.keywords if word.arg == "dtype")]
        dtypes = [word.attr for word in words if isinstance(word, ast.Attribute) and ast.unparse(word.value) == "torch"]
        if not dtypes or len(call.args) < 2:
            raise self.refuse(row, f"{ast.unparse(call)[:60]!r} does not state shape, strides and dtype")
        shape, strides = (self.numbers(row, part) for part in call.args[:2])
        if len(shape) != len(strides):
            raise self.refuse(row, f"there are {len(strides)} strides for {len(shape)} dimensions")
        return dtypes[0], shape, strides

    def numbers(self, row: ast.AST, part: ast.AST) -> tuple[int, ...]:
        """Return the integers in a literal tuple, or a literal integer as a tuple of one."""
        try:
            found = ast.literal_eval(part)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise self.refuse(row, f"{ast.unparse(part)[:60]!r} is a size known only at run time") from None
        numbers = found if isinstance(found, tuple) else (found,)
        if any(type(n) is not int or not 0 <= n < 1 << 40 for n in numbers):
            raise self.refuse(row, f"{ast.unparse(part)[:60]!r} is not a list of sizes from 0 to 2^40 - 1")
        return numbers

    def result(self, row: ast.Return) -> None:
        parts = row.value.elts if isinstance(row.value, ast.Tuple) else [row.value] if row.value else []
        names = [self.argument(row, part) for part in parts if not isinstance(part, ast.Constant)]
        self.growing.builder.op(HOST_READ, self.held(names), (), name="returned")


def _deleted_behind(row: ast.stmt, rows: list[ast.stmt]) -> set[str]:
    """Return the names deleted by a `del` on a statement's line; `rows` are in reverse order."""
    following = rows[-1] if rows else None
    gone = following.targets if isinstance(following, ast.Delete) and following.lineno == row.lineno else []
    return {part.id for part in gone if isinstance(part, ast.Name)}


__all__ = ["ALIGNMENT", "MAX_STATEMENTS", "SKIPPED", "loads", "looks_like"]
