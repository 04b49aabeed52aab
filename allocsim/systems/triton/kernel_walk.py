"""Walks through a kernel: follows its control flow with concrete numbers, and records its accesses
to shared memory.

    walk = KernelWalk(function, BlockThreads(), LaunchGuess(256), "kernel.ttgir")
    walk.run()

A `LaunchGuess` gives the numbers that are known only at a launch. All integer arguments are equal,
and the program is number 0 of 3. Branches on loaded values alternately go to their first and second
target. All other numbers are computed, so each walk is a path that a launch may take. Warp groups
of a specialised kernel run in turns. Each runs until it waits for a phase of an mbarrier that has
not ended.

`acts` has a function for each supported op (`memory_ops`). Any other op that uses shared memory
raises DocumentError with its line and name. Accesses that the IR does not state are counted in
`unexamined`, with the reason.

What this module does not see: the bytes in global memory, predicates that are tensors (a masked
copy is recorded as a write of all elements), and other thread blocks.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from allocsim.errors import DocumentError
from allocsim.systems.triton.block_threads import Actor, BlockThreads
from allocsim.systems.triton.scalar_arithmetic import computed
from allocsim.systems.triton.shared_views import SharedView
from allocsim.systems.triton.ttgir_text import IrBlock, IrFunction, IrOp, IrRegion

Known = int | SharedView | None
"""The value of a name: a number, a view, or None if the value is unknown."""

MOST_OPS: Final = 200_000
"""The most ops of a walk, including ops without accesses."""
MOST_EVENTS: Final = 6_000
"""The most ops that one walk adds to the document."""

ARROW: Final = re.compile(r" -> (.*)$")
PREDICATED: Final = re.compile(r"%[\w$.-]+(?:#\d+)?(?:\[.*?\])?")


class EndlessError(Exception):
    """Raised if a walk exceeds `MOST_OPS` or `MOST_EVENTS`."""


@dataclass(frozen=True, slots=True)
class LaunchGuess:
    """Assumed values for the numbers that are known only at a launch."""

    size: int
    """The value of every integer argument."""
    first: bool = True
    """Whether the first branch on a loaded value goes to its first target."""


@dataclass(slots=True, eq=False)
class Frame:
    """A region that an actor runs, and the known values of the names in the region."""

    actor: Actor
    names: dict[str, Known]
    region: IrRegion


Act = Callable[["KernelWalk", Frame, IrOp], None]
"""A function that applies the effect of an op to names and threads."""


@dataclass(slots=True, eq=False)
class KernelWalk:
    """One walk through a kernel."""

    function: IrFunction
    threads: BlockThreads
    guess: LaunchGuess
    source: str
    acts: Mapping[str, Act]
    """Name of an op -> its effect. Other ops with an allocation have the effect `scratch`."""
    steps: dict[int, list[IrOp]]
    """Line of a block -> the ops of the block that have an effect; shared between walks."""
    beside: Actor = field(default_factory=lambda: Actor("another block", 4))
    """Another block of the cluster: it runs the same ops and joins the cluster barriers."""
    not_made: set[SharedView] = field(default_factory=set)
    """Views of sums that were not written because the predicate of the product was false."""
    left: int = MOST_OPS
    branches: int = 0
    turns: Counter[int] = field(default_factory=Counter)
    """Line of a block -> the number of times that the block was entered."""
    unexamined: Counter[str] = field(default_factory=Counter)
    path: list[int] = field(default_factory=list)
    """The lines of the entered blocks, in order."""

    def refuse(self, op: IrOp, rule: str) -> DocumentError:
        """Return an error that names an op and the rule that the op breaks."""
        return DocumentError(self.source, f"line {op.line}", f"{op.name} {rule}")

    def unended(self, op: IrOp) -> DocumentError:
        """Return an error about a wait for a phase that no op of this block ends."""
        others = "of this block ends; other blocks of the cluster may end it, but are not examined"
        return self.refuse(op, f"waits for a phase that no op {others if self.in_cluster else 'ends'}")

    @property
    def in_cluster(self) -> bool:
        """Whether the block is in a cluster; blocks of a cluster access each other's memory."""
        return int(self.function.attributes.get("ttg.num-ctas") or 1) > 1

    @property
    def mbarriers_between_blocks(self) -> bool:
        """Whether the kernel has an op that may signal other blocks."""
        ops = (op for block in self.function.body.blocks for op in block.ops)
        return any(op.regions or op.name.startswith(ARRIVALS) for op in ops)

    def run(self) -> None:
        """Run the kernel to its end."""
        block = Actor("block", int(self.function.attributes.get("ttg.num-warps") or 4))
        if self.in_cluster:
            self.unexamined["accesses of other blocks of the cluster to the memory of this block"] += 1
        signature = dict(re.findall(r"(%[\w$.-]+): ([^\s,){]+)", self.function.signature))
        names: dict[str, Known] = {
            name: self.guess.size if re.fullmatch(r"i\d+|index", signature.get(name, "")) else None
            for name in self.function.body.arguments
        }
        for op in self.region(Frame(block, names, self.function.body)):
            raise self.unended(op)
        self.threads.end(block)

    def region(self, frame: Frame) -> Iterator[IrOp]:
        """Run a region; yield the waiting op each time that its actor waits for another actor."""
        block = frame.region.blocks[0]
        while True:
            self.turns[block.line] += 1
            self.path.append(block.line)
            target: tuple[str, list[str]] | None = None
            for op in self.steps.get(block.line) or self.steps.setdefault(block.line, self.stepped(block)):
                self.left -= 1
                if self.left < 0 or len(self.threads.earlier) > MOST_EVENTS:
                    raise EndlessError
                if op.name in BRANCHES:
                    target = self.branch(frame, op)
                elif op.name == "ttng.wait_barrier":
                    yield from self.waiting(frame, op)
                elif op.name == "ttg.warp_specialize":
                    self.specialized(frame, op)
                else:
                    self.execute(frame, op)
            if target is None:
                return
            following = frame.region.block(target[0])
            if following is None or len(following.arguments) != len(target[1]):
                raise self.refuse(
                    block.ops[-1],
                    f"branches to ^{target[0]}: this block is missing or takes another number of arguments",
                )
            given = [frame.names.get(name) for name in target[1]]
            frame.names.update(zip(following.arguments, given, strict=True))
            block = following

    def branch(self, frame: Frame, op: IrOp) -> tuple[str, list[str]] | None:
        """Return the label and the arguments of the next block; None at the end of a region."""
        targets = op.targets
        if op.name == "cf.br" and targets:
            return targets[0]
        if op.name != "cf.cond_br":
            return None
        if len(targets) != 2:
            raise self.refuse(op, "does not have two targets")
        condition = frame.names.get(op.operands[0])
        if not isinstance(condition, int):
            self.branches += 1
            condition = (self.branches & 1) == self.guess.first
        return targets[0] if condition else targets[1]

    def stepped(self, block: IrBlock) -> list[IrOp]:
        """Return the ops of a block, except ops that only use registers."""
        return [op for op in block.ops if op.name in self.acts or not REGISTERS.match(op.name) or not on_registers(op)]

    def execute(self, frame: Frame, op: IrOp) -> None:
        """Apply the effect of an op on numbers, views and memory."""
        act = self.acts.get(op.name)
        if act is not None:
            act(self, frame, op)
        elif op.name.startswith("arith."):
            self.arithmetic(frame, op)
        elif "allocation.offset" in op.text:
            self.acts["scratch"](self, frame, op)
        elif any(isinstance(frame.names.get(name), SharedView) for name in op.operands):
            raise self.refuse(op, "uses shared memory, but the bytes that it accesses are unknown")
        elif op.name.startswith("scf."):
            raise self.refuse(op, "is structured control flow: pass the text after lowering to branches")

    def arithmetic(self, frame: Frame, op: IrOp) -> None:
        """Compute the result of an arithmetic op; `arith.select` may also select a view."""
        if op.name == "arith.constant":
            found = re.match(r" (?:(-?\d{1,19}) : |(true|false)$)", op.text)
            frame.names[op.results[0]] = None if found is None else int(found[1] or found[2] == "true")
            return
        given = [frame.names.get(name) for name in op.operands]
        if op.name == "arith.select" and any(isinstance(one, SharedView) for one in given[1:]):
            frame.names[op.results[0]] = given[1] if given[0] else given[2]
        elif "tensor<" not in op.text:
            numbers = [one if isinstance(one, int) else None for one in given]
            frame.names[op.results[0]] = computed(op.name, numbers, op.text)

    def views(self, frame: Frame, op: IrOp) -> list[SharedView]:
        """Return the views among the operands, in order."""
        return [known for known in map(frame.names.get, op.operands) if isinstance(known, SharedView)]

    def the_view(self, frame: Frame, op: IrOp, place: int = 0) -> SharedView:
        """Return the view number `place` of an op's views; raise DocumentError if it is missing."""
        found = self.views(frame, op)
        if place >= len(found):
            raise self.refuse(op, "has an operand that is not known to be shared memory")
        return found[place]

    def made_view(self, op: IrOp, home: int) -> SharedView | None:
        """Return the view of the whole result of an op, or None if its type is not supported."""
        found = ARROW.search(op.text)
        return None if found is None else SharedView.of(found[1], self.function.aliases, home)

    def happens(self, frame: Frame, name: str) -> bool:
        """Return whether a predicate is true; an unknown predicate counts as true."""
        return frame.names.get(name) != 0

    def waiting(self, frame: Frame, op: IrOp) -> Iterator[IrOp]:
        """Run a wait for a phase of an mbarrier; yield while the phase has not ended."""
        view, parity = self.the_view(frame, op), frame.names.get(op.operands[1])
        before = op.text.partition(" deps ")[0]
        if len(PREDICATED.findall(before.partition(" : ")[0])) > 2 and not self.happens(frame, op.operands[2]):
            return
        if not isinstance(parity, int):
            raise self.refuse(op, "waits for a phase that depends on a value known only at launch")
        phase = self.threads.phase_of(frame.actor, view, parity)
        if phase is None:
            raise self.refuse(op, "waits for an mbarrier that is not initialised")
        while not self.threads.has_ended(view, phase):
            yield op
        self.threads.wait_phase(frame.actor, told(op), view, phase)

    def specialized(self, frame: Frame, op: IrOp) -> None:
        """Run the warp groups of a specialised region in turns, between barriers of all groups."""
        threads, block = self.threads, frame.actor
        view = self.scratch_view(op)
        if view is not None:
            threads.op(block, f"captures, line {op.line}", (), (view,))
        threads.barrier(block, told(op))
        default, *others = op.regions
        frames = [Frame(Actor("default", block.warps), dict(frame.names), default)]
        for number, region in enumerate(others):
            given = [frame.names.get(name) for name in op.operands]
            if len(region.arguments) != len(given):
                raise self.refuse(op, f"passes {len(given)} values to a region that takes {len(region.arguments)}")
            names = dict(zip(region.arguments, given, strict=True))
            frames.append(Frame(Actor(f"partition{number}", region.warps or 4), names, region))
        groups = [one.actor for one in frames]
        for one in groups:
            one.base = list(block.base)
            if view is not None and one is not groups[0]:
                threads.op(one, f"captures, line {op.line}", (view,))
        threads.barrier(block, told(op), groups)
        running = {one.actor.name: self.region(one) for one in frames}
        while running:
            stuck: list[IrOp] = []
            before = len(threads.earlier)
            for name, rest in list(running.items()):
                waits = next(rest, None)
                if waits is None:
                    del running[name]
                else:
                    stuck.append(waits)
            if len(stuck) == len(running) and stuck and before == len(threads.earlier):
                raise self.unended(stuck[0])
        threads.barrier(block, told(op), groups)
        for step in (one for part in default.blocks for one in part.ops if one.name == "ttg.warp_yield"):
            frame.names.update(zip(op.results, map(frames[0].names.get, step.operands), strict=False))

    def scratch_view(self, op: IrOp) -> SharedView | None:
        """Allocate the scratch bytes of an op; return their view, or None without scratch."""
        offset, size = op.number("allocation.offset"), op.number("allocation.size")
        if offset is None or size is None:
            if "allocation." in op.text and size != 0:
                raise self.refuse(op, "has an allocation without an offset or without a size")
            return None
        home = self.threads.allocate(f"scratch of {told(op)}", size, 0, offset)
        return SharedView(home=home, offset=0, shape=(size,), strides=(1,), bits=8, kind="i8")


REGISTERS: Final = re.compile(r"(?:tt|math|arith)\.(?!call|return)")
"""Ops of the dialects `tt`, `math` and `arith` use registers only, unless their text names memory.
"""


def on_registers(op: IrOp) -> bool:
    """Return whether an op of a dialect in `REGISTERS` computes no scalar and names no memory."""
    named = "memdesc" in op.text or "allocation." in op.text
    return not named and ("tensor<" in op.text or not op.name.startswith("arith."))


ARRIVALS: Final = ("ttng.arrive", "ttng.tc_gen5", "ttng.async_copy_mbarrier", "ttng.async_shared_store", "ttng.clc")

BRANCHES: Final = frozenset({"cf.br", "cf.cond_br", "tt.return", "ttg.warp_yield", "ttg.warp_return"})


def told(op: IrOp) -> str:
    """Return the label of an op: its name and line."""
    return f"{op.name}, line {op.line}"


__all__ = ["Act", "EndlessError", "Frame", "KernelWalk", "LaunchGuess", "told"]
