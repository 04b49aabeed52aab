"""Functions for the effect of each op of Triton's dialects on shared and tensor memory. `OPS` maps
the name of an op to its function.

    act = OPS["ttg.local_store"]
    act(walk, frame, op)

Each function finds the views among the op's operands, at any position in the text. It adds the
reads, writes, starts, waits and arrivals of the op to `BlockThreads`.

The lowering inserts three kinds of barriers that the text does not have. Each is a barrier of all
threads of an actor. (1) A barrier comes before one thread arrives on an mbarrier, expects bytes, or
starts or commits products that an mbarrier counts. (2) A barrier is inside
`tensormap_fenceproxy_acquire`. (3) With several warp groups, a barrier comes after each
`warp_group_dot_wait` that is not `warpGroupLocal`. Source: the PTX of triton 3.9. Before
triton#11056 the `warp_group_dot_wait` was always local.

Only one block of a cluster (`num-ctas`) is examined. Any block may start a multicast copy, so the
copy may happen at any time after the last cluster barrier. A block that reuses bytes without a
cluster barrier therefore races with the copy (triton#11328, #11411). The order that mbarriers
ensure between blocks is not examined.

What this module does not see: masks, proxies, and a copy's effect in other blocks of a cluster.
"""

import re
from typing import Final

from allocsim.systems.triton.kernel_walk import Act, Frame, KernelWalk, told
from allocsim.systems.triton.shared_views import COLUMN, SharedView
from allocsim.systems.triton.ttgir_text import IrOp

PROGRAMS: Final = 3
"""The assumed number of programs of a launch."""
STARTS: Final = re.compile(r"\[([-\d, ]*)\]")
ORDER: Final = re.compile(r"order = array<i32: ([\d, ]+)>")
LISTED: Final = re.compile(r"(%[\w$.-]+(?:#\d+)?)(?:\[[^\]]*\])?")
TENSOR: Final = re.compile(r"tensor<.*>")


def scratch(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add the use of an op's scratch bytes: a write, a barrier and a read."""
    if op.name == "tt.call":
        raise walk.refuse(op, "calls a function that was not inlined")
    view = walk.scratch_view(op)
    if view is None:
        return
    one_warp = op.name == "ttng.tensormap_create"
    walk.threads.op(frame.actor, told(op), (), (view,), issuer="warp 0" if one_warp else "")
    if not one_warp:
        walk.threads.barrier(frame.actor, f"inside of {told(op)}")
    walk.threads.op(frame.actor, f"result of {told(op)}", (view,), issuer="warp 0" if one_warp else "")


def allocate(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add an allocation, and a store into it if the op has an initial value."""
    in_tensor_memory = op.name == "ttng.tmem_alloc"
    offset = op.number("tensor_memory_col_offset" if in_tensor_memory else "allocation.offset")
    if offset is None:
        raise walk.refuse(op, "has no offset: pass the text after shared memory is allocated")
    whole = walk.made_view(op, len(walk.threads.homes))
    if whole is None:
        raise walk.refuse(op, "has a type of unknown size")
    offset *= COLUMN if in_tensor_memory else 1
    if in_tensor_memory and (not whole.columns or op.number("tensor_memory_row_offset")):
        walk.unexamined["tensor memory that is not in blocks of 128 rows"] += 1
        frame.names[op.results[0]] = None
        return
    walk.threads.allocate(f"{op.results[0]}, line {op.line}", whole.nbytes, int(in_tensor_memory), offset)
    frame.names[op.results[0]] = whole
    if not op.operands:
        return
    if in_tensor_memory:
        tensor_memory(walk, frame, op, (), (whole,))
    else:
        walk.threads.store(frame.actor, told(op), whole, tensor_type(op))


def tensor_type(op: IrOp) -> str:
    """Return the type of a load's result or of a store's operand."""
    found = TENSOR.findall(op.text.partition(" : ")[2] if " : " in op.text else op.text)
    text = found[0] if found else ""
    sides = [side for side in re.split(r" -> |\) -> ", text) if side.startswith(("tensor<", "(tensor<"))]
    return re.sub(r"^\(|\)$", "", sides[0] if sides else text)


def view_of(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Define the result of an op as a part of a view, or as the whole view in another shape."""
    source = frame.names.get(op.operands[0])
    if not isinstance(source, SharedView):
        frame.names[op.results[0]] = None
        return
    view: SharedView | None = None
    if op.name == "ttg.memdesc_index":
        index = frame.names.get(op.operands[1])
        if not isinstance(index, int):
            walk.unexamined[
                "the buffer of a ring that an op accesses, if known only at launch: all count as accessed"
            ] += 1
            view = source
        else:
            view = source.indexed(index)
    elif op.name in {"ttg.memdesc_subslice", "ttng.tmem_subslice"}:
        view = part_of(source, op, op.text.partition(" : ")[0], walk.made_view(op, source.home))
    elif op.name == "ttg.memdesc_trans":
        found = ORDER.search(op.text)
        view = source.permuted([int(axis) for axis in found[1].split(",")]) if found else None
    else:
        view = source.told(walk.made_view(op, source.home))
    if view is None:
        raise walk.refuse(op, "takes a part that is not inside its source")
    frame.names[op.results[0]] = view


def part_of(source: SharedView, op: IrOp, text: str, made: SharedView | None) -> SharedView | None:
    """Return a slice of a view at constant starts, or None if it is not inside the view."""
    starts = STARTS.search(text)
    if made is None:
        return None
    if op.name == "ttng.tmem_subslice":
        column = op.number("N") or 0
        return source.sliced([*[0] * (len(made.shape) - 1), column], made.shape)
    return source.sliced([int(start) for start in starts[1].split(",")], made.shape) if starts else None


def load(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a read of shared memory into registers."""
    walk.threads.load(frame.actor, told(op), walk.the_view(frame, op), tensor_type(op))


def store(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a write of registers to shared memory."""
    walk.threads.store(frame.actor, told(op), walk.the_view(frame, op), tensor_type(op))


def scatter(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a scatter as a read and a write of all elements, because its indices are unknown."""
    view = walk.the_view(frame, op)
    walk.unexamined["the elements that a scatter writes, known only at launch: all count as written"] += 1
    walk.threads.op(frame.actor, told(op), (view,), (view,))


def barrier(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a barrier, if the op orders accesses to shared memory."""
    if op.name != "ttg.barrier" or re.search(r"\b(local|all)\b", op.text):
        if op.name == "ttng.cluster_barrier" and "relaxed" in op.text:
            return  # a relaxed barrier orders the blocks, but no memory accesses
        walk.threads.barrier(frame.actor, told(op))
        if op.name == "ttng.cluster_barrier":
            walk.beside.base = list(frame.actor.base)


def copy(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Start a copy from global to shared memory; each thread waits only for its own part."""
    walk.threads.start(frame.actor, "copy", told(op), (), (walk.the_view(frame, op),))


def commit(walk: KernelWalk, frame: Frame, _: IrOp) -> None:
    """Put the copies that were started since the last group into a new group."""
    walk.threads.commit(frame.actor, "copy")


def wait_copies(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Wait until at most `num` groups of copies are still running."""
    if op.number("num") is None:
        raise walk.refuse(op, "has no `num`, the number of groups of copies that may be pending")
    walk.threads.wait(frame.actor, "copy", op.number("num") or 0, told(op), ordering=False)


def store_tma(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Start a copy from shared to global memory."""
    walk.threads.start(frame.actor, "store", told(op), (walk.the_view(frame, op),), ())
    walk.threads.commit(frame.actor, "store")


def wait_stores(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Wait until at most `pendings` copies to global memory are still running."""
    walk.threads.wait(frame.actor, "store", op.number("pendings") or 0, told(op), ordering=False)


def load_tma(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Start a copy from global to shared memory; an mbarrier counts the copied bytes."""
    found = walk.views(frame, op)
    mbarriers = [view for view in found if view.is_barrier]
    parts = [view for view in found if not view.is_barrier]
    if not mbarriers or not parts:
        raise walk.refuse(op, "has an operand that is not known to be shared memory")
    if not walk.happens(frame, op.operands[-1]):
        return
    if "multicast" not in op.text:
        number = walk.threads.op(frame.actor, told(op), mbarriers, parts, engine=True)
    elif walk.mbarriers_between_blocks:
        walk.unexamined["the time at which a block may copy to other blocks, if mbarriers order the copy"] += 1
        number = walk.threads.op(frame.actor, told(op), mbarriers, parts, engine=True)
    else:
        number = walk.threads.op(walk.beside, f"{told(op)}, by another block", (), parts, engine=True)
    arrive(walk, op, mbarriers[0], [number], nbytes=-sum(part.nbytes for part in parts))


def arrive(walk: KernelWalk, op: IrOp, view: SharedView, by: list[int], *, count: int = 0, nbytes: int = 0) -> None:
    """Count arrivals and bytes on an mbarrier; raise DocumentError if it is not initialised."""
    if not walk.threads.arrive(view, count, nbytes, by):
        raise walk.refuse(op, "uses an mbarrier that is not initialised")


def init(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Initialise an mbarrier."""
    found = re.search(r", (\d{1,9})\b", op.text)
    walk.threads.init(frame.actor, told(op), walk.the_view(frame, op), int(found[1]) if found else 1)


def inval(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Invalidate an mbarrier."""
    walk.threads.inval(frame.actor, told(op), walk.the_view(frame, op))


def signal(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a barrier; then one thread arrives or expects bytes. A false predicate skips both."""
    view, found = walk.the_view(frame, op), re.search(r", (\d{1,12})\b", op.text)
    if len(op.operands) > 1 and not walk.happens(frame, op.operands[-1]):
        return
    if "perThread" not in op.text and frame.actor.warps > 1:
        walk.threads.barrier(frame.actor, f"before {told(op)}")
    number = walk.threads.op(frame.actor, told(op), (view,), issuer="thread 0")
    if op.name == "ttng.barrier_expect":
        arrive(walk, op, view, [number], count=1, nbytes=int(found[1]) if found else 0)
    else:
        arrive(walk, op, view, [number], count=int(found[1]) if found else 1)


def arrive_copies(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Arrive on an mbarrier when all copies that were started so far have ended."""
    actor, view = frame.actor, walk.the_view(frame, op)
    under_way = [step for group in [*actor.groups["copy"], actor.started["copy"]] for step in group]
    number = walk.threads.op(actor, told(op), (view,), after=under_way, engine=True)
    arrive(walk, op, view, [number], count=int("noIncrement" in op.text))


def dot(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Start a product of matrices in shared memory on the tensor cores of a warp group."""
    walk.threads.start(frame.actor, "dot", told(op), walk.views(frame, op), ())
    walk.threads.commit(frame.actor, "dot")
    if "isAsync = true" not in op.text:
        walk.threads.wait(frame.actor, "dot", 0, f"end of {told(op)}", ordering=frame.actor.warps <= 4)


def wait_dots(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Wait until at most `pendings` products are still running; the op returns its operands."""
    for result, operand in zip(op.results, op.operands, strict=False):
        frame.names[result] = frame.names.get(operand)
    actor = frame.actor
    walk.threads.wait(actor, "dot", op.number("pendings") or 0, told(op), ordering=actor.warps <= 4)
    if actor.warps > 4 and "warpGroupLocal" not in op.text:
        walk.threads.barrier(actor, f"end of {told(op)}")


def tensor_memory(
    walk: KernelWalk, frame: Frame, op: IrOp, reads: tuple[SharedView, ...], writes: tuple[SharedView, ...]
) -> None:
    """Add an access to tensor memory. Each warp accesses only its rows, in program order."""
    if frame.actor.warps > 4:
        walk.unexamined["the order of tensor memory accesses between warps of several warp groups"] += 1
    walk.threads.op(frame.actor, told(op), reads, writes, issuer="rows of tensor memory")


def tensor_load(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a read of tensor memory; skip sums that a false predicate left unwritten and unused."""
    absent = walk.not_made - walk.threads.written
    tensor_memory(walk, frame, op, tuple(view for view in walk.views(frame, op) if view not in absent), ())


def tensor_store(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a write of tensor memory."""
    tensor_memory(walk, frame, op, (), tuple(walk.views(frame, op)))


def mma(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Start a product into tensor memory; the products of an actor run in program order."""
    found = walk.views(frame, op)
    scaled = op.name == "ttng.tc_gen5_mma_scaled"
    listed = [frame.names.get(name) for name in LISTED.findall(op.text.partition(" {")[0].partition(" : ")[0])]
    flags = listed[5 if scaled else 3 :]
    actor, label = frame.actor, told(op)
    parts = [view for view in found if not view.is_barrier]
    if len(parts) < len(found):
        walk.threads.barrier(actor, f"before {label}")
    if flags[1:2] == [0]:
        walk.not_made.update(view for view in parts if view.in_tensor_memory and view is listed[2])
        return
    sum_ = listed[2] if len(listed) > 2 else None
    target = [sum_] if isinstance(sum_, SharedView) else []
    reads = [view for view in parts if view not in target] + [view for view in found if view.is_barrier]
    reads += target if flags[:1] != [0] else []
    number = walk.threads.op(actor, label, reads, target, after=actor.pending_mma[-1:], engine=True)
    actor.pending_mma.append(number)
    for view in found:
        if view.is_barrier:
            arrive(walk, op, view, list(actor.pending_mma), count=1)
    if "is_async" not in op.text and not any(view.is_barrier for view in found):
        actor.base.append(walk.threads.op(actor, f"wait of {label}", after=[number]))


def commit_mma(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Arrive on an mbarrier when all products of this actor have ended."""
    actor, view = frame.actor, walk.the_view(frame, op)
    walk.threads.barrier(actor, f"before {told(op)}")
    number = walk.threads.op(actor, told(op), (view,), after=actor.pending_mma[-1:], engine=True)
    arrive(walk, op, view, [number], count=1)


def gather(walk: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Add a read in which each thread may read elements that another thread wrote."""
    walk.threads.op(frame.actor, told(op), (walk.the_view(frame, op),))


def program_number(_: KernelWalk, frame: Frame, op: IrOp) -> None:
    """Define the result as this program's number 0, or as the number of programs `PROGRAMS`."""
    frame.names[op.results[0]] = 0 if op.name == "tt.get_program_id" else PROGRAMS


def pass_over(_: KernelWalk, __: Frame, ___: IrOp) -> None:
    """Do nothing."""


OPS: Final[dict[str, Act]] = {
    "scratch": scratch,
    "tt.get_program_id": program_number, "tt.get_num_programs": program_number,
    "ttg.local_alloc": allocate, "ttng.tmem_alloc": allocate, "ttg.local_dealloc": pass_over,
    "ttg.memdesc_index": view_of, "ttg.memdesc_subslice": view_of, "ttg.memdesc_trans": view_of,
    "ttg.memdesc_reshape": view_of, "ttg.memdesc_reinterpret": view_of, "ttng.tmem_subslice": view_of,
    "ttg.local_load": load, "ttg.local_gather": gather, "ttg.local_store": store, "ttg.local_scatter": scatter,
    "ttg.barrier": barrier, "ttng.cluster_barrier": barrier, "ttng.tensormap_fenceproxy_acquire": barrier, "ttg.local_barrier": barrier, "gpu.barrier": barrier, "rocdl.barrier": barrier,
    "nvvm.barrier0": barrier, "amdgpu.lds_barrier": barrier, "amdg.lds_barrier": barrier,
    "ttg.async_copy_global_to_local": copy, "amdg.buffer_load_to_local": copy, "ttg.async_commit_group": commit,
    "ttg.async_wait": wait_copies, "amdg.async_wait": wait_copies,
    "ttng.async_tma_copy_local_to_global": store_tma, "ttng.async_tma_reduce": store_tma,
    "ttng.async_tma_scatter": store_tma, "ttng.async_tma_store_wait": wait_stores,
    "ttng.async_tma_copy_global_to_local": load_tma, "ttng.async_tma_gather": load_tma,
    "ttng.init_barrier": init, "ttng.inval_barrier": inval, "ttng.barrier_expect": signal,
    "ttng.arrive_barrier": signal, "ttng.async_copy_mbarrier_arrive": arrive_copies,
    "ttng.warp_group_dot": dot, "ttng.warp_group_dot_wait": wait_dots,
    "ttng.tmem_load": tensor_load, "ttng.tmem_store": tensor_store,
    "ttng.tc_gen5_mma": mma, "ttng.tc_gen5_mma_scaled": mma, "ttng.tc_gen5_commit": commit_mma,
    "ttng.fence_async_shared": pass_over, "ttng.fence_mbarrier_init_release_cluster": pass_over,
}  # fmt: skip
"""Name of an op -> the function that applies its effect."""

__all__ = ["OPS"]
