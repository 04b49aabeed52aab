"""Read the rows of a ggml dump: a graph that `ggml_gallocr` planned, with the addresses of its
tensors.

A dump is one JSON object with the keys `leafs`, `nodes` and `meta`. The section "The dump" of
docs/ggml.md lists their fields. In the file, a reference to a tensor is the number of a node or
`"L9"` for leaf 9. In this module all tensors share one numbering, leafs first.

This module does not interpret the graph; `allocsim.systems.ggml.dump_document` does.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from allocsim.errors import DocumentError
from allocsim.model.layout import LIMIT

Bytes = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
Four = tuple[Bytes, Bytes, Bytes, Bytes]
Reference = int | str

ROOTS_KEPT: Final = ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE")
"""Ops that only make a view, and neither read nor write bytes."""

NONE: Final = "NONE"

INPUT: Final = 1
OUTPUT: Final = 2
"""The flags INPUT and OUTPUT: the host writes an INPUT tensor and reads an OUTPUT tensor."""

COMPUTE: Final = 16
"""The flag COMPUTE of a node that ggml computes. Older versions of ggml lack COMPUTE."""

COMPUTE_USAGE: Final = 2
"""The value of `GGML_BACKEND_BUFFER_USAGE_COMPUTE`, the usage that gallocr sets on its buffers."""

SPLIT_COPY: Final = "SPLIT_COPY"
"""The op of a row that is a scheduler's copy of a tensor to another backend."""

NOT_COMPUTED: Final = "graphs not computed"
"""Name of the part of a record for graphs passed to a scheduler that computed another graph."""

AT_ONCE: Final = "what backends do at once"
"""Name of the part of a record that has one stream for each backend."""


class HostTold(msgspec.Struct, frozen=True):
    """The facts about the host in a record: `meta.ggml.host`, described in `record_document`."""

    uploads: int = 0
    reads: int = 0
    assumed: tuple[str, ...] = ()
    of: str = ""
    computes: tuple[int, ...] = ()
    taken: tuple[dict[str, str], ...] = ()
    unseen: tuple[str, ...] = ()


def host_told(meta: Mapping[str, Any]) -> HostTold | None:
    """Return the host's facts in a document's meta, or None if they are missing or malformed."""
    about = meta.get("ggml")
    try:
        return msgspec.convert(about.get("host"), HostTold) if isinstance(about, dict) else None
    except msgspec.ValidationError:
        return None


GRAPH: Final = "graph"
"""Key of `meta.ggml` for the dumped rows; the key is present if a row has `op_params`."""


class DumpedTensor(msgspec.Struct, kw_only=True, frozen=True):
    """One leaf or node of a dump; docs/ggml.md describes the fields."""

    op: str
    name: str
    type: str
    ne: Four
    nb: Four
    nbytes: Bytes
    off: Bytes | None = None
    buffer: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)] = 0
    external: bool = False
    flags: Bytes = 0
    view_src: Reference | None = None
    view_offs: Bytes = 0
    src: tuple[Reference | None, ...] = ()


class ComputeBuffer(msgspec.Struct, kw_only=True, frozen=True):
    """One of several compute buffers: its name, and its size and alignment in bytes."""

    name: str
    size: Bytes
    alignment: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] = 32


class Meta(msgspec.Struct, kw_only=True, frozen=True):
    """The fields of `meta` that the reader uses. Other fields are copied to the document unread."""

    version: str = ""
    alignment: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] = 32
    inplace_ops: tuple[str, ...] | None = None
    buffer_size: Bytes | None = None
    buffers: tuple[ComputeBuffer, ...] = ()
    reads: tuple[tuple[Reference, Bytes, Bytes], ...] = ()
    """The host's reads after the run, besides tensors flagged OUTPUT. Each read is (root, first
    byte, byte behind the last).
    """
    runs_again: bool = False
    """Whether further runs follow, which need the bytes that this graph writes into leafs."""
    reads_flagged: bool = True
    """Whether the host reads the tensors flagged OUTPUT."""
    reads_wait: bool = True
    """Whether the host waits for the end of the run before it reads."""


class Dump(msgspec.Struct, kw_only=True, frozen=True):
    """The whole dump file."""

    leafs: tuple[DumpedTensor, ...]
    nodes: tuple[DumpedTensor, ...]
    meta: Meta = Meta()


class DumpedGraph:
    """A dump with resolved and checked references. All tensors have one numbering, leafs first."""

    def __init__(self, dump: Dump, source: str) -> None:
        self.dump, self.source, self.leafs = dump, source, len(dump.leafs)
        self.tensors = (*dump.leafs, *dump.nodes)
        self.slots = [[slot for slot, source in enumerate(tensor.src) if source is not None] for tensor in self.tensors]
        """For each tensor, its source slots that are not empty."""
        self.root = [self._root(index, tensor) for index, tensor in enumerate(self.tensors)]
        """For each tensor, the tensor that owns its memory: itself, or the root of a view."""
        self.src = [self._sources(index, tensor) for index, tensor in enumerate(self.tensors)]
        """For each tensor, the sources that the planner counts, in slot order."""
        for index, tensor in enumerate(self.tensors):
            self._check_memory(index, tensor)

    def place(self, index: int) -> str:
        """Return the place of tensor `index` in the file: `nodes[17]`."""
        return f"leafs[{index}]" if index < self.leafs else f"nodes[{index - self.leafs}]"

    def is_view(self, index: int) -> bool:
        """Return whether the tensor is in the memory of another tensor."""
        return self.root[index] != index

    def refuse(self, index: int, column: str, rule: str) -> DocumentError:
        """Return an error that names a field of a tensor and the rule that the field breaks."""
        return DocumentError(self.source, f"{self.place(index)}.{column}", rule)

    def _sources(self, index: int, tensor: DumpedTensor) -> list[int]:
        found = []
        for slot, reference in enumerate(tensor.src):
            if reference is None:
                continue
            source = self._resolve(index, f"src[{slot}]", reference)
            if source >= self.leafs and source >= index and not self._copied_early(index, tensor, source):
                raise self.refuse(index, f"src[{slot}]", f"node {reference} does not come before this tensor")
            found.append(source)
        return found

    def left_out(self) -> frozenset[int]:
        """Return the nodes that ggml leaves out: nodes without the flag COMPUTE, except NONE nodes
        and copies of the scheduler. Older versions of ggml do not have this flag and run all nodes,
        so if no node has it, no node is left out.
        """
        kernels = [n for n in range(self.leafs, len(self.tensors)) if self.tensors[n].op not in (NONE, SPLIT_COPY)]
        idle = frozenset(n for n in kernels if not self.tensors[n].flags & COMPUTE)
        return idle if len(idle) < len(kernels) else frozenset()

    def reads(self) -> Iterator[tuple[int, int, int]]:
        """Yield each read of `meta.reads`: (root, first byte, byte behind the last). Raises
        DocumentError if a read names no root, or no byte range of its root.
        """
        for place, (reference, start, stop) in enumerate(self.dump.meta.reads):
            root = self._resolve(0, f"meta.reads[{place}]", reference)
            if self.is_view(root) or not start < stop <= self.tensors[root].nbytes:
                raise DocumentError(
                    self.source, f"meta.reads[{place}]", "names no root tensor, or no byte range of the root"
                )
            yield root, start, stop

    def _copied_early(self, index: int, tensor: DumpedTensor, source: int) -> bool:
        """Return whether a scheduler copies a view before the node that makes the view. Such a copy
        is legal, because making a view moves no byte: the root's bytes are there already.
        """
        return tensor.op == SPLIT_COPY and self.tensors[source].op in ROOTS_KEPT and self.root[source] < index

    def _root(self, index: int, tensor: DumpedTensor) -> int:
        if tensor.view_src is None:
            return index
        root = self._resolve(index, "view_src", tensor.view_src)
        if self.tensors[root].view_src is not None:
            raise self.refuse(index, "view_src", f"{tensor.view_src!r} is a view itself; the root is needed")
        if index >= self.leafs and root >= index:
            raise self.refuse(index, "view_src", f"node {tensor.view_src} does not come before this tensor")
        return root

    def _resolve(self, index: int, column: str, reference: Reference) -> int:
        leaf = re.fullmatch(r"L(\d{1,9})", reference) if isinstance(reference, str) else None
        number = int(leaf[1]) if leaf else reference
        count = self.leafs if leaf else len(self.tensors) - self.leafs
        if not isinstance(number, int) or not 0 <= number < count:
            what = "leaf" if leaf else "node"
            raise self.refuse(index, column, f"{reference!r} is no tensor; there are {count} {what}s")
        return number if leaf else self.leafs + number

    def _check_memory(self, index: int, tensor: DumpedTensor) -> None:
        count = max(len(self.dump.meta.buffers), 1)
        if tensor.buffer >= count:
            raise self.refuse(index, "buffer", f"compute buffer {tensor.buffer} does not exist; there are {count}")
        if tensor.op == SPLIT_COPY and (len(self.src[index]) != 1 or self.root[index] != index):
            raise self.refuse(index, "src", "a scheduler's copy has one source and is no view")
        root = self.tensors[self.root[index]]
        if tensor is root or tensor.off is None or root.off is None:
            return
        if tensor.buffer != root.buffer:
            raise self.refuse(index, "buffer", f"{tensor.buffer} is not the buffer of its root, {root.buffer}")
        if tensor.off != root.off + tensor.view_offs:
            expected = f"{root.off} + {tensor.view_offs}"
            raise self.refuse(index, "off", f"{tensor.off} is not the offset of its root plus view_offs, {expected}")


def parse(data: bytes, source: str) -> tuple[DumpedGraph, dict[str, Any]]:
    """Return the graph of a dump and its `meta`; if a row has `op_params`, the rows are in `meta`
    too, as `graph`. Raises DocumentError, with place and rule, if the data is no dump.
    """
    try:
        dump = msgspec.json.decode(data, type=Dump)
        raw = msgspec.json.decode(data)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `$")
        raise DocumentError(source, path.strip(".`"), rule[:1].lower() + rule[1:]) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(source, "", f"is not JSON: {error}") from None
    except RecursionError:
        raise DocumentError(source, "", "is nested too deeply") from None
    executable = any("op_params" in row for row in raw["nodes"])
    graph = {GRAPH: {"leafs": raw["leafs"], "nodes": raw["nodes"]}} if executable else {}
    return DumpedGraph(dump, source), {**raw.get("meta", {}), **graph}
