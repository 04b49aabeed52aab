"""Recordings of vLLM's own manager of pages and scheduler: what its releases did, and both where they can be imported."""

import importlib
import importlib.util
import json
from pathlib import Path

import pytest

from allocsim.recordings import judge

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "tests" / "data" / "recordings"

pytestmark = pytest.mark.filterwarnings("ignore")  # what vLLM and torch say of their own code


def found(events):
    """Return class and party of each finding, and the cures."""
    findings = judge(events).findings
    return {(each.class_, each.party) for each in findings}, [each.cure for each in findings]


def kept(name):
    return [json.loads(line) for line in (KEPT / name).read_text().splitlines()]


def test_a_window_that_slides_back_reads_a_block_that_the_manager_let_go_of():
    """0.23.0 lets blocks go by tokens that drafts may yet lose (vllm-project/vllm#47728): its table names the null block within the window."""
    charged, cures = found(kept("vllm_0.23.0_rolled_back.jsonl"))

    assert charged == {("C14", "plan")}
    assert cures == ["say that null holds only what was written there, or compute these positions again"]


def test_the_same_requests_are_right_with_the_release_that_waits():
    assert found(kept("vllm_0.33.0_rolled_back.jsonl")) == (set(), [])


def test_a_block_goes_to_a_load_while_a_step_in_flight_reads_it():
    """The scheduler releases a request's blocks at once (vllm-project/vllm#45357); the cure is the step to wait for."""
    charged, cures = found(kept("vllm_0.33.0_at_once.jsonl"))

    assert charged == {("C09", "plan")}
    assert "has ended, not when it is scheduled" in cures[0]
    assert found(kept("vllm_0.33.0_processed.jsonl")) == (set(), [])


def driver_of():
    """Return the class that drives vLLM's manager."""
    spec = importlib.util.spec_from_file_location("record_vllm", ROOT / "examples" / "record_vllm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Driver


@pytest.mark.parametrize("window", [None, 32])
@pytest.mark.parametrize("drafts", [0, 3])
def test_the_manager_of_the_release_at_hand(window, drafts):
    """Steps that are processed before their blocks go, in ten drawn recordings: nothing is wrong."""
    pytest.importorskip(
        "vllm", minversion="0.33", reason="vLLM, of a release that waits, is in an interpreter of its own"
    )
    driver = driver_of()
    for seed in range(10):
        events = driver(seed, pages=40, window=window, at_once=False, drafts=drafts).run(40)
        assert found(events) == (set(), []), seed


def test_the_manager_is_convicted_where_its_scheduler_does_not_wait():
    pytest.importorskip("vllm", reason="vLLM is in an interpreter of its own")
    driver = driver_of()
    charged = [found(driver(seed, pages=14, window=32, at_once=True, drafts=0).run(40))[0] for seed in range(20)]

    assert {("C09", "plan")} in charged
    assert all(each <= {("C09", "plan")} for each in charged)


def test_the_scheduler_gives_a_load_a_block_that_a_step_in_flight_writes():
    """0.23.0 has no fence between a request that ends and its step in flight (vllm-project/vllm#45357)."""
    charged, cures = found(kept("vllm_0.23.0_scheduler_load.jsonl"))

    assert charged == {("C09", "plan")}
    assert cures == [
        "free block '10#0' after 'step 14' (event 67) has ended, not when it is scheduled: event 69 gave it back"
    ]
    assert found(kept("vllm_0.33.0_scheduler_load.jsonl")) == (set(), [])


def test_the_scheduler_gives_a_block_away_that_rejected_drafts_bring_back_into_the_window():
    """The worker still reads it (vllm-project/vllm#47728)."""
    charged, cures = found(kept("vllm_0.23.0_scheduler_rolled_back.jsonl"))

    assert charged == {("C12", "plan")}
    assert cures == ["give block '9#2' other bytes than block '9#1': it is held until event 103"]


def test_a_prompt_of_47_tokens_that_is_loaded_whole_lacks_the_first_position_of_its_last_window():
    """Blocks are chosen for the window of token 47, and token 46 is run once more: it reads position 15, too."""
    events = kept("vllm_0.33.0_scheduler_whole.jsonl")
    charged, cures = found(events)

    assert charged == {("C14", "plan")}
    assert cures == ["say that null holds only what was written there, or compute these positions again"]
    assert [
        (each["position"], each["count"]) for each in events if each.get("sequence") and each["block"] == "null"
    ] == [(15, 1)]
    assert found(kept("vllm_0.33.0_scheduler_blocks.jsonl")) == (set(), [])  # where the load ends at a block


def scheduled(monkeypatch, seed, **chosen):
    """Return what is charged where vLLM's scheduler is driven."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    driver = importlib.import_module("record_vllm_scheduler").Driver
    asked = {"pages": 14, "window": None, "drafts": 0, "loads": None, "sync": False}
    return found(driver(seed, **(asked | chosen)).run(40))[0]


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("loads", [None, "blocks"])
@pytest.mark.parametrize("window", [None, 32])
@pytest.mark.parametrize("drafts", [0, 3])
def test_the_scheduler_of_the_release_at_hand(monkeypatch, sync, loads, window, drafts):
    """With loads that end at a block, nothing is wrong in five drawn recordings."""
    pytest.importorskip(
        "vllm", minversion="0.33", reason="vLLM, of a release that waits, is in an interpreter of its own"
    )
    for seed in range(5):
        assert scheduled(monkeypatch, seed, sync=sync, loads=loads, window=window, drafts=drafts) == set(), seed


def test_the_scheduler_is_convicted_of_prompts_that_come_whole_only_where_there_is_a_window(monkeypatch):
    pytest.importorskip("vllm", minversion="0.33", reason="vLLM is in an interpreter of its own")

    assert not any(scheduled(monkeypatch, seed, loads="whole") for seed in range(20))
    charged = [scheduled(monkeypatch, seed, loads="whole", window=32) for seed in range(20)]
    assert {("C14", "plan")} in charged
    assert all(each <= {("C14", "plan")} for each in charged)
