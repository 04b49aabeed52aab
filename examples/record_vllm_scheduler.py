"""vLLM's own Scheduler and AsyncScheduler, driven on a CPU and recorded: a program of its own, for
the interpreter that has vLLM (whose core alone is imported: no model, no kernel).

    export VLLM_LOGGING_STREAM=ext://sys.stderr
    VLLM_PYTHON examples/record_vllm_scheduler.py --seed 3 --loads whole --window 32 > events.jsonl
    allocsim trace events.jsonl

Everything that decides is vLLM's: `Scheduler` or `AsyncScheduler`, `KVCacheManager`, `BlockPool`,
and `VllmConfig`'s word for how many steps may be in flight (two, or one with `--sync`). This
program is the engine core and the worker: requests arrive, share prefixes, are preempted, aborted
while a step of theirs is in flight, and end; steps are put on the device, and what they give comes
back in that order.

A step writes the keys of all its tokens, then attention reads: a prompt may share what another one
writes in the same step. Where that is, is told as a worker knows it: its block tables are put
together from `SchedulerOutput`, never asked of the manager, and name the blocks that the pages
were when it was told. Where drafts of a step in flight are rejected, positions are counted from
what was accepted. A layer with a sliding window reads the window of the first token computed.

With `--loads` half of the prompts come from elsewhere, `whole` or as far as they fill `blocks`, by a
connector that loads asynchronously. A load is on a stream of its own, begins with the step that the
scheduler sends it with, waits for nothing that the device does, and writes the blocks that the
connector was given; the host sees it end some steps later.

What this program does not see: what a kernel really touches, drafters with layers of their own, and
several groups of layers.
"""

import argparse
import json
import random
import sys
from collections import deque
from dataclasses import MISSING, dataclass, field, fields
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from pydantic.fields import FieldInfo
from record_vllm import CELLS, NULL, Recorder, _request
from vllm.config import CacheConfig, KVTransferConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import RequestStatus


@dataclass
class Loads(KVConnectorMetadata):
    """Loads that begin with a step: by request, the positions and the pages of its tables."""

    begun: dict[str, tuple[int, int, Any]] = field(default_factory=dict)


class Remote(KVConnectorBase_V1):
    """A connector as the scheduler sees it: half of the prompts lie elsewhere, and come once."""

    random: random.Random
    whole: bool

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.high: dict[str, int] = {}
        """By request, how many of its tokens lie elsewhere; none once they were sent for."""
        self.loads = Loads()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Return how many tokens lie elsewhere behind those that were found, and whether they come later."""
        name, tokens = request.request_id, request.num_prompt_tokens
        if name not in self.high:
            there = tokens if self.whole else (tokens - 1) // CELLS * CELLS
            self.high[name] = self.random.choice((0, there))
        count = max(0, self.high[name] - num_computed_tokens)
        return count, count > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Note a load into the blocks that the request has now."""
        if num_external_tokens:
            name = request.request_id
            high, self.high[name] = self.high[name], 0
            self.loads.begun[name] = high - num_external_tokens, high, blocks.get_block_ids()

    def build_connector_meta(self, scheduler_output: Any) -> Loads:  # noqa: ARG002
        """Send the loads with this step."""
        sent, self.loads = self.loads, Loads()
        return sent

    def start_load_kv(self, *given: Any, **keys: Any) -> None:
        """Do nothing, as the three below: the worker is the driver."""

    wait_for_layer_load = save_kv_layer = wait_for_save = start_load_kv


@dataclass
class Step:
    """A step in flight."""

    number: int
    output: Any
    loaded: list[str]
    """Requests whose load is seen to have ended when this step is."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Drafts that the device rejects, by request."""
    sampled: dict[str, list[int]] = field(default_factory=dict)


class Driver:
    """The engine core and the worker round a scheduler."""

    def __init__(
        self, seed: int, *, pages: int, window: int | None, drafts: int, loads: str | None, sync: bool
    ) -> None:
        self.random = Remote.random = random.Random(seed)  # noqa: S311
        Remote.whole = loads == "whole"
        self.window, self.drafts, self.sync = window, drafts, sync
        self.scheduler = _scheduler(pages, window, drafts, loads=loads is not None, sync=sync)
        self.most = self.scheduler.vllm_config.max_concurrent_batches
        self.hasher = get_request_block_hasher(CELLS, sha256)
        self.recorder = Recorder(self.scheduler.kv_cache_manager.block_pool, pages)
        self.flight: deque[Step] = deque()
        self.tables: dict[str, list[str]] = {}
        """The worker's block tables, with the blocks that the pages were when it was told of them."""
        self.prefill: dict[str, int] = {}
        """Tokens that a request had when the worker was told of it: no step before their end samples."""
        self.loading: set[str] = set()
        """Requests whose load has begun and has not ended, as the worker knows."""
        self.came: dict[str, int] = {}
        """Requests whose load has begun, until they are run -> where: what lies below was found in the cache."""
        self.found: list[dict[str, Any]] = []
        """What the scheduler says was found in the cache, of requests that begin with the step at hand."""
        self.steps = self.made = 0

    def arrive(self) -> None:
        """Let a request come: a prefix that others share, and tokens of its own."""
        shared = [self.random.randint(0, 1)] * self.random.choice((0, CELLS, 2 * CELLS, 40))
        own = [self.random.randint(2, 99) for _ in range(self.random.randint(4, 40))]
        request = _request(f"r{self.made}", [*shared, *own], self.hasher)
        request.max_tokens = self.random.randint(1, 30)
        self.made += 1
        self.scheduler.add_request(request)

    def abort(self) -> None:
        """Let a client go, of whatever request."""
        name = self.random.choice(sorted(self.scheduler.requests))
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def schedule(self) -> None:
        """Let the scheduler make a step, and put it on the device."""
        output = self.scheduler.schedule()
        step = Step(self.steps, output, loaded=[name for name in sorted(self.loading) if self.random.random() < 0.4])
        self.steps += 1
        self.loading -= set(step.loaded)
        for name, (low, high, pages) in getattr(output.kv_connector_metadata, "begun", {}).items():
            written = [part for part in self._parts(name, self._blocks(pages), low, high) if part["block"] != NULL]
            self.recorder.tell("use", name=f"load {name}", stream="load", writes=written, mark=f"loaded {name}")
            self.loading.add(name)
            self.came[name] = low
        reads: list[Any] = []
        writes: list[Any] = []
        for name, told in self._told(output).items():
            count, drafts = output.num_scheduled_tokens[name], len(output.scheduled_spec_decode_tokens.get(name, ()))
            start = told - sum(before.rejected.get(name, 0) for before in self.flight)
            low = 0 if self.window is None else max(0, start - self.window + 1)
            writes += self._parts(name, self.tables[name], start, start + count)
            reads += self._parts(name, self.tables[name], low, start + count)
            step.rejected[name] = self.random.randint(0, drafts)
            sampled = (told + count >= self.prefill[name]) * (1 + drafts - step.rejected[name])
            step.sampled[name] = [self.random.randint(2, 99) for _ in range(sampled)]
        self.recorder.tell("use", name=f"keys of step {step.number}", stream="device", writes=writes)
        for part in (*self.found, *(part for part in reads if part["block"] == NULL)):
            self.recorder.tell("cell", **part)  # null as well: the table sends a reader there
        self.recorder.tell("use", name=f"step {step.number}", stream="device", reads=reads, mark=f"step {step.number}")
        self.flight.append(step)

    def process(self) -> None:
        """Let the host see the oldest step end, and tell the scheduler what it gave."""
        step = self.flight.popleft()
        self.recorder.tell("done", mark=f"step {step.number}")
        for name in step.loaded:
            self.recorder.tell("done", mark=f"loaded {name}")
        names = list(step.sampled)
        answer = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=list(step.sampled.values()),
            kv_connector_output=KVConnectorOutput(finished_recving=set(step.loaded)) if step.loaded else None,
        )
        self.scheduler.update_from_output(step.output, answer)
        if self.drafts and self.sync:
            drafted = [[self.random.randint(2, 99)] * self.random.randint(0, self.drafts) for _ in names]
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, drafted))

    def run(self, rounds: int) -> list[dict[str, Any]]:
        """Drive so many rounds; return the events."""
        for _ in range(rounds):
            if len(self.scheduler.requests) < 6 and self.random.random() < 0.6:
                self.arrive()
            if self.scheduler.requests and self.random.random() < 0.04:
                self.abort()
            self.schedule()
            while len(self.flight) >= self.most or (self.flight and self.random.random() < 0.2):
                self.process()
        while self.flight:
            self.process()
        return self.recorder.events

    def _told(self, output: Any) -> dict[str, int]:
        """Bring the worker's tables up to date; return the computed tokens of each request of a step."""
        told: dict[str, int] = {}
        self.found = []
        for name in output.finished_req_ids:
            self.tables.pop(name, None)
        for new in output.scheduled_new_reqs:
            told[new.req_id] = new.num_computed_tokens
            tokens = new.prefill_token_ids or new.prompt_token_ids
            self._begin(new.req_id, new.block_ids, new.num_computed_tokens, len(tokens))
        old = output.scheduled_cached_reqs
        for name, blocks, computed, outputs in zip(
            old.req_ids, old.new_block_ids, old.num_computed_tokens, old.num_output_tokens, strict=True
        ):
            told[name] = computed
            if name in old.resumed_req_ids:
                self._begin(name, blocks, computed, self.scheduler.requests[name].num_prompt_tokens + outputs)
            elif blocks:
                self.tables[name] += self._blocks(blocks)
        return told

    def _begin(self, name: str, blocks: Any, computed: int, tokens: int) -> None:
        """Take a request in that is new, or was preempted: what it had in flight counts no more."""
        self.tables[name], self.prefill[name] = self._blocks(blocks), tokens
        for before in self.flight:
            before.rejected.pop(name, None)
        found = self._parts(name, self.tables[name], 0, self.came.pop(name, computed))
        self.found += [part for part in found if part["block"] != NULL]

    def _blocks(self, groups: Any) -> list[str]:
        return [self.recorder.block(page) for page in groups[0]]

    def _parts(self, name: str, table: list[str], low: int, high: int) -> list[dict[str, Any]]:
        """Return the cells of positions `[low, high)`, block by block, as a table has them."""
        cuts = [low, *range((low // CELLS + 1) * CELLS, high, CELLS), high]
        return [
            {"block": table[at // CELLS], "sequence": name, "position": at, "count": end - at}
            for at, end in pairwise(cuts)
            if at < end
        ]


def _scheduler(pages: int, window: int | None, drafts: int, *, loads: bool, sync: bool) -> Any:
    """Return a scheduler of one group of layers; of models it is told no more than it asks."""
    init_none_hash(sha256)
    model = SimpleNamespace(
        max_model_len=256, runner_type="generate", uses_mrope=False, is_encoder_decoder=False, is_diffusion=False,
        is_multimodal_model=False, supports_multimodal_inputs=False, multimodal_config=None,
        enable_return_routed_experts=False, return_sampling_mask=False,
    )  # fmt: skip
    budget = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64, "is_encoder_decoder": False}
    remote = {"kv_connector": "Remote", "kv_connector_module_path": __name__, "kv_role": "kv_consumer"}
    drafting = _unchecked(SpeculativeConfig, method="ngram", num_speculative_tokens=drafts)
    config = _unchecked(
        VllmConfig,
        model_config=model,
        device_config=None,
        cache_config=CacheConfig(block_size=CELLS, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(**budget, async_scheduling=not sync, disable_hybrid_kv_cache_manager=True),
        speculative_config=drafting if drafts else None,
        kv_transfer_config=KVTransferConfig(**remote) if loads else None,
    )
    config.cache_config.num_gpu_blocks = pages
    shape = {"block_size": CELLS, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    spec = FullAttentionSpec(**shape) if window is None else SlidingWindowSpec(**shape, sliding_window=window)
    cache = KVCacheConfig(num_blocks=pages, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    outputs = SimpleNamespace(should_advance=lambda _: False, accept_tokens=lambda *_: True)
    outputs.validate_tokens = lambda _, tokens: tokens
    return (Scheduler if sync else AsyncScheduler)(config, cache, outputs, block_size=CELLS)


def _unchecked(kind: type, **given: Any) -> Any:
    """Return a configuration with its defaults: what vLLM's constructors check wants a model's files."""
    made = object.__new__(kind)
    for each in fields(kind):
        if each.name not in given:
            value = each.default_factory() if each.default_factory is not MISSING else each.default
            given[each.name] = value.get_default(call_default_factory=True) if isinstance(value, FieldInfo) else value
        object.__setattr__(made, each.name, given[each.name])
    return made


def main() -> None:
    """Drive, and print the events."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--count", type=int, default=1)
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--pages", type=int, default=14)
    asked.add_argument("--window", type=int, default=None)
    asked.add_argument("--drafts", type=int, default=0)
    asked.add_argument("--loads", choices=("blocks", "whole"), help="some prompts come from elsewhere")
    asked.add_argument("--sync", action="store_true", help="Scheduler, instead of AsyncScheduler")
    chosen = vars(asked.parse_args())
    first, count, steps = (chosen.pop(key) for key in ("seed", "count", "steps"))
    for seed in range(first, first + count):
        for event in Driver(seed, **chosen).run(steps):
            sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.write("\n" if count > 1 else "")


if __name__ == "__main__":
    main()
