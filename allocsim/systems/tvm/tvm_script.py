"""Read TVM Relax modules after the pass `StaticPlanBlockMemory`, as TVMScript text that is not run.

Time: the statements of each Relax function in order. Before the statements there is one
`host.write` of the function's parameters, and after them one `host.read` of the returned tensors.

Memory. `R.memory.alloc_storage` allocates a storage; the storages follow one another in one arena.
`R.memory.alloc_tensor(storage, offset, ...)` is a buffer in a storage, and `R.builtin.alloc_tensor`
is a buffer in memory of its own. `name = other`, `R.match_cast` and a packed reshape move no byte:
they give a tensor another name. Parameters belong to the caller.
Kernels. A call of a `prim_func` writes the buffers that its body stores to and reads the others. A
buffer that the body stores to is also read if the body loads from the buffer before the first store
(`A[i] = A[i] + 1`; a reduction stores first, in `T.init`). The call then declares the alias of the
buffer with itself. Kernels are `noalias`, so a call declares no other alias. A kernel that stores
to none of its parameters raises DocumentError.
Branches. There is one program for each path of a covering set (`allocsim.programs.ways`). A storage
that is declared (`storage: R.Object`) and not allocated on a path gives its tensors no slot there.

What this module does not see: memory that a kernel allocates itself. This module assumes that a
kernel stores to all bytes of a buffer. Sizes known only at run time and calls of other packed
functions raise DocumentError.
"""

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from allocsim.allowances import metered
from allocsim.errors import DocumentError, ModelError
from allocsim.formats.placing import APART, Placing, Slot
from allocsim.formats.python_text import parsed, refusal
from allocsim.model import HOST_READ, HOST_WRITE, UNPLACED, WIDTHS, Arena, Document, Plan, Role
from allocsim.model.layout import dense_nbytes
from allocsim.programs.dtype_names import dtype_code
from allocsim.programs.routines import Where
from allocsim.programs.ways import ways

ALIGNMENT: Final = 64
"""Alignment of storages in bytes (`kAllocAlignment`, include/tvm/runtime/device_api.h)."""

SKIPPED: Final = ("R.func_attr", "R.memory.kill_tensor", "R.memory.kill_storage")
"""Statements that touch no tensor."""


RESHAPES: Final = ("vm.builtin.reshape", "relax.reshape")
"""Packed functions whose result is their first argument in another shape."""

SIDES: Final = ("then", "else")


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a module as TVMScript."""
    return b"@I.ir_module" in head


@metered
def loads(data: bytes, source: str = "module") -> Document:
    """Return program and plan of each path through each Relax function that allocates a storage.

    O(size of the text). Raises DocumentError with line and rule.
    """
    tree = parsed(data, source)
    functions = [row for row in ast.walk(tree) if isinstance(row, ast.FunctionDef)]
    kernels = {row.name: _accesses(row) for row in functions if _decorated(row, "prim_func")}
    planned = [
        row
        for row in functions
        if _decorated(row, "function") and any(_word(part) == "R.memory.alloc_storage" for part in ast.walk(row))
    ]
    if not planned:
        raise DocumentError(source, "", "no plan here: no function allocates a storage")
    try:
        found: dict[tuple[str, str], Plan] = {}
        for row in planned:
            for taken in ways(_choices(row.body, ())):
                plan = _Function(row, kernels, source, taken).plan()
                found[row.name, plan.program.path] = plan
        return Document.of(*found.values())
    except DocumentError:
        raise
    except (ModelError, RecursionError) as error:
        rule = error.rule if isinstance(error, ModelError) else "is nested too deeply"
        raise DocumentError(source, getattr(error, "place", ""), rule) from None


def _choices(body: list[ast.stmt], where: Where) -> dict[Where, tuple[str, ...]]:
    """Return the place of each branch among statements, nested branches too, with its sides."""
    found: dict[Where, tuple[str, ...]] = {}
    for row in body:
        if isinstance(row, ast.With):
            found |= _choices(row.body, where)
        elif isinstance(row, ast.If):
            here = (*where, f"if {row.lineno}")
            found[here] = SIDES
            for name, side in zip(SIDES, (row.body, row.orelse), strict=True):
                found |= _choices(side, (*here, name))
    return found


def _decorated(row: ast.FunctionDef, name: str) -> bool:
    words = (part.func if isinstance(part, ast.Call) else part for part in row.decorator_list)
    return any(isinstance(word, ast.Attribute) and word.attr == name for word in words)


def _word(row: ast.AST) -> str:
    """Return the dotted name of the function that a call calls; "" for any other expression."""
    parts = []
    here: Any = row.func if isinstance(row, ast.Call) else None
    while isinstance(here, ast.Attribute):
        parts.append(here.attr)
        here = here.value
    return ".".join([here.id, *reversed(parts)]) if isinstance(here, ast.Name) else ""


Access = tuple[bool, bool]
"""Whether a kernel reads a parameter's old content, and whether the kernel writes the parameter."""


def _accesses(row: ast.FunctionDef) -> list[Access]:
    """Return the `Access` of a kernel to each of its parameters, in order."""
    alias = {parameter.arg: parameter.arg for parameter in row.args.args}
    read: set[str] = set()
    written: set[str] = set()
    rows: list[ast.AST] = list(reversed(row.body))
    while rows:  # in the order of execution: the right side of an assignment comes first
        part = rows.pop()
        if isinstance(part, ast.Call) and _word(part) in ("T.reads", "T.writes"):
            continue  # an annotation, no access
        if isinstance(part, ast.Assign):
            _match(part, alias)
        name = alias.get(_base(part)) if isinstance(part, ast.Subscript) else None
        if name is not None and isinstance(part, ast.Subscript):
            if isinstance(part.ctx, ast.Store):
                written.add(name)
            elif name not in written:
                read.add(name)
        if isinstance(part, ast.AugAssign) and (name := alias.get(_base(part.target))) and name not in written:
            read.add(name)
        below = list(ast.iter_child_nodes(part))
        rows += below if isinstance(part, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else reversed(below)
    names = [parameter.arg for parameter in row.args.args]
    return [(name in read or name not in written, name in written) for name in names]


def _base(part: ast.AST) -> str:
    """Return `A` for each of `A`, `A[i]` and `A[i][j]`."""
    while isinstance(part, ast.Subscript):
        part = part.value
    return part.id if isinstance(part, ast.Name) else ""


def _reshaped(value: ast.expr) -> ast.expr | None:
    """Return the tensor that a call renames (`match_cast` or a reshape); None for other calls."""
    if not isinstance(value, ast.Call) or not value.args:
        return None
    if _word(value) in ("R.match_cast", "R.reshape"):
        return value.args[0]
    first = value.args[0]
    packed = _word(value) == "R.call_packed" and isinstance(first, ast.Constant) and first.value in RESHAPES
    return value.args[1] if packed and len(value.args) > 1 else None


def _match(row: ast.Assign, alias: dict[str, str]) -> None:
    """Add the alias of `X = T.match_buffer(p, ...)`: X is another name for a parameter."""
    to, call = row.targets[0], row.value
    if isinstance(to, ast.Name) and isinstance(call, ast.Call) and _word(call) == "T.match_buffer" and call.args:
        name = alias.get(_base(call.args[0]))
        if name is not None:
            alias[to.id] = name


class _Function:
    """The program of one path through a Relax function, as far as its statements have been read."""

    def __init__(
        self, row: ast.FunctionDef, kernels: dict[str, list[Access]], source: str, taken: Mapping[Where, str]
    ) -> None:
        self.row, self.kernels, self.source, self.taken = row, kernels, source, taken
        self.where: Where = ()
        self.said: list[str] = []
        self.growing = Placing(row.name, (Arena(name="storages", alignment=ALIGNMENT),))
        self.storages: dict[str, tuple[int, int] | None] = {}
        """Name -> offset and size in bytes; None for a storage that another branch allocates."""
        self.end = 0
        self.made: dict[str, tuple[str, tuple[int, ...], Slot]] = {}
        """Tensor -> its dtype, shape and slot."""
        self.now: dict[str, int] = {}
        """Tensor -> its current value, once the tensor is read or written."""
        self.names: dict[str, str] = {}
        """Another name of a tensor -> the tensor."""

    def plan(self) -> Plan:
        """Add the function's statements to the program; return the plan."""
        given = []
        for parameter in self.row.args.args:
            if parameter.annotation is not None and _word(parameter.annotation) == "R.Prim":
                continue  # a number has no memory
            dtype, shape = self.annotated(parameter)
            self.made[parameter.arg] = dtype, shape, APART
            given.append(self.value(parameter.arg, Role.INPUT))
        self.growing.builder.op(HOST_WRITE, (), given, name="parameters")
        for row in self.row.body:
            self.statement(row)
        program = replace(self.growing.builder.build(), path=", ".join(self.said))
        return self.growing.plan_for(program, "tvm")

    def refuse(self, row: ast.AST, rule: str) -> DocumentError:
        return refusal(self.source, row, rule)

    def statement(self, row: ast.stmt) -> None:
        if isinstance(row, ast.With):
            for part in row.body:
                self.statement(part)
        elif isinstance(row, ast.If):
            self.branch(row)
        elif isinstance(row, ast.AnnAssign) and row.value is None and isinstance(row.target, ast.Name):
            self.storages.setdefault(row.target.id, None)
        elif isinstance(row, ast.Return):
            parts = row.value.elts if isinstance(row.value, ast.Tuple) else [row.value] if row.value else []
            self.growing.builder.op(HOST_READ, [self.read(part) for part in parts], (), name="returned")
        elif isinstance(row, ast.Expr) and isinstance(row.value, ast.Call):
            self.call(row.value)
        elif isinstance(row, (ast.Assign, ast.AnnAssign)) and row.value is not None:
            targets = row.targets if isinstance(row, ast.Assign) else [row.target]
            if len(targets) != 1 or not isinstance(targets[0], ast.Name):
                raise self.refuse(row, f"{ast.unparse(row)[:60]!r} does not assign to one name")
            self.assign(row, targets[0].id, row.value)
        elif not isinstance(row, (ast.Pass, ast.Expr)):
            raise self.refuse(row, f"{ast.unparse(row)[:60]!r} is not a supported statement")

    def branch(self, row: ast.If) -> None:
        if isinstance(row.test, ast.Name) and row.test.id in (*self.made, *self.names):
            self.growing.builder.op("if", (self.read(row.test),), ())
        around, self.where = self.where, (*self.where, f"if {row.lineno}")
        side = self.taken[self.where]
        self.said.append(f"{'/'.join(self.where)}={side}")
        self.where = (*self.where, side)
        for part in row.body if side == SIDES[0] else row.orelse:
            self.statement(part)
        self.where = around

    def assign(self, row: ast.AST, name: str, value: ast.expr) -> None:
        word = _word(value)
        same = _reshaped(value)
        if same is not None:
            self.names[name] = self.tensor(same)
        elif isinstance(value, ast.Name):
            if value.id not in ("Module", *self.storages):
                self.names[name] = self.tensor(value)
        elif isinstance(value, ast.Call) and word == "R.memory.alloc_storage" and value.args:
            nbytes = self.number(value.args[0])
            self.storages[name] = self.end, nbytes
            self.end += -(-nbytes // ALIGNMENT) * ALIGNMENT
        elif isinstance(value, ast.Call) and word == "R.memory.alloc_tensor" and len(value.args) >= 4:
            storage = value.args[0].id if isinstance(value.args[0], ast.Name) else ""
            if storage not in self.storages:
                raise self.refuse(row, f"{ast.unparse(value.args[0])[:40]!r} is no storage")
            held, offset = self.storages[storage], self.number(value.args[1])
            dtype, shape = self.text(value.args[3]), self.numbers(value.args[2])
            size = dense_nbytes(shape, int(WIDTHS[dtype_code(name, dtype)]))
            if held is not None and offset + size > held[1]:
                raise self.refuse(row, f"{name} ends at byte {offset + size}; its storage has {held[1]} bytes")
            self.made[name] = dtype, shape, (UNPLACED, 0) if held is None else (0, held[0] + offset)
        elif isinstance(value, ast.Call) and word == "R.builtin.alloc_tensor" and len(value.args) >= 2:
            self.made[name] = self.text(value.args[1]), self.numbers(value.args[0]), APART
        else:
            raise self.refuse(row, f"{ast.unparse(value)[:60]!r} is not a supported statement")

    def call(self, call: ast.Call) -> None:
        """Add the call of a kernel to the program; skip a call that touches no tensor."""
        word = _word(call)
        if word in SKIPPED:
            return
        name = word.rpartition(".")[2]
        does = self.kernels.get(name)
        if does is None or len(does) != len(call.args):
            raise self.refuse(call, f"{ast.unparse(call)[:60]!r} matches no kernel of this module")
        if not any(writes for _, writes in does):
            raise self.refuse(call, f"no store to a parameter was found in kernel {name[:40]!r}")
        read = [at for at, (reads, _) in enumerate(does) if reads]
        made = [at for at, (_, writes) in enumerate(does) if writes]
        operands = [self.read(call.args[at]) for at in read]
        pairs = tuple((read.index(at), place) for place, at in enumerate(made) if at in read)
        self.growing.builder.op(name, operands, [self.write(call.args[at]) for at in made], in_place=pairs)

    def tensor(self, part: ast.AST) -> str:
        name = part.id if isinstance(part, ast.Name) else ""
        name = self.names.get(name, name)
        if name not in self.made:
            raise self.refuse(part, f"{ast.unparse(part)[:60]!r} is not a known tensor")
        return name

    def read(self, part: ast.AST) -> int:
        name = self.tensor(part)
        return self.now[name] if name in self.now else self.value(name)

    def write(self, part: ast.AST) -> int:
        """Return a new value for a write to a tensor; the first access adds the buffer."""
        name = self.tensor(part)
        if name not in self.now:
            return self.value(name)
        dtype, shape, _ = self.made[name]
        self.now[name] = self.growing.value(name, self.growing.home[self.now[name]], dtype, shape)
        return self.now[name]

    def value(self, name: str, role: Role = Role.TEMPORARY) -> int:
        dtype, shape, slot = self.made[name]
        nbytes = dense_nbytes(shape, int(WIDTHS[dtype_code(name, dtype)]))
        buffer = self.growing.buffer(name, nbytes, slot, alignment=1, role=role)
        self.now[name] = self.growing.value(name, buffer, dtype, shape)
        return self.now[name]

    def annotated(self, parameter: ast.arg) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an annotation like `R.Tensor((32, 64), dtype="float32")`."""
        note = parameter.annotation
        dtype = next((w.value for w in note.keywords if w.arg == "dtype"), None) if isinstance(note, ast.Call) else None
        if not isinstance(note, ast.Call) or _word(note) != "R.Tensor" or not note.args or dtype is None:
            raise self.refuse(parameter, f"parameter {parameter.arg[:40]!r} is not an R.Tensor with shape and dtype")
        return self.text(dtype), self.numbers(note.args[0])

    def text(self, part: ast.AST) -> str:
        """Return the dtype in an expression like `"float32"` or `R.dtype("float32")`."""
        inner = part.args[0] if isinstance(part, ast.Call) and part.args else part
        if not isinstance(inner, ast.Constant) or not isinstance(inner.value, str):
            raise self.refuse(part, f"{ast.unparse(part)[:40]!r} is no dtype")
        return inner.value

    def number(self, part: ast.AST) -> int:
        """Return the only number in an expression like `R.shape([32])` or `R.prim_value(0)`."""
        numbers = self.numbers(part)
        if len(numbers) != 1:
            raise self.refuse(part, f"{ast.unparse(part)[:60]!r} has {len(numbers)} numbers; one is needed")
        return numbers[0]

    def numbers(self, part: ast.AST) -> tuple[int, ...]:
        """Return the integers in `R.shape([32, 64])`, `R.prim_value(0)`, `(32, 64)` or `0`."""
        inner = part.args[0] if isinstance(part, ast.Call) and part.args else part
        try:
            found = ast.literal_eval(inner)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise self.refuse(part, f"{ast.unparse(part)[:60]!r} is a size known only at run time") from None
        numbers = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if any(type(n) is not int or not 0 <= n < 1 << 40 for n in numbers):
            raise self.refuse(part, f"{ast.unparse(part)[:60]!r} is no list of sizes")
        return numbers


__all__ = ["ALIGNMENT", "SKIPPED", "loads", "looks_like"]
