"""Online allocators for the tests of `allocsim.online`: sound ones, and each of their planted faults.

`SOUND` and `BROKEN` are by name; `BROKEN` also says which promise its fault breaks. A class takes
`fault`, the name of one, and differs from its sound form at that place alone.
"""

import mmap
import os
import signal
import struct
import threading
from collections import defaultdict
from functools import partial
from typing import ClassVar

BIG = 1 << 62


def up(number, step):
    return -(-number // step) * step


class FirstFit:
    """Free stretches by address, joined with their neighbours; blocks can grow."""

    FAULTS: ClassVar = {
        "no_alignment": "aligned", "half_aligned": "aligned", "one_short": "disjoint", "end_beyond": "inside",
        "ignores_capacity": "inside", "no_join": "returned", "loses_head": "returned", "forgets_small": "returned",
        "frees_too_much": "disjoint", "frees_neighbour": "disjoint", "none_is_zero": "disjoint", "text": "answers",
        "raises_when_full": "answers", "float_answer": "answers", "rounds_down": "disjoint", "grows_in_place": "disjoint",
        "grow_copies_nothing": "kept", "grow_copies_short": "kept", "grow_copies_after_all": "kept", "grow_frees_twice": "disjoint",
        "grow_leaks": "returned", "shrink_frees_head": "disjoint", "grow_refused_frees": "disjoint", "third_free_lost": "returned",
        "big_wraps": "disjoint", "after_refusal_resets": "disjoint", "alternates": "deterministic", "half_used": "waste",
    }  # fmt: skip
    runs = 0

    def __init__(self, capacity, alignment, device, fault=""):
        self.end, self.fault, self.device = BIG if capacity is None else capacity, fault, device
        self.free_list = [(0, self.end + (64 if fault == "end_beyond" else 0))]
        self.sizes, self.frees = {}, 0
        if fault == "ignores_capacity":
            self.free_list = [(0, BIG)]
        if fault == "alternates":
            FirstFit.runs += 1

    def alloc(self, nbytes, alignment, stream, tag):
        fault = self.fault
        step = 1 if fault == "no_alignment" else alignment
        size = nbytes // 64 * 64 if fault == "rounds_down" and nbytes > 64 else nbytes
        size = nbytes & 0x3FFF or nbytes if fault == "big_wraps" else size
        size = nbytes * 4 if fault == "half_used" else size
        size -= fault == "one_short" and nbytes > 1
        stretches = list(self.free_list)
        if fault == "alternates" and FirstFit.runs % 2:
            stretches.reverse()
        for stretch in stretches:
            low = up(stretch[0], max(step // 2, 1) if fault == "half_aligned" else step)
            if fault == "alternates" and stretch[1] < BIG and FirstFit.runs % 2:
                low = (stretch[1] - size) // step * step
            if stretch[0] <= low and low + size <= stretch[1]:
                self.free_list.remove(stretch)
                self.free_list += [part for part in ((stretch[0], low), (low + size, stretch[1])) if part[0] < part[1]]
                if fault == "loses_head" and (stretch[0], low) in self.free_list:
                    self.free_list.remove((stretch[0], low))
                self.free_list.sort()
                self.sizes[low] = size
                if fault == "text":
                    return str(low) if len(self.sizes) > 3 else low
                return low / 1 if fault == "float_answer" and nbytes > 4096 else low
        if fault == "raises_when_full":
            raise MemoryError("full")
        if fault == "after_refusal_resets":
            self.free_list = [(0, self.end)]
        return 0 if fault == "none_is_zero" and self.sizes else None

    def free(self, address, stream):
        size = self.sizes.pop(address, 0)
        self.frees += 1
        if self.fault == "third_free_lost" and self.frees % 3 == 0:
            return
        if self.fault == "forgets_small" and size < 32:
            return
        if self.fault == "frees_neighbour" and address + size in self.sizes:
            size += self.sizes[address + size]
        self._give(address, size + (self.fault == "frees_too_much" and address + size < self.end))

    def _give(self, low, size):
        if not size:
            return
        stretches = sorted([*self.free_list, (low, low + size)])
        if self.fault == "no_join":
            self.free_list = stretches
            return
        joined = [stretches[0]]
        for start, stop in stretches[1:]:
            if start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(stop, joined[-1][1])
            else:
                joined.append((start, stop))
        self.free_list = joined

    def realloc(self, address, nbytes):
        size, fault = self.sizes[address], self.fault
        if nbytes <= size:
            self.sizes[address] = nbytes
            if fault == "shrink_frees_head" and nbytes < size:
                self._give(address, size - nbytes)
            else:
                self._give(address + nbytes, size - nbytes)
            return address
        if fault == "grows_in_place":
            self.sizes[address] = nbytes
            return address
        new = self.alloc(nbytes, 4096, 0, "")
        if new is None:
            if fault == "grow_refused_frees":
                self.free(address, 0)
            return None
        copied = {"grow_copies_nothing": 0, "grow_copies_short": max(size - 8, 0)}.get(fault, size)
        if fault == "grow_copies_after_all":
            self.device.copy(address + 1, new, copied)
        elif copied:
            self.device.copy(address, new, copied)
        if fault != "grow_leaks":
            self.free(address, 0)
        if fault == "grow_frees_twice" and address + size in self.sizes:
            self._give(address, size + 1)
        return new


class Reserving(FirstFit):
    """Says whether the next block has room."""

    FAULTS: ClassVar = {"counts_all_that_is_free": "reserved", "always_yes": "reserved", "says_how_many": "answers"}
    realloc = None

    def __init__(self, capacity, alignment, device, fault=""):
        super().__init__(capacity, alignment, device)
        self.reserve_fault, self.step = fault, alignment

    def reserve(self, nbytes, stream):
        free = [stop - up(start, self.step) for start, stop in self.free_list]
        if self.reserve_fault == "counts_all_that_is_free":
            return sum(free) >= nbytes
        if self.reserve_fault == "says_how_many":
            return max(free, default=0)
        return self.reserve_fault == "always_yes" or max(free, default=0) >= nbytes


class Classes:
    """A list of free blocks for each power of two, cut from a rising end; memory stays in its class."""

    FAULTS: ClassVar = {
        "wrong_class": "disjoint", "end_lags": "disjoint", "free_to_smaller": "returned", "free_to_larger": "disjoint",
        "pops_and_keeps": "disjoint", "no_room_check": "inside", "class_by_bits": "disjoint", "one_class_lost": "returned",
    }  # fmt: skip
    keeps = True

    def __init__(self, capacity, alignment, device, fault=""):
        self.end, self.fault = BIG if capacity is None else capacity, fault
        self.top, self.unused, self.classes = 0, defaultdict(list), {}

    def alloc(self, nbytes, alignment, stream, tag):
        size = 1 << max(nbytes - 1, 0).bit_length()
        if self.fault == "class_by_bits":
            size = 1 << max(nbytes.bit_length() - 1, 0)
        if self.fault == "wrong_class" and size > 4096:
            size //= 2
        size = max(size, alignment)
        if self.unused[size]:
            address = self.unused[size][-1] if self.fault == "pops_and_keeps" else self.unused[size].pop()
            if address % alignment == 0:
                self.classes[address] = size
                return address
            self.unused[size].append(address)
        low = up(self.top, size)
        if low + size > self.end and self.fault != "no_room_check":
            return None
        self.top = low + (size // 2 if self.fault == "end_lags" and size > 1 else size)
        self.classes[low] = size
        return low

    def free(self, address, stream):
        size = self.classes.pop(address, 1)
        if self.fault == "one_class_lost" and size == 256:
            return
        size = size // 2 if self.fault == "free_to_smaller" and size > 1 else size
        self.unused[size * 2 if self.fault == "free_to_larger" else size].append(address)


class Arena:
    """A rising end that goes back when nothing is out."""

    FAULTS: ClassVar = {
        "resets_early": "disjoint",
        "never_resets": "returned",
        "resets_to_last": "disjoint",
        "counts_down_twice": "disjoint",
    }
    keeps = False

    def __init__(self, capacity, alignment, device, fault=""):
        self.end, self.fault = BIG if capacity is None else capacity, fault
        self.top = self.out = 0

    def alloc(self, nbytes, alignment, stream, tag):
        low = up(self.top, alignment)
        if low + nbytes > self.end:
            return None
        self.top, self.out = low + nbytes, self.out + 1
        return low

    def free(self, address, stream):
        self.out -= 2 if self.fault == "counts_down_twice" and self.out > 2 else 1
        if self.fault == "resets_to_last":
            self.top = address
        if self.out <= (1 if self.fault == "resets_early" else 0) and self.fault != "never_resets":
            self.top = 0


class Streams(FirstFit):
    """A pool for each stream over one range; other streams that were recorded are waited for by marks."""

    FAULTS: ClassVar = {
        "one_pool": "ordered", "ignores_recorded": "ordered", "one_recorded": "ordered", "mark_too_early": "ordered",
        "never_asks": "ordered", "asks_own_stream": "ordered", "passed_any": "ordered", "never_returns": "returned",
        "frees_to_user": "returned", "steals_when_full": "ordered",
    }  # fmt: skip
    realloc = None
    keeps = True

    def __init__(self, capacity, alignment, device, fault=""):
        super().__init__(capacity, alignment, device)
        self.stream_fault = fault
        self.owner, self.pools, self.recorded, self.pending = {}, defaultdict(list), defaultdict(list), []
        self.early = {}

    def alloc(self, nbytes, alignment, stream, tag):
        self._collect()
        pool = 0 if self.stream_fault == "one_pool" else stream
        pools = [pool]
        found = self._from(pools, nbytes, alignment)
        if found is None:
            found = super().alloc(nbytes, alignment, stream, tag)
        if found is None and self.stream_fault == "steals_when_full":
            found = self._from(list(self.pools), nbytes, alignment)
        if found is not None:
            self.owner[found] = pool
            if self.stream_fault == "mark_too_early":
                self.early[found] = [self.device.record(other) for other in range(self.device.streams)]
        return found

    def _from(self, pools, nbytes, alignment):
        for pool in pools:
            for address in self.pools[pool]:
                if self.sizes[address] >= nbytes and address % alignment == 0:
                    self.pools[pool].remove(address)
                    return address
        return None

    def record_stream(self, address, stream):
        if self.stream_fault == "one_recorded" and self.recorded[address]:
            return
        if self.stream_fault != "ignores_recorded":
            self.recorded[address].append(stream)

    def free(self, address, stream):
        others = self.recorded.pop(address, [])
        if self.stream_fault == "frees_to_user" and others:
            self.owner[address] = others[0]
        if self.stream_fault == "asks_own_stream":
            others = [stream for _ in others]
        marks = [self.device.record(other) for other in others]
        if self.stream_fault == "mark_too_early" and marks:
            marks = self.early.get(address, marks)
        if self.stream_fault == "never_asks":
            marks = []
        self.pending.append((address, marks))

    def _collect(self):
        waiting, self.pending = self.pending, []
        for address, marks in waiting:
            passed = [self.device.passed(mark) for mark in marks]
            if self.stream_fault == "never_returns" and marks:
                continue
            if (any(passed) or not marks) if self.stream_fault == "passed_any" else all(passed):
                self.pools[self.owner[address]].append(address)
            else:
                self.pending.append((address, marks))


class Waits(FirstFit):
    """One pool for all streams; who gets memory waits for who had it."""

    FAULTS: ClassVar = {"no_wait": "ordered", "waits_wrong_way": "ordered", "waits_for_owner_only": "ordered", "waits_once": "ordered",
              "waits_in_place_of_user": "ordered"}  # fmt: skip
    realloc = None
    streams = True

    def __init__(self, capacity, alignment, device, fault=""):
        super().__init__(capacity, alignment, device)
        self.wait_fault, self.used_on, self.waited = fault, defaultdict(set), False
        self.marks = []

    def alloc(self, nbytes, alignment, stream, tag):
        address = super().alloc(nbytes, alignment, stream, tag)
        if address is None:
            return None
        self.used_on[address].add(stream)
        for mark, low, high in self.marks:
            if low < address + nbytes and address < high and not (self.wait_fault == "waits_once" and self.waited):
                self.waited = True
                if self.wait_fault not in {"no_wait", "waits_wrong_way", "waits_in_place_of_user"}:
                    self.device.wait(mark, stream)
                if self.wait_fault == "waits_in_place_of_user":
                    self.device.wait(mark, (stream + 1) % self.device.streams)
                if self.wait_fault == "waits_wrong_way":
                    self.device.wait(self.device.record(stream), 0)
        return address

    def free(self, address, stream):
        size = self.sizes[address]
        streams = {0} if self.wait_fault == "waits_for_owner_only" else set(range(self.device.streams))
        self.marks += [(self.device.record(other), address, address + size) for other in sorted(streams)]
        super().free(address, stream)


class Pages:
    """Pages with holders, copy on write, and steps in flight."""

    FAULTS: ClassVar = {
        "shares_without_count": "disjoint", "frees_at_first_holder": "disjoint", "never_frees_shared": "returned",
        "count_off": "counts", "count_of_last": "counts", "writes_shared": "copied", "copy_without_bytes": "kept", "copy_leaks_old": "returned",
        "copy_frees_old": "disjoint", "one_page_short": "answers", "one_page_more": "answers", "same_page_twice": "disjoint",
        "partial_stays": "returned", "frees_whole_for_part": "disjoint", "beyond_last": "inside", "refusal_keeps": "returned",
        "frees_in_flight": "ordered", "ends_all": "ordered", "ends_next": "ordered", "in_flight_forgets_shared": "ordered",
        "never_ends": "returned", "flight_first_page_only": "ordered", "pages_as_address": "answers", "reserves_zero": "returned",
    }  # fmt: skip
    page = 64

    def __init__(self, capacity, alignment, device, fault="", lifo=False):
        self.fault, self.lifo, self.device = fault, lifo, device
        count = capacity // self.page + (fault == "beyond_last")
        self.unused, self.holders = list(range(count)), {}
        self.flying, self.waiting = {}, []

    def alloc(self, nbytes, alignment, stream, tag):
        pages = up(nbytes, self.page) // self.page
        asked = pages
        pages -= self.fault == "one_page_short" and pages > 3
        pages += self.fault == "one_page_more" and nbytes % self.page == 0 and len(self.unused) > pages
        if pages > len(self.unused):
            if self.fault == "refusal_keeps" and self.unused:
                self.unused.pop()
            return None
        found = [self.unused.pop() if self.lifo else self.unused.pop(0) for _ in range(pages)]
        for number in found:
            self.holders[number] = 1
        if self.fault == "same_page_twice" and asked > 2:
            found[-1] = found[0]
        if self.fault == "reserves_zero" and 0 in found and asked > 1:
            self.holders[0] += 1
        return found[0] if self.fault == "pages_as_address" and pages == 1 else found

    def share(self, pages):
        for number in pages:
            self.holders[number] += self.fault != "shares_without_count"

    def free(self, pages, stream):
        if self.fault == "partial_stays" and len(pages) > 1:
            pages = pages[:-1]
        for number in pages:
            if number not in self.holders:
                continue
            self.holders[number] -= 1
            shared = self.holders[number] > 0
            if shared and self.fault == "never_frees_shared":
                self.holders[number] += 10
            if not shared or self.fault == "frees_at_first_holder":
                if self.fault == "frees_whole_for_part" and number + 1 in self.holders:
                    self._drop(number + 1)
                self._drop(number)

    def _drop(self, number):
        self.holders.pop(number, None)
        if self.fault != "frees_in_flight" and any(number in pages for pages in self.flying.values()):
            self.waiting.append(number)
        elif number not in self.unused:
            self.unused.append(number)

    def write(self, pages):
        (old,) = pages
        if self.holders[old] == 1 or self.fault == "writes_shared":
            return pages
        if not self.unused:
            return None
        new = self.unused.pop(0)
        self.holders[new] = 1
        if self.fault != "copy_without_bytes":
            self.device.copy(old * self.page, new * self.page, self.page)
        if self.fault == "copy_frees_old":
            self.holders.pop(old)
            self.unused.append(old)
        elif self.fault != "copy_leaks_old":
            self.holders[old] -= 1
        return [new]

    def count(self, pages):
        found = self.holders[pages[0]]
        if self.fault == "count_of_last":
            return min(found, 2)
        return found - 1 if self.fault == "count_off" and found > 1 else found

    def begin(self, step, pages):
        self.flying[step] = pages[:1] if self.fault == "flight_first_page_only" else list(pages)
        if self.fault == "in_flight_forgets_shared":
            self.flying[step] = [number for number in pages if self.holders[number] == 1]

    def end(self, step):
        if self.fault == "never_ends":
            return
        self.flying.pop(step, None)
        if self.fault == "ends_all":
            self.flying.clear()
        if self.fault == "ends_next":
            self.flying.pop(step + 1, None)
        for number in [page for page in self.waiting if not any(page in pages for pages in self.flying.values())]:
            self.waiting.remove(number)
            self.unused.append(number)


class Guarded(FirstFit):
    """Blocks with room before and behind that nobody is given."""

    realloc = None
    keeps = True

    def alloc(self, nbytes, alignment, stream, tag):
        low = super().alloc(nbytes + 2 * alignment, alignment, stream, tag)
        return None if low is None else low + self._pad(low, alignment)

    def _pad(self, low, alignment):
        self.pads = getattr(self, "pads", {})
        self.pads[low + alignment] = low
        return alignment

    def free(self, address, stream):
        super().free(self.pads.pop(address), stream)


class Patient(FirstFit):
    """Lets every stream end before memory goes back."""

    realloc = None
    streams = True

    def free(self, address, stream):
        for other in range(self.device.streams):
            self.device.synchronize(other)
        super().free(address, stream)


class Forked(FirstFit):
    """Goes on in a forked child with its own copy."""

    FAULTS: ClassVar = {
        "begins_anew": "forked", "raises_in_child": "forked", "ends_child": "forked", "hangs_in_child": "forked",
        "one_book_for_both": "disjoint",
    }  # fmt: skip
    realloc = None
    forks = True

    def __init__(self, capacity, alignment, device, fault=""):
        super().__init__(capacity, alignment, device)
        self.fork_fault, self.process = fault, os.getpid()
        self.book = mmap.mmap(-1, 16) if fault == "one_book_for_both" else None  # shared with every child

    def alloc(self, nbytes, alignment, stream, tag):
        if self.book is not None:
            top, out = struct.unpack("<qq", self.book[:])
            low = up(top, alignment)
            if low + nbytes > self.end:
                return None
            self.book[:] = struct.pack("<qq", low + nbytes, out + 1)
            return low
        if os.getpid() != self.process:
            if self.fork_fault == "begins_anew":
                self.free_list, self.process = [(0, self.end)], os.getpid()
            if self.fork_fault == "raises_in_child":
                raise RuntimeError("this pool is another process's")
            if self.fork_fault == "ends_child":
                os._exit(3)
            if self.fork_fault == "hangs_in_child":
                signal.pause()
        return super().alloc(nbytes, alignment, stream, tag)

    def free(self, address, stream):
        if self.book is None:
            super().free(address, stream)
            return
        top, out = struct.unpack("<qq", self.book[:])
        self.book[:] = struct.pack("<qq", top if out > 1 else 0, max(out - 1, 0))


class Threaded(FirstFit):
    """Any thread may call it."""

    FAULTS: ClassVar = {
        "list_for_each": "disjoint", "lost_elsewhere": "returned", "raises_elsewhere": "answers", "only_for_who_freed": "returned",
    }  # fmt: skip
    realloc = None
    threads = True

    def __init__(self, capacity, alignment, device, fault=""):
        super().__init__(capacity, alignment, device)
        self.thread_fault, self.own, self.owner = fault, threading.local(), {}

    def alloc(self, nbytes, alignment, stream, tag):
        if self.thread_fault == "list_for_each":
            whole, self.free_list = self.free_list, getattr(self.own, "free_list", [(0, self.end)])
            found = super().alloc(nbytes, alignment, stream, tag)
            self.own.free_list, self.free_list = self.free_list, whole
            return found
        kept = getattr(self.own, "kept", [])
        for low in kept:
            if self.sizes[low] >= nbytes and low % alignment == 0:
                kept.remove(low)
                return low
        found = super().alloc(nbytes, alignment, stream, tag)
        self.owner[found] = threading.get_ident()
        return found

    def free(self, address, stream):
        elsewhere = self.owner.get(address) != threading.get_ident()
        if self.thread_fault == "raises_elsewhere" and elsewhere:
            raise RuntimeError("freed on another thread")
        if self.thread_fault == "lost_elsewhere" and elsewhere:
            return
        if self.thread_fault == "only_for_who_freed" and elsewhere:
            self.own.kept = [*getattr(self.own, "kept", []), address]
            return
        if self.thread_fault != "list_for_each":
            super().free(address, stream)


FAMILIES = {
    "first_fit": FirstFit,
    "reserving": Reserving,
    "classes": Classes,
    "arena": Arena,
    "streams": Streams,
    "waits": Waits,
    "pages": Pages,
    "forked": Forked,
    "threaded": Threaded,
}

SOUND = {**FAMILIES, "stack_of_pages": partial(Pages, lifo=True), "guarded": Guarded, "patient": Patient}

BROKEN = {
    f"{name}.{fault}": (partial(family, fault=fault), promise)
    for name, family in FAMILIES.items()
    for fault, promise in family.FAULTS.items()
}

BROKEN_STEP = BROKEN["classes.pops_and_keeps"][0]
"""One that a training step shows wrong, by a name that a command can be given."""
