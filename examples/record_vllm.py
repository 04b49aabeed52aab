"""vLLM's KVCacheManager and BlockPool, driven on a CPU and recorded: a program of its own, for the
interpreter that has vLLM.

    VLLM_PYTHON examples/record_vllm.py --seed 3 --steps 40 > events.jsonl
    allocsim trace events.jsonl

The classes are vLLM's own: `KVCacheManager`, its managers of one type, `BlockPool`, `Request`. The
pool's `get_new_blocks`, `free_blocks` and `touch` are wrapped, and what they do becomes events. The
scheduler is this program: requests arrive, share prefixes, are preempted, draft tokens that are
rejected, and end; up to two steps are in flight, as with async scheduling. What a step reads and
writes is told by positions and windows: attention of a layer with a sliding window reads that
window. Requests of a consumer get their first tokens by a load on another stream, which waits for
nothing that the device does.

Who returns the blocks of a request that ends while a later step of it is in flight is the
scheduler: `--release processed` waits for that step, as vLLM does since #45357, `--release at-once`
does not. Blocks that left the window are the manager's business (#47728).

A cached block that nobody holds can be taken again: it is let go of (`unref`), and given back only
when the pool gives the page to somebody else.

What this program does not see: the workers, and what a kernel really touches.
"""

import argparse
import inspect
import json
import random
import sys
from collections import deque
from typing import Any

PAGE, CELLS = 4096, 16
NULL = "null"
"""vLLM's block 0: what stands in a table where a block was let go of."""


class Recorder:
    """Events of one pool."""

    def __init__(self, pool: Any, pages: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.tell("pool", page=PAGE, cells=CELLS, pages=pages, device="kv")
        self._generation: dict[int, int] = {}
        self._out: dict[int, str] = {}
        """Page -> its block that was not given back yet."""
        self._held: set[int] = set()
        self._out[0] = NULL
        self.tell("alloc", block=NULL, page=0, device="kv", stream="device")
        self.tell("use", name="zeros", stream="device", writes=[NULL])
        self._wrap(pool)

    def tell(self, word: str, **keys: Any) -> None:
        """Write an event down."""
        self.events.append({"event": word, **keys})

    def block(self, page: int) -> str:
        """Return the block that a page is now."""
        return self._out.get(page) or f"{page}#{self._generation[page]}"

    def _wrap(self, pool: Any) -> None:
        new, free, touch = pool.get_new_blocks, pool.free_blocks, pool.touch

        def get_new_blocks(count: int, *more: Any, **keys: Any) -> Any:
            blocks = new(count, *more, **keys)
            for block in blocks:
                page = block.block_id
                if page in self._out:  # it was kept for its content
                    self.tell("free", block=self._out.pop(page), stream="device")
                self._generation[page] = self._generation.get(page, -1) + 1
                self._out[page] = f"{page}#{self._generation[page]}"
                self.tell("alloc", block=self._out[page], page=page, device="kv", stream="device")
            return blocks

        def free_blocks(blocks: Any, *more: Any, **keys: Any) -> Any:
            blocks = [block for block in blocks if not block.is_null]
            answer = free(blocks, *more, **keys)
            for block in blocks:
                page = block.block_id
                if block.ref_cnt or block.block_hash is not None:
                    self.tell("unref", block=self._out[page], count=block.ref_cnt)
                else:
                    self.tell("free", block=self._out.pop(page), stream="device")
            return answer

        def touched(blocks: Any, *more: Any, **keys: Any) -> Any:
            flat = [block for each in blocks for block in (each if isinstance(each, list | tuple) else [each])]
            answer = touch(blocks, *more, **keys)
            for block in flat:
                if not block.is_null:
                    self.tell("ref", block=self._out[block.block_id], count=block.ref_cnt)
            return answer

        pool.get_new_blocks, pool.free_blocks, pool.touch = get_new_blocks, free_blocks, touched


class Driver:
    """Requests over a real manager, with steps in flight."""

    def __init__(self, seed: int, *, pages: int, window: int | None, at_once: bool, drafts: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.window, self.at_once, self.drafts = window, at_once, drafts
        self.manager, self.hasher = _manager(pages, window)
        self.recorder = Recorder(self.manager.block_pool, pages)
        self.flight: deque[tuple[int, dict[str, int], dict[str, int]]] = deque()
        """Number, tokens scheduled by request, drafts among them."""
        self.running: dict[str, Any] = {}
        self.ended: dict[str, tuple[Any, int]] = {}
        """Requests whose blocks are still to be released, and the step after which."""
        self.last: dict[str, int] = {}
        self.steps = self.made = 0

    def arrive(self) -> None:
        """Let a request come: a prefix that others share, and tokens of its own."""
        name, self.made = f"r{self.made}", self.made + 1
        shared = [self.random.randint(0, 1)] * self.random.choice((0, CELLS, 2 * CELLS, 40))
        own = [self.random.randint(2, 99) for _ in range(self.random.randint(4, 40))]
        request = _request(name, [*shared, *own], self.hasher)
        blocks, hit = self.manager.get_computed_blocks(request)[:2]
        load = 0 if hit or self.random.random() < 0.5 else (len(shared + own) - 1) // CELLS * CELLS
        count = request.num_tokens - hit - load
        keys = {"num_external_computed_tokens": load} if load else {}
        found = self.manager.allocate_slots(request, count, hit, blocks, **keys)
        if found is None:
            return
        for low in range(0, hit, CELLS):
            self._say(name, "cell", low, min(CELLS, hit - low))
        request.num_computed_tokens = hit + load
        self.running[name] = request
        if load:
            loaded = [part for part in self._parts(name, 0, load) if part["block"] != NULL]
            self._use(f"load {name}", "load", [], loaded, mark=f"loaded {name}")
            self.recorder.tell("wait", mark=f"loaded {name}", stream="device")
        self._ready = name

    def schedule(self) -> None:
        """Put a step on the device: all that runs, each with one token, its prompt, or drafts."""
        tokens: dict[str, int] = {}
        drafted: dict[str, int] = {}
        for name, request in list(self.running.items()):
            waiting = request.num_computed_tokens < request.num_prompt_tokens
            drafts = 0 if waiting or not self.drafts else self.random.randint(0, self.drafts)
            count = request.num_prompt_tokens - request.num_computed_tokens if waiting else 1 + drafts
            if self.manager.allocate_slots(request, count) is None:
                continue
            tokens[name], drafted[name] = count, drafts
        if not tokens:
            return
        step, self.steps = self.steps, self.steps + 1
        reads: list[Any] = []
        writes: list[Any] = []
        for name, count in tokens.items():
            request = self.running[name]
            done = request.num_computed_tokens
            low = 0 if self.window is None else max(0, done - self.window + 1)
            reads += self._parts(name, low, done)
            writes += self._parts(name, done, done + count)
            request.num_computed_tokens += count
            if hasattr(request, "num_in_flight_tokens"):
                request.num_in_flight_tokens += count
            self.last[name] = step
        self._use(f"step {step}", "device", reads, writes, mark=f"step {step}")
        self.flight.append((step, tokens, drafted))

    def process(self) -> None:
        """Let the host see the oldest step end; some requests end or roll drafts back by that."""
        if not self.flight:
            return
        step, tokens, drafted = self.flight.popleft()
        self.recorder.tell("done", mark=f"step {step}")
        for name in [name for name, (_, last) in self.ended.items() if last <= step]:
            self.manager.free(self.ended.pop(name)[0])
        for name, count in tokens.items():
            request = self.running.get(name)
            if request is None:
                continue
            if hasattr(request, "num_in_flight_tokens"):
                request.num_in_flight_tokens -= count
            rejected = self.random.randint(0, drafted[name])
            request.num_computed_tokens -= rejected
            request.append_output_token_ids([self.random.randint(2, 99) for _ in range(1 + drafted[name] - rejected)])
            if request.num_output_tokens > 30 or self.random.random() < 0.05:
                del self.running[name]
                if self.at_once or self.last[name] <= step:
                    self.manager.free(request)
                else:
                    self.ended[name] = request, self.last[name]

    def run(self, steps: int) -> list[dict[str, Any]]:
        """Drive so many rounds; return the events."""
        for _ in range(steps):
            if len(self.running) < 4 and self.random.random() < 0.6:
                self.arrive()
            self.schedule()
            while len(self.flight) > 1 or (self.flight and self.random.random() < 0.2):
                self.process()
        while self.flight:
            self.process()
        return self.recorder.events

    def _parts(self, name: str, low: int, high: int) -> list[dict[str, Any]]:
        """Return the cells of positions `[low, high)`, page by page, as the block table has them."""
        (table,) = self.manager.get_block_ids(name)
        found = []
        while low < high:
            count = min(high - low, CELLS - low % CELLS)
            page = table[low // CELLS]
            part = {"block": self.recorder.block(page), "sequence": name, "position": low, "count": count}
            found.append(part)
            low += count
        return found

    def _say(self, name: str, word: str, low: int, count: int) -> None:
        for part in self._parts(name, low, low + count):
            self.recorder.tell(word, **part)

    def _use(self, name: str, stream: str, reads: list[Any], writes: list[Any], *, mark: str) -> None:
        for part in reads:
            if part["block"] == NULL:  # the table sends a reader there: the manager's word for where positions lie
                self.recorder.tell("cell", **part)
        self.recorder.tell("use", name=name, stream=stream, reads=reads, writes=writes, mark=mark)


def _manager(pages: int, window: int | None) -> tuple[Any, Any]:
    import torch  # noqa: PLC0415
    from vllm.utils.hashing import sha256  # noqa: PLC0415
    from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: PLC0415
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec  # noqa: PLC0415

    init_none_hash(sha256)
    shape = {"block_size": CELLS, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    spec = FullAttentionSpec(**shape) if window is None else SlidingWindowSpec(**shape, sliding_window=window)
    config = KVCacheConfig(num_blocks=pages, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    asked = {"max_model_len": 4096, "enable_caching": True, "hash_block_size": CELLS, "scheduler_block_size": CELLS}
    known = inspect.signature(KVCacheManager).parameters
    manager = KVCacheManager(config, **{key: value for key, value in asked.items() if key in known})
    return manager, get_request_block_hasher(CELLS, sha256)


def _request(name: str, tokens: list[int], hasher: Any) -> Any:
    from vllm.sampling_params import SamplingParams  # noqa: PLC0415
    from vllm.v1.request import Request  # noqa: PLC0415

    parameters = SamplingParams(max_tokens=1000)
    asked = {"prompt_token_ids": tokens, "sampling_params": parameters, "pooling_params": None, "block_hasher": hasher}
    if "eos_token_id" in inspect.signature(Request).parameters:
        asked["eos_token_id"] = None
    return Request(name, **asked)


def main() -> None:
    """Drive, and print the events."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--pages", type=int, default=40)
    asked.add_argument("--window", type=int, default=None)
    asked.add_argument("--drafts", type=int, default=0)
    asked.add_argument("--count", type=int, default=1)
    asked.add_argument("--release", choices=("processed", "at-once"), default="processed")
    chosen = asked.parse_args()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        driver = Driver(
            seed, pages=chosen.pages, window=chosen.window, at_once=chosen.release == "at-once", drafts=chosen.drafts
        )
        for event in driver.run(chosen.steps):
            sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.write("\n" if chosen.count > 1 else "")


if __name__ == "__main__":
    main()
