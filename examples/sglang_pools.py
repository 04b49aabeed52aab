"""SGLang's pools of token slots on a CPU, as an online allocator: a program of its own, for the
interpreter that has SGLang.

    allocsim fuzz --online "cmd:SGLANG_PYTHON examples/sglang_pools.py paged"

The classes are SGLang's own (`sglang.srt.mem_cache.allocator`); this program speaks the lines of
`cmd:` (docs/online.md). A page of the pool is `PAGE` bytes here. Slot 0, or the page of it, is
SGLang's for dummy tokens and is never given out, so page n of an answer is page n + 1 of the pool.

| kind | what is driven |
|---|---|
| `token` | `TokenToKVPoolAllocator`: alloc and free of single slots |
| `paged` | `PagedTokenToKVPoolAllocator.alloc`, whole pages |
| `window` | `SWATokenToKVPoolAllocator` of single slots, for layers with a sliding window: what lies behind the window goes back by `free_swa`, the whole sequence by `free` |
| `extend` | its `alloc_extend` and `alloc_decode`, for one sequence after the other: the last page in part |

Of `window` the pages are slots of the window's pool. Part of an answer that is given back has slid
out of the window; its slots for layers that see everything stay until the rest is given back, and
are looked at here: one that is given out while somebody has it is an error. There are as many of
these as pages. The cache that the slots lie in is a stand-in, which no slot reaches.

With `sorted` behind the kind, freed pages wait until they are merged and sorted.

What this program does not see: the scheduler, the radix cache, and kernels.
"""

import sys
from typing import Any

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

PAGE, TOKENS = 64, 4


class Pool:
    """One pool, in pages of a caller."""

    def __init__(self, kind: str, words: set[str], capacity: int) -> None:
        self.kind = kind
        self.tokens = 1 if kind == "token" else TOKENS
        pages, sort = capacity // PAGE, "sorted" in words
        common = {"dtype": torch.float16, "device": "cpu", "need_sort": sort}
        size = pages * self.tokens
        if kind == "token":
            self.pool = TokenToKVPoolAllocator(size=size, kvcache=None, **common)
        else:
            self.pool = PagedTokenToKVPoolAllocator(size=size, page_size=self.tokens, kvcache=None, **common)
        self.slots: dict[int, Any] = {}
        """Slots of each page that is out, as the pool gave them."""

    def alloc(self, nbytes: int) -> list[int] | None:
        """Return pages for so many bytes, None where there is no room."""
        pages = -(-nbytes // PAGE)
        found = self._extended(nbytes) if self.kind == "extend" else self.pool.alloc(pages * self.tokens)
        if found is None:
            return None
        parts = list(found.split(self.tokens))
        numbers = [int(part[0]) // self.tokens - 1 for part in parts]
        for part, number in zip(parts, numbers, strict=True):
            if part.tolist() != [(number + 1) * self.tokens + at for at in range(len(part))]:
                raise ValueError(f"slots {part.tolist()} are no page")
        self.slots.update(zip(numbers, parts, strict=True))
        return numbers

    def _extended(self, nbytes: int) -> Any:
        """Return the slots of a sequence of so many tokens: all but the last by one call, the last
        by another, as prefill and decode ask.
        """
        count = max(-(-nbytes * TOKENS // PAGE), 1)
        begun = self.pool.available_size()
        if -(-count // TOKENS) * TOKENS > begun:
            return None
        long = torch.tensor([count - 1])
        none, last = torch.tensor([0]), torch.tensor([-1])
        first = self.pool.alloc_extend(none, none, long, long, last, count - 1)
        if first is None:
            return None
        whole = torch.tensor([count])
        more = self.pool.alloc_decode(whole, whole, first[-1:] if count > 1 else last)
        return torch.cat((first, more))

    def free(self, pages: list[int]) -> None:
        """Give pages back: an answer of alloc, or some pages of one."""
        self.pool.free(torch.cat([self.slots.pop(page) for page in pages]))


class NoCache(BaseSWAKVPool):
    """What the pool of a window asks of its cache, without one."""

    def __init__(self) -> None:
        self.mapping = None

    def register_mapping(self, full_to_swa_index_mapping: Any) -> None:
        """Take the table from slots to slots of the window."""
        self.mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices: Any) -> Any:
        """Return slots of the window."""
        return self.mapping[kv_indices]


NoCache.__abstractmethods__ = frozenset()  # what reads and writes keys and values is not asked


class Window:
    """A pool for layers with a sliding window, in slots of the window."""

    def __init__(self, words: set[str], capacity: int) -> None:
        size, self.cache = capacity // PAGE, NoCache()
        self.pool = SWATokenToKVPoolAllocator(
            size=size, size_swa=size, page_size=1, dtype=torch.float16, device="cpu", kvcache=self.cache,
            need_sort="sorted" in words,
        )  # fmt: skip
        self.sequences: dict[int, tuple[dict[int, int], list[int]]] = {}
        """By page, the sequence that has it: its slots by page, and those whose pages have gone."""
        self.full: set[int] = set()
        """Slots that are out, for layers that see everything."""

    def alloc(self, nbytes: int) -> list[int] | None:
        """Return pages for so many bytes, None where there is no room."""
        found = self.pool.alloc(-(-nbytes // PAGE))
        if found is None:
            return None
        pages = [int(slot) - 1 for slot in self.cache.translate_loc_from_full_to_swa(found)]
        slots = found.tolist()
        if self.full & set(slots) or len(set(slots)) < len(slots):
            raise ValueError(f"slots {slots} of the whole pool: some are out already")
        self.full.update(slots)
        sequence = dict(zip(pages, slots, strict=True)), list[int]()
        self.sequences.update(dict.fromkeys(pages, sequence))
        return pages

    def free(self, pages: list[int]) -> None:
        """Give pages back: those of a sequence that are left, or some, which have slid out."""
        held, gone = self.sequences[pages[0]]
        slots = torch.tensor([held.pop(page) for page in pages])
        for page in pages:
            del self.sequences[page]
        if held:
            self.pool.free_swa(slots)
            gone.extend(slots.tolist())
            return
        self.pool.free(slots)
        self.pool.free_full(torch.tensor(gone, dtype=torch.int64))
        self.full.difference_update(slots.tolist(), gone)


def main() -> None:
    """Answer each line of standard input."""
    kind, *words = sys.argv[1:]
    pool: Pool | Window | None = None
    for line in sys.stdin:
        word, *rest = line.split()
        answer = "ok"
        if word == "open":
            capacity = int(rest[0])
            pool = Window(set(words), capacity) if kind == "window" else Pool(kind, set(words), capacity)
            answer = f"ok page={PAGE}"
        elif word == "alloc":
            found = pool.alloc(int(rest[0]))
            answer = "none" if found is None else ",".join(map(str, found))
        elif word == "free":
            pool.free([int(page) for page in rest[0].split(",")])
        print(answer, flush=True)  # noqa: T201 - an answer


if __name__ == "__main__":
    main()
