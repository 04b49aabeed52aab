"""Parses the text of Triton's GPU dialect (TTGIR) line by line.

    kernels = functions(text, "kernel.ttgir")
    kernels[0].blocks[0].ops[3]      # IrOp(line=21, name="ttg.local_alloc", results=("%41",), ...)

The parser reads functions, blocks with arguments, ops with results and regions, and the attributes
of the module. The operands of an op are in the order of the text. Types stay text. An op's `text`
is the text after its name, without source locations.

What this module does not see: the effects of ops (`kernel_walk`).
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from allocsim.allowances import charge
from allocsim.errors import DocumentError

NAME: Final = r"%[\w$.-]+(?:#\d+)?"
OPERANDS: Final = re.compile(NAME)
LOCATION: Final = re.compile(r"\bloc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
DEFINED: Final = re.compile(r"((?:%[\w$.-]+(?::\d+)?(?:, )?)+) = (.*)")
MADE: Final = re.compile(r"(%[\w$.-]+)(?::(\d{1,4}))?")
CALLED: Final = re.compile(r'"?([a-z_]\w*(?:\.\w+)+)"?(.*)', re.DOTALL)
BLOCK: Final = re.compile(r"\^(\w+)(?:\((.*)\))?:")
ARGUMENT: Final = re.compile(r"(%[\w$.-]+): ")
FUNCTION: Final = re.compile(r"\s*tt\.func .*?@([\w.$-]+)\((.*)\)")
PARTITION: Final = re.compile(r"(?:default|partition\d+\((.*?)\)(?: num_warps\((\d+)\))?) \{$")
SUCCESSOR: Final = re.compile(r"\^(\w+)(?:\(([^:()]*) : (?:[^()]|\([^()]*\))*\))?")
ATTRIBUTE: Final = re.compile(r'"?(ttg?n?g?\.[\w-]+)"? = (?:"([^"]*)"|(\d+))')
MOST_DEEP: Final = 20
"""The largest depth of nested regions."""


@dataclass(eq=False)
class IrOp:
    """An op as written in the text."""

    line: int
    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    regions: list["IrRegion"] = field(default_factory=list)

    def number(self, attribute: str) -> int | None:
        """Return the integer value of an attribute, or None if the op has no such attribute."""
        found = re.search(rf"\b{re.escape(attribute)} = (-?\d{{1,18}})\b", self.text)
        return None if found is None else int(found[1])

    @cached_property
    def targets(self) -> list[tuple[str, list[str]]]:
        """(label, arguments) of each block that a branch names."""
        return [(label, OPERANDS.findall(given or "")) for label, given in SUCCESSOR.findall(self.text)]


@dataclass(slots=True, eq=False)
class IrBlock:
    """A block: ops in order, of which the last branches or returns."""

    label: str
    line: int
    arguments: list[str]
    ops: list[IrOp] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class IrRegion:
    """A region: a list of blocks. Control enters at the first block."""

    arguments: list[str]
    warps: int | None
    """The number of warps that run the region; None if the text does not state it."""
    blocks: list[IrBlock] = field(default_factory=list)

    def block(self, label: str) -> IrBlock | None:
        """Return a block by its label."""
        return next((block for block in self.blocks if block.label == label), None)


@dataclass(slots=True, eq=False)
class IrFunction:
    """A function of a module."""

    name: str
    line: int
    signature: str
    attributes: dict[str, str]
    """Attributes of the module, such as `ttg.num-warps`, `ttg.shared`, `ttg.target`."""
    aliases: dict[str, str]
    """Name of a layout, such as `#shared` -> the text of the layout."""
    body: IrRegion


def functions(text: str, source: str) -> list[IrFunction]:
    """Return the functions of the last module in a text.

    Raises DocumentError, which names the line and the rule. O(size).
    """
    reader = _Reader(text, source)
    aliases: dict[str, str] = {}
    attributes: dict[str, str] = {}
    found: list[IrFunction] = []
    for line, row in reader.rows:
        reader.line = line
        if row.startswith("#"):
            name, _, layout = row.partition(" = ")
            aliases[name] = layout
        elif row.startswith("module"):
            attributes = {name: word or number for name, word, number in ATTRIBUTE.findall(row)}
            found.clear()  # a dump has a module for each pass; the last module has the plan
        elif (named := FUNCTION.match(row)) and row.endswith("{"):
            region = IrRegion(ARGUMENT.findall(named[2]), None)
            reader.region(region, 0)
            found.append(IrFunction(named[1], line, named[2], dict(attributes), dict(aliases), region))
    return found


def _row(line: str) -> str:
    """Return a line without its source location."""
    return (LOCATION.sub("", line) if "loc(" in line else line).strip()


class _Reader:
    """Reads the lines of a text; `line` is the number of the current line."""

    def __init__(self, text: str, source: str) -> None:
        lines = text.splitlines()
        self.source, self.line = source, len(lines)
        self.rows = ((number, _row(line)) for number, line in enumerate(lines, 1))

    def refuse(self, rule: str) -> DocumentError:
        return DocumentError(self.source, f"line {self.line}", rule)

    def region(self, region: IrRegion, depth: int) -> str:
        """Read blocks up to the closing brace of the region; return the text after the brace."""
        if depth > MOST_DEEP:
            raise self.refuse(f"regions are nested more than {MOST_DEEP} deep")
        block = IrBlock("", self.line, region.arguments)
        region.blocks.append(block)
        for line, row in self.rows:
            self.line = line
            if row.startswith("}"):
                return row[1:]
            if found := PARTITION.match(row):
                if not block.ops:
                    raise self.refuse("a region begins here, but no op comes before it")
                part = IrRegion(ARGUMENT.findall(found[1] or ""), int(found[2]) if found[2] else None)
                block.ops[-1].regions.append(part)
                self.region(part, depth + 1)
            elif found := BLOCK.match(row):
                block = IrBlock(found[1], self.line, ARGUMENT.findall(found[2] or ""))
                region.blocks.append(block)
            elif row and not row.startswith("//"):
                block.ops.append(self._op(row, depth))
        raise self.refuse("the text ends inside a region")

    def _op(self, row: str, depth: int) -> IrOp:
        charge("op")
        found = DEFINED.match(row)
        names, body = (found[1], found[2]) if found else ("", row)
        called = CALLED.match(body)
        if called is None:
            raise self.refuse(f"{row[:60]!r} is not an op")
        results = [
            name if not count else f"{name}#{place}"
            for name, count in MADE.findall(names)
            for place in range(int(count or 1))
        ]
        charge("operand", len(results))
        op = IrOp(self.line, called[1], tuple(results), tuple(OPERANDS.findall(called[2])), called[2])
        ends = called[2]
        while ends.endswith("{"):
            region = IrRegion([], None)
            op.regions.append(region)
            ends = self.region(region, depth + 1)
            op.text += ends
        return op


__all__ = ["IrBlock", "IrFunction", "IrOp", "IrRegion", "functions"]
