"""Belief and placement together do what ggml does in one pass over its tensors, its undercount included.

`OnePass` is that pass, written from the description of `ggml_gallocr` alone: counters and addresses in one loop, memory as a row of
bits, one bit for each unit of 32 bytes. It shares nothing with `allocsim.allocators`. Graphs are generated as ggml has them: leafs
first, then nodes with one result each; views of roots and of views, in-place results, op-NONE views, INPUT nodes, PARAM nodes in the
arena, external tensors, OUTPUT flags anywhere.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.model import HOST_WRITE, VIEW
from allocsim.programs.builder import ProgramBuilder

UNIT = 32
LISTED = ("add", "RMS_NORM_BACK", "silu", "scale")
UNLISTED = ("mul_mat", "cont", "out_prod")


@dataclass
class Tensor:
    op: str
    units: int
    src: list["Tensor"] = field(default_factory=list)
    root: "Tensor | None" = None
    external: bool = False
    output: bool = False
    input: bool = False
    param: bool = False
    children: int = 0
    views: int = 0
    owned: bool = False
    at: int | None = None


class OnePass:
    """`ggml_gallocr_reserve` for one buffer type without a largest size."""

    def __init__(self, leafs, nodes):
        self.taken, self.used = [], 0
        for leaf in leafs:
            self.place(leaf)
        for node in nodes:
            if node.root and node.op != "NONE":
                node.root.views += 1
            if node.input:
                self.place(node)
            for source in node.src:
                source.children += 1
                if source.input:
                    self.place(source)
        for node in nodes:
            for source in node.src:
                self.place(source)
            self.place(node)
            for source in node.src:
                source.children -= 1
                if source.children == 0 and source.views == 0:
                    self.let_go(source)

    def let_go(self, tensor):
        if tensor.root:
            tensor.root.views -= 1
            if tensor.root.views == 0 and tensor.root.children == 0:
                self.free(tensor.root)
        else:
            self.free(tensor)

    def free(self, tensor):
        if tensor.owned and not tensor.output:
            tensor.owned = False
            self.taken[tensor.at : tensor.at + tensor.units] = [False] * tensor.units

    def place(self, tensor):
        if tensor.external or tensor.owned or tensor.root or tensor.at is not None:
            return
        tensor.owned = True
        if tensor.op in LISTED:
            for source in tensor.src:
                alike = source.units == tensor.units
                if (
                    source.owned
                    and not source.output
                    and alike
                    and source.children == 1
                    and source.views == 0
                    and not source.root
                ):
                    tensor.at, source.owned = source.at, False
                    return
        tensor.at = self.find(tensor.units)
        self.taken += [False] * (tensor.at + tensor.units - len(self.taken))
        self.taken[tensor.at : tensor.at + tensor.units] = [True] * tensor.units
        self.used = max(self.used, tensor.at + tensor.units)

    def find(self, units):
        holes, start = [], None
        for at, taken in enumerate([*self.taken, True]):
            if not taken and start is None:
                start = at
            if taken and start is not None:
                holes.append((start, at))
                start = None
        tail = len(self.taken)
        if holes and holes[-1][1] == len(self.taken):
            tail = holes.pop()[0]
        fitting = [(high - low, -low) for low, high in holes if high - low >= units]
        return -min(fitting)[1] if fitting else tail


@st.composite
def graphs(draw):
    """Return leafs and nodes, and the same as a program with its constraints."""
    leafs = [
        Tensor("NONE", draw(st.integers(1, 3)), external=draw(st.integers(0, 4)) == 0)
        for _ in range(draw(st.integers(1, 4)))
    ]
    nodes, peeks = [], []
    for choice in draw(st.lists(st.integers(0, 11), min_size=1, max_size=14)):
        known = [*leafs, *nodes, *peeks]
        pick = st.sampled_from(known)
        if choice == 0:
            parent = draw(pick)
            node = Tensor("VIEW", parent.units, [parent], root=parent.root or parent)
        elif choice == 1:
            target = draw(pick)
            node = Tensor("add_inplace", target.units, [target, draw(pick)], root=target.root or target)
        elif choice == 2:
            parent = draw(pick)
            peeks.append(Tensor("NONE", parent.units, root=parent.root or parent))
            continue
        elif choice == 3:
            node = Tensor("NONE", draw(st.integers(1, 3)), param=True, input=draw(st.booleans()))
        else:
            src = draw(st.lists(pick, min_size=1, max_size=3))
            kind = draw(st.sampled_from(LISTED * 2 + UNLISTED))
            units = src[-1].units if kind in LISTED else draw(st.integers(1, 4))
            node = Tensor(kind, units, src, input=kind in UNLISTED and draw(st.integers(0, 3)) == 0)
        nodes.append(node)
    for tensor in (*leafs, *nodes):
        tensor.output = not tensor.root and draw(st.integers(0, 7)) == 0
    return leafs, nodes, peeks


def as_program(leafs, nodes, peeks):
    """The document of a graph: roots are buffers, uploads first, values leafs first, peeks after the nodes."""
    builder = ProgramBuilder("g")
    buffers, values = {}, {}
    for tensor in (*leafs, *nodes, *peeks):
        if not tensor.root:
            buffers[id(tensor)] = builder.buffer("", tensor.units * UNIT)
        flags = tensor.input + 4 * tensor.param
        shape = (tensor.units * UNIT,)
        home = buffers[id(tensor.root or tensor)]
        values[id(tensor)] = builder.value("", home, "u8", shape, meta={"flags": flags} if flags else None)
    for tensor in (*leafs, *(node for node in nodes if node.op == "NONE")):
        if not tensor.external:
            builder.op(HOST_WRITE, (), (values[id(tensor)],))
    for node in nodes:
        if node.op != "NONE":
            src = [values[id(source)] for source in node.src]
            builder.op(VIEW if node.op == "VIEW" else node.op, src, (values[id(node)],))
    program = builder.build()
    roots = [tensor for tensor in (*leafs, *nodes) if not tensor.root]
    told = Constraints.of(
        program,
        pins=[buffers[id(tensor)] for tensor in roots if tensor.output],
        own=[buffers[id(tensor)] for tensor in roots if tensor.external],
    )
    return program, told, roots


@given(graph=graphs())
def test_offsets_and_buffer_size_are_those_of_the_one_pass(graph):
    leafs, nodes, _ = graph
    program, told, roots = as_program(*graph)

    made = ALLOCATORS["ggml"].plan(program, told)
    pass_ = OnePass(leafs, nodes)

    for buffer, tensor in enumerate(roots):
        if made.arena[buffer] >= 0:
            assert made.offset[buffer] == tensor.at * UNIT
        else:
            assert tensor.external
    assert made.meta["ggml"]["used"] == [pass_.used * UNIT]


def test_generated_graphs_reuse_and_undercount():
    """A good part of the graphs reuses memory, and some do free a root too early."""
    reused, early = [], []

    @settings(derandomize=True, database=None, max_examples=300)
    @given(graph=graphs())
    def count(graph):
        program, told, _ = as_program(*graph)
        made = ALLOCATORS["ggml"].plan(program, told)
        sizes = [int(n) for n, arena in zip(program.buffers.nbytes, made.arena, strict=True) if arena >= 0]
        reused.append(made.meta["ggml"]["used"][0] < sum(sizes))
        last = {int(program.values.buffer[v]): op.step for op in program.ops if op.kind != VIEW for v in op.operands}
        early.append(any(made.problem.stop[b] <= step for b, step in last.items() if not told.own[b]))

    count()

    assert sum(reused) >= len(reused) / 5
    assert sum(early) >= 1
