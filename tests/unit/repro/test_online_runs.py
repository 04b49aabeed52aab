"""A model trained over allocators that answer while its steps run: right ones change no bit and are
not accused; broken ones give wrong numbers and are convicted from what they answered.
"""

import json
from functools import cache

import numpy as np
import pytest
from online_allocators import BROKEN, SOUND
from training_net import BATCH, NET, ROWS

from allocsim.cli import main
from allocsim.document import dumps
from allocsim.errors import AllocsimError, CapacityError, PlannerError
from allocsim.judge import plain
from allocsim.online import SHELF, find
from allocsim.online.eager_host import EagerHost, LateDevice, on_device
from allocsim.outcomes import outcome_of
from engine import diagnose, model
from engine.training import Trainer
from engine.training.online_trainer import OnlineTrainer
from engine.training.step_rules import StepRules, WeightGroup

STEPS = 4
ADDRESSES = {name: make for name, make in {**SOUND, **SHELF}.items() if "pages" not in name}
"""Sound allocators of addresses."""


def target(name):
    return find(name) if name in SHELF else ADDRESSES[name]


def trained(trainer):
    """Return losses and weights after steps whose batches differ in size."""
    with trainer:
        losses = [
            trainer.step({name: rows[: ROWS - step % 3] for name, rows in BATCH.items()}).loss for step in range(STEPS)
        ]
        return losses, {name: array.tobytes() for name, array in trainer.weights.items()}


@cache
def reference(optimizer):
    return trained(Trainer(NET, graphs="dynamic", planner="reference", optimizer=optimizer))


def over(make, optimizer="sgd", **asked):
    host = EagerHost(make, programs=STEPS, **asked)
    return host, trained(OnlineTrainer(NET, host, optimizer=optimizer))


@pytest.mark.parametrize("name", sorted(ADDRESSES))
def test_a_sound_allocator_changes_no_bit_and_is_not_accused(name):
    for optimizer in ("sgd", "adamw"):
        right = reference(optimizer)
        host, found = over(target(name), optimizer)
        assert found == right
        assert over(target(name), optimizer, keeps=True)[1] == right
        document = host.document()
        assert outcome_of(name, document).report.clean
        assert plain.judge(plain.read(json.loads(dumps(document)))).count == 0
        assert len(document.runs) == STEPS
        assert len({int(run.program.buffers.nbytes.sum()) for run in document.runs}) > 1, "graphs change"
        if host.device.streams > 1:
            assert outcome_of(name, document).examined["H"].state == "clean"


@pytest.mark.parametrize("name", sorted(name for name in BROKEN if not name.startswith("pages")))
def test_wrong_numbers_convict_the_allocator(name):
    """Whatever a broken one does to the numbers, the judge finds in what it answered, and charges it."""
    right = reference("sgd")
    try:
        host, found = over(BROKEN[name][0])
    except PlannerError:  # no tensor can lie where it answers
        return
    causes = outcome_of(name, host.document()).causes
    assert {cause.party for cause in causes} <= {"plan"}
    assert found == right or causes


@pytest.mark.parametrize(
    "rules",
    [
        StepRules(clip_norm=0.1),
        StepRules(
            clip_norm=0.1, loss_scale=1024.0, average=0.9, weights="bf16", groups=(WeightGroup(match="*", rate=2.0),)
        ),
    ],
    ids=["one", "all"],
)
def test_the_rules_of_a_step_hold_over_an_online_allocator(rules):
    losses, _ = trained(Trainer(NET, graphs="dynamic", planner="reference", optimizer="sgd", rules=rules))
    assert losses != reference("sgd")[0]
    found = diagnose(NET, optimizer="sgd", online="tlsf", rules=rules, steps=STEPS)
    assert found.verdict.sound
    assert {mode.loss for mode in found.modes.values()} == {tuple(losses)}


BITES = {
    "first_fit.frees_neighbour": "C12",
    "first_fit.rounds_down": "C12",
    "classes.end_lags": "C12",
    "classes.free_to_larger": "C12",
    "classes.pops_and_keeps": "C12",
    "classes.class_by_bits": "C12",
    "arena.resets_to_last": "C12",
    "arena.counts_down_twice": "C12",
    "streams.one_pool": "C09",
    "streams.ignores_recorded": "C09",
    "streams.never_asks": "C09",
}
"""Planted faults that a training step meets, and the class of each."""


@pytest.mark.parametrize("name", sorted(BITES))
def test_planted_faults_give_wrong_numbers_and_the_class_is_theirs(name):
    host, found = over(BROKEN[name][0])
    assert found != reference("sgd")
    assert BITES[name] in {cause.class_ for cause in outcome_of(name, host.document()).causes}


def test_nothing_given_back_heals_what_comes_of_giving_back():
    """The pinned run tells a block that serves again too early from one that never was free."""
    right = reference("sgd")
    assert over(BROKEN["classes.pops_and_keeps"][0], keeps=True)[1] == right
    assert over(BROKEN["classes.end_lags"][0], keeps=True)[1] != right


def test_the_device_does_an_op_when_somebody_waits_for_it_and_no_sooner():
    device = LateDevice(2)
    device.give(0, 10)
    device.give(1, 20)
    device.wait(device.record(0), 1)
    device.give(1, 21)
    device.give(0, 11)
    assert device.order == []
    device.synchronize(1)
    assert device.order == [10, 20, 21], "what stream 1 waits for, and no more"
    device.synchronize(0)
    assert device.order == [10, 20, 21, 11]


def test_the_order_of_the_device_is_one_that_the_document_allows():
    """Each op comes behind those before it on its stream, and those that it waits for."""
    host = EagerHost(SOUND["streams"], streams=3)
    with OnlineTrainer(NET, host) as trainer:
        for _ in range(3):
            trainer.step(BATCH)
            program = host.runs[-1].program
            place = {step: at for at, step in enumerate(host.device.order)}
            last = {}
            for op in program.ops:
                if op.step not in place:
                    continue
                before = [*op.after, *([last[op.stream]] if op.stream in last else [])]
                assert all(place[step] < place[op.step] for step in before)
                last[op.stream] = op.step
    assert on_device(program, 1) is program


class Full:
    def __init__(self, capacity, alignment, device):
        self.left = 8

    def alloc(self, nbytes, alignment, stream, tag):
        self.left -= 1
        return None if self.left < 0 else 4096 * self.left

    def free(self, address, stream):
        pass


class Raising(Full):
    def alloc(self, nbytes, alignment, stream, tag):
        raise KeyError(nbytes)


@pytest.mark.parametrize(
    ("make", "streams", "error", "said"),
    [
        (Full, None, CapacityError, "no room for"),
        (Raising, None, PlannerError, "alloc raised KeyError"),
        (SOUND["pages"], None, AllocsimError, "gives out pages"),
        (SHELF["tlsf"] and find("tlsf"), 2, AllocsimError, "for one stream; 2 are asked for"),
        (BROKEN["first_fit.text"][0], None, PlannerError, "an address is needed"),
        (BROKEN["first_fit.no_alignment"][0], None, PlannerError, "a multiple of 32 is needed"),
    ],
)
def test_what_cannot_serve_is_one_line(make, streams, error, said):
    with pytest.raises(error, match=said) as caught:
        over(make, streams=streams)
    assert "\n" not in str(caught.value)


def test_python_has_three_runs_and_a_verdict():
    found = diagnose(NET, online="caching", steps=3)
    assert found.verdict.sound
    assert found.modes["default"].loss == found.modes["pinned"].loss == found.modes["reference"].loss
    assert found.modes["default"].arena_bytes < found.modes["pinned"].arena_bytes
    bad = diagnose(NET, online="online_allocators:BROKEN_STEP", steps=3)
    assert not bad.verdict.sound
    assert bad.verdict.classes == {("C12", "plan")}
    assert bad.modes["default"].first_difference == 1
    assert bad.modes["pinned"].first_difference is None


@pytest.mark.usefixtures("one_picture")
def test_the_command_says_losses_verdict_and_refuses_what_makes_no_sense(capsys, tmp_path):
    assert main(["diagnose", f"{__name__}:NET", "--online", "tlsf", "--steps", "2", "--json", "-q"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["runs"]
    assert entry["verdict"]["class"] is None
    assert set(entry["modes"]) == {"default", "pinned", "reference"}
    assert entry["examined"]["R"]["state"] == "clean"
    bad = ["diagnose", f"{__name__}:NET", "--online", "online_allocators:BROKEN_STEP", "--steps", "3", "-q"]
    assert main([*bad, "--out", str(tmp_path / "report")]) == 1
    assert "C12, fault of the plan" in capsys.readouterr().out
    assert (tmp_path / "report" / "session.json").exists()
    for more, said in (
        (["--online", "nobody"], "online allocator"),
        (["--online", "tlsf", "--allocator", "ggml"], "answers while it runs"),
        (["--online", "tlsf", "--modes", "deny"], "pins need a plan"),
        (["--online", "online_allocators:Pages"], "gives out pages"),
    ):
        assert main(["diagnose", f"{__name__}:NET", *more, "-q"]) == 2
        assert said in capsys.readouterr().err


class Odd:
    """Answers, raises or is asked as told."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, _capacity, _alignment, _device):
        return self

    def alloc(self, *_):
        return self.answer()

    def free(self, *_):
        pass


class MuteError(Exception):
    def __str__(self):
        raise ValueError


class Wordless:
    def __repr__(self):
        raise ValueError


class Streamless(Odd):
    @property
    def streams(self):
        raise RuntimeError("no streams")


def raising(error):
    def raise_it():
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Odd(raising(SystemExit(0))), "alloc raised SystemExit: 0"),
        (Odd(raising(BaseException("gone"))), "alloc raised BaseException: gone"),
        (Odd(raising(MuteError())), "alloc raised MuteError: MuteError without a text"),
        (Odd(raising(RuntimeError())), "alloc raised RuntimeError"),
        (Odd(Wordless), "answers Wordless without a text"),
        (Odd(lambda: 10**5000), "at int without a text"),
        (Odd(lambda: 10**400), "at 1000"),
        (Streamless(lambda: 0), "'streams' of an online allocator raised RuntimeError: no streams"),
    ],
)
def test_a_target_that_misbehaves_is_one_short_line(make, said):
    with pytest.raises(PlannerError) as refused:
        over(make)

    assert said in str(refused.value)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_a_model_whose_columns_are_no_rows_of_a_batch_is_tried_as_it_is():
    rng = np.random.default_rng(1)
    adjacency, data = rng.normal(size=(8, 8)).astype("f4"), rng.normal(size=(8, 4)).astype("f4")
    labels = rng.integers(0, 3, 8).astype("i4")
    weights = {"w": rng.normal(size=(4, 3)).astype("f4")}
    for forward, more in (
        (lambda p, data, adj: adj @ (data @ p["w"]), {"adj": adjacency}),
        (lambda p, data, scale: (data @ p["w"]) * scale, {"scale": np.float32(2)}),
    ):
        net = model(forward, weights, example={"data": data, "labels": labels, **more})
        assert not diagnose(net, steps=2, online="tlsf").verdict.causes
