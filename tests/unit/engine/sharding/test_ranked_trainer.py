"""`allocsim train --ranks`: the bits of one process, over simulated and real ranks, stopped and gone on with."""

import importlib.util
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import engine
from allocsim.cli import main
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from engine.front import functions as fn
from engine.models import llama
from engine.models.mlp import mlp
from engine.sharding.ranked_trainer import RankedTrainer
from engine.training import Dataset, Settings, checkpoint, fit
from engine.training.checkpoint_parts import read_parts
from engine.training.losses import LOSSES

_beside = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(_beside) if _beside.exists() else shutil.which("mpiexec")

RANKS = 4
CONFIG = """
[model]
kind = "mlp"
sizes = [2, 17, 2]

[data]
kind = "moons"
points = 200

[training]
epochs = 2
batch = {batch}
logical_batch = 20
validation = 0.1
hyper = {{alpha = 0.01}}
"""


def moons(rows=200):
    generator = np.random.default_rng(7)
    data = generator.standard_normal((rows, 2)).astype(np.float32)
    return Dataset(columns={"data": data, "labels": (data[:, 0] > data[:, 1] ** 2).astype(np.int32)})


def settings(batch, **more):
    return Settings(epochs=2, batch=batch, logical_batch=20, validation=0.1, seed=3, **more)


def ranked(zero, ranks=RANKS):
    return partial(RankedTrainer, ranks=ranks, zero=zero)


def alike(one, other):
    assert one.weights.keys() == other.weights.keys()
    for name, array in one.weights.items():
        assert np.array_equal(array, other.weights[name]), name


@pytest.mark.parametrize("planner", ["ggml", "best_fit"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_weights_are_those_of_one_process_that_takes_the_parts_in_turn(zero, optimizer, planner):
    model = mlp((2, 17, 2), seed=1)
    alone = fit(model, moons(), settings(5, optimizer=optimizer))
    many = fit(model, moons(), settings(20, optimizer=optimizer, planner=planner), trained_by=ranked(zero))
    alike(alone, many)
    assert many.steps == alone.steps
    for one, other in zip(alone.history, many.history, strict=True):
        parts = np.reshape(one.training.losses, (-1, RANKS)).mean(axis=1)
        assert np.allclose(other.training.losses, parts, rtol=1e-6)
        assert other.training.accuracy == one.training.accuracy  # outputs of all ranks are seen
        assert np.isclose(other.validation.loss, one.validation.loss, rtol=1e-6)
    assert check(many.document).clean


@pytest.mark.parametrize("zero", [1, 3])
def test_what_one_number_of_ranks_leaves_off_another_goes_on_with(zero, tmp_path):
    """The same number to the same bits; another from the same weights, moments and place, to other last digits."""
    model, kept = mlp((2, 17, 2), seed=1), tmp_path / "checkpoint.safetensors"
    whole = fit(model, moons(), settings(20), trained_by=ranked(zero))
    fit(model, moons(), settings(20), trained_by=ranked(zero), save=kept, stop_after=7)
    copies = [shutil.copy(kept, tmp_path / f"{name}.safetensors") for name in "abc"]
    alike(whole, fit(model, moons(), settings(20), trained_by=ranked(zero), save=copies[0], resume=True))
    for path, trained_by in ((copies[1], ranked(3 - zero, ranks=2)), (copies[2], None)):
        more = {} if trained_by is None else {"trained_by": trained_by}
        other = fit(model, moons(), settings(20), save=path, resume=True, **more)
        assert other.steps == whole.steps
        for name, array in whole.weights.items():
            assert np.allclose(array, other.weights[name], rtol=1e-3, atol=1e-5), name


@pytest.mark.parametrize(("ranks", "zero"), [(2, 0), (4, 3)])
def test_tensors_that_are_split_come_to_the_weights_of_one_process(ranks, zero, tmp_path):
    """To other last digits; and what was left off goes on over ranks that split nothing."""
    model, kept = mlp((2, 16, 2), seed=1), tmp_path / "checkpoint.safetensors"
    trained_by = partial(RankedTrainer, ranks=ranks, zero=zero, tensor=2)
    alone = fit(model, moons(), settings(40 // ranks, optimizer="adamw"))
    split = fit(model, moons(), settings(20, optimizer="adamw"), trained_by=trained_by)
    fit(model, moons(), settings(20, optimizer="adamw"), trained_by=trained_by, save=kept, stop_after=7)
    on = fit(model, moons(), settings(20, optimizer="adamw"), trained_by=ranked(zero), save=kept, resume=True)
    assert check(split.document).clean
    for name, array in alone.weights.items():
        assert np.allclose(split.weights[name], array, rtol=1e-3, atol=1e-5), name
        assert np.allclose(on.weights[name], array, rtol=1e-3, atol=1e-5), name


@pytest.fixture
def cut(tmp_path):
    """A checkpoint of four ranks, and what goes on from it."""
    model, kept = mlp((2, 17, 2), seed=1), tmp_path / "checkpoint.safetensors"
    fit(model, moons(), settings(20), trained_by=ranked(3), save=kept, stop_after=7)
    return kept, lambda **more: fit(model, moons(), settings(20), save=kept, resume=True, **more)


def test_each_rank_writes_its_part_of_weights_and_moments(cut):
    kept, _ = cut
    tensors, said = checkpoint.read(kept)
    assert [name.split(".")[2] for name in said.parts] == [f"{rank}-of-4" for rank in range(RANKS)]
    with safe_open(kept, framework="numpy") as file:
        assert list(file.keys()) == ["order"]
    for rank, name in enumerate(said.parts):
        part = load_file(kept.parent / name)
        assert part.keys() == said.shapes.keys()
        for key, row in part.items():
            flat = tensors[key].reshape(-1)
            length = -(-flat.size // RANKS)
            assert np.array_equal(row, flat[rank * length : (rank + 1) * length])


def test_the_parts_of_a_checkpoint_go_when_the_next_has_taken_its_place(cut, tmp_path):
    """Those of other files stay, and so does what has another name; one process needs none."""
    kept, more = cut
    others = [tmp_path / f"{name}.0-of-4.{'0' * 32}" for name in ("other.safetensors", "checkpoint.safetensors.old")]
    for other in others:
        other.write_bytes(b"mine")
    earlier = set(checkpoint.read(kept)[1].parts)
    more(trained_by=ranked(3), stop_after=9)
    now = set(checkpoint.read(kept)[1].parts)
    assert not earlier & now
    assert {path.name for path in tmp_path.iterdir()} == {kept.name, *now, *(other.name for other in others)}
    more()
    assert {path.name for path in tmp_path.iterdir()} == {kept.name, *(other.name for other in others)}


def test_no_rank_goes_on_before_the_file_is_in_its_place_and_what_it_replaces_is_gone(tmp_path):
    """Else a part of the next checkpoint, at the end of an epoch with no step between, could be taken for an old one."""
    kept, found = tmp_path / "checkpoint.safetensors", []

    class Watched(RankedTrainer):
        def of_all(self, mine):
            found.append((len(mine), {path.name for path in tmp_path.iterdir()}))
            return super().of_all(mine)

    fit(
        mlp((2, 17, 2), seed=1),
        moons(),
        settings(20),
        trained_by=partial(Watched, ranks=2, zero=3),
        save=kept,
        save_every=5,
    )
    assert [parts for parts, _ in found] == [2, 0] * (len(found) // 2)
    assert len(found) > 4
    for (_, before), (_, after) in zip(found[::2], found[1::2], strict=True):
        assert {kept.name} < after <= {*before, kept.name}
        assert len(after) == 3
    assert found[-1][1] == {kept.name, *checkpoint.read(kept)[1].parts}


def test_an_old_part_that_cannot_be_taken_away_ends_nothing(cut, tmp_path):
    kept, more = cut
    folder = tmp_path / f"{kept.name}.0-of-4.{'0' * 32}"
    folder.mkdir()
    more(trained_by=ranked(3), stop_after=9)
    assert folder.is_dir()
    checkpoint.read(kept)


def test_what_ends_between_the_parts_and_the_file_leaves_the_checkpoint_as_it_was(cut, monkeypatch):
    kept, more = cut
    before = kept.read_bytes()

    def ends(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_atomic", ends)
        with pytest.raises(KeyboardInterrupt):
            more(trained_by=ranked(3), stop_after=9)
    assert kept.read_bytes() == before
    model = mlp((2, 17, 2), seed=1)
    alike(fit(model, moons(), settings(20), trained_by=ranked(3)), more(trained_by=ranked(3)))


def _gone(place):
    place.unlink()


def _turned(place):
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)


def _emptied(place):
    place.write_bytes(b"")


@pytest.mark.parametrize(
    ("done", "said"),
    [(_gone, "part 2 of 4 is not there"), (_turned, "its digest differs"), (_emptied, "part of a checkpoint")],
)
def test_a_part_that_is_not_as_it_was_written_is_refused_by_name(cut, done, said):
    kept, more = cut
    place = kept.parent / checkpoint.read(kept)[1].parts[2]
    done(place)
    with pytest.raises(EngineError, match=said) as caught:
        more()
    assert "2-of-4" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../c.2-of-4." + "0" * 32, "c.1-of-4." + "0" * 32, "c.2-of-5." + "0" * 32, "", "c"])
def test_a_checkpoint_names_files_beside_it_alone(cut, name):
    kept, _ = cut
    names = checkpoint.read(kept)[1].parts
    with pytest.raises(EngineError, match="is no name of its part 2 of 4"):
        read_parts(kept, [*names[:2], name, names[3]], {})


def test_parts_that_do_not_make_an_array_are_refused(cut):
    kept, _ = cut
    said = checkpoint.read(kept)[1]
    (key, shape), *_ = said.shapes.items()
    for wrong in ({key: [*shape, 2]}, {"weight.nobody": [3]}):
        with pytest.raises(EngineError, match="its parts do not make"):
            read_parts(kept, said.parts, wrong)


def test_a_model_of_tokens_with_frozen_weights_is_spread_too():
    config = llama.LlamaConfig(layers=2, hidden=32, ffn=48, heads=2, kv_heads=1, vocab=32)
    model = llama.llama(config, llama.init_parameters(config, seed=5))
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 32, (40, 9)).astype(np.int32)
    data = Dataset(columns={"tokens": tokens[:, :-1], "labels": tokens[:, 1:]})
    alone = fit(model, data, Settings(epochs=1, batch=2, logical_batch=8))
    alike(alone, fit(model, data, Settings(epochs=1, batch=8), trained_by=ranked(3)))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_stages_of_layers_come_to_the_weights_of_one_process_that_takes_microbatches_in_turn(optimizer, tmp_path):
    """To the bit; stopped and gone on with, too, and over ranks that are no stages to other last digits."""
    model, kept = mlp((2, 17, 9, 2), seed=1), tmp_path / "checkpoint.safetensors"
    trained_by = partial(RankedTrainer, ranks=3, zero=0, microbatches=4)
    small, large = (settings(batch, optimizer=optimizer, hyper={"alpha": 0.02}) for batch in (5, 20))
    alone = fit(model, moons(), small)
    staged = fit(model, moons(), large, trained_by=trained_by)
    alike(alone, staged)
    assert check(staged.document).clean
    assert len(staged.document.plans) == 1
    for one, other in zip(alone.history, staged.history, strict=True):
        assert other.training.accuracy == one.training.accuracy
        assert np.isclose(other.validation.loss, one.validation.loss, rtol=1e-6)
    fit(model, moons(), large, trained_by=trained_by, save=kept, stop_after=7)
    copy = shutil.copy(kept, tmp_path / "copy.safetensors")
    on = fit(model, moons(), large, trained_by=ranked(3), save=copy, resume=True)
    assert all(np.allclose(on.weights[name], array, rtol=1e-3, atol=1e-5) for name, array in alone.weights.items())
    alike(alone, fit(model, moons(), large, trained_by=trained_by, save=kept, resume=True))


def test_what_is_drawn_is_drawn_for_each_microbatch():
    """A network with dropout in two stages."""
    config = llama.LlamaConfig(layers=2, hidden=16, ffn=24, heads=2, kv_heads=1, vocab=16, rank=2, dropout=0.5)
    model = llama.llama(config, llama.init_parameters(config, seed=5))
    tokens = np.random.default_rng(0).integers(0, 16, (16, 9)).astype(np.int32)
    data = Dataset(columns={"tokens": tokens[:, :-1], "labels": tokens[:, 1:]})
    alone = fit(model, data, Settings(batch=2, logical_batch=8))
    alike(
        alone, fit(model, data, Settings(batch=8), trained_by=partial(RankedTrainer, ranks=2, zero=0, microbatches=4))
    )


@pytest.mark.parametrize(("experts", "zero"), [(2, 0), (4, 3)])
def test_experts_that_are_spread_come_to_the_weights_of_one_process(experts, zero, tmp_path):
    """To other last digits; and what was left off goes on over ranks that each hold all of them."""
    sizes = {"hidden": 16, "ffn": 24, "heads": 2, "kv_heads": 1, "vocab": 16, "experts": 4, "rank": 0, "full": True}
    config = llama.LlamaConfig(layers=1, **sizes)
    model, kept = llama.llama(config, llama.init_parameters(config, seed=5)), tmp_path / "checkpoint.safetensors"
    tokens = np.random.default_rng(0).integers(0, 16, (32, 9)).astype(np.int32)
    data = Dataset(columns={"tokens": tokens[:, :-1], "labels": tokens[:, 1:]})
    trained_by = partial(RankedTrainer, ranks=4, zero=zero, experts=experts)
    given = Settings(epochs=1, batch=8, optimizer="sgd", hyper={"alpha": 0.1})
    alone = fit(model, data, Settings(epochs=1, batch=2, logical_batch=8, optimizer="sgd", hyper={"alpha": 0.1}))
    spread = fit(model, data, given, trained_by=trained_by)
    fit(model, data, given, trained_by=trained_by, save=kept, stop_after=2)
    on = fit(model, data, given, trained_by=ranked(zero), save=kept, resume=True)
    assert check(spread.document).clean
    for name, array in alone.weights.items():
        assert np.allclose(spread.weights[name], array, rtol=1e-4, atol=1e-5), name
        assert np.allclose(on.weights[name], array, rtol=1e-4, atol=1e-5), name


def test_each_rank_draws_a_mask_of_its_own_that_of_its_turn_in_one_process():
    def dropped(p, data):
        return fn.dropout(data @ p["w"], 0.5) @ p["v"]

    generator = np.random.default_rng(2)
    given = {
        name: generator.standard_normal(shape).astype(np.float32) for name, shape in {"w": (2, 8), "v": (8, 2)}.items()
    }
    model = engine.model(dropped, given)
    alike(fit(model, moons(), settings(5)), fit(model, moons(), settings(20), trained_by=ranked(2)))


def test_what_is_not_spread_over_ranks_is_refused():
    model, data = mlp((2, 3, 2)), moons(40)
    for more, said in (
        ({"logical_batch": 40}, "a logical batch is 2 batches"),
        ({"graphs": "dynamic"}, "graphs are 'dynamic'"),
        ({"loss": "sum"}, "loss 'sum' is a sum"),
        ({"watch": True}, "without ranks"),
    ):
        with pytest.raises(EngineError, match=said):
            fit(model, data, Settings(batch=20, **more), trained_by=ranked(0))
    for how, said in (
        ({"ranks": 0, "zero": 0}, "at least one rank"),
        ({"ranks": 2, "zero": 4}, "zero is 4"),
        ({"ranks": 2, "zero": 1, "microbatches": 2}, "a pipeline of 2 microbatches has each layer whole"),
        ({"ranks": 2, "zero": 0, "microbatches": 3}, "20 rows is not 3 equal parts, one for each microbatch"),
        ({"ranks": 9, "zero": 0, "microbatches": 2}, "9 stages of a graph of 2 layers"),
    ):
        with pytest.raises(EngineError, match=said):
            fit(model, data, Settings(batch=20), trained_by=partial(RankedTrainer, **how))
    with pytest.raises(EngineError, match="20 rows is not 3 equal parts"):
        fit(model, data, Settings(batch=20), trained_by=ranked(0, ranks=3))
    assert any(not loss.mean for loss in LOSSES.values())


def trained(folder, name, *options, batch=20, by=()):
    config = folder / f"{batch}.toml"
    config.write_text(CONFIG.format(batch=batch))
    command = [*by, sys.executable, "-m", "allocsim", "train", str(config), "--out", str(folder / name), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights of one process that takes the rows of four ranks in turn, as a file has them."""
    folder = tmp_path_factory.mktemp("alone")
    assert trained(folder, "one", batch=5).returncode == 0
    return (folder / "one/weights.safetensors").read_bytes()


def test_the_command_spreads_a_step_in_one_process(tmp_path, alone, monkeypatch, capsys):
    done = trained(tmp_path, "many", "--ranks", "4", "--zero", "3")
    assert done.returncode == 0, done.stderr
    assert "each step by 4 ranks simulated in this process, stage 3 of ZeRO" in done.stdout
    assert (tmp_path / "many/weights.safetensors").read_bytes() == alone
    monkeypatch.chdir(tmp_path)
    for option in ("--zero", "--tensor", "--experts", "--microbatches"):
        assert main(["train", "20.toml", "--out", "lonely", option, "3"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert f"{option} 3 says how ranks share a step; --ranks" in said.err


def test_the_command_splits_tensors_over_ranks(tmp_path, monkeypatch, capsys):
    done = trained(tmp_path, "split", "--ranks", "4", "--tensor", "2", "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert "simulated in this process, stage 0 of ZeRO, tensors split over 2" in done.stdout
    monkeypatch.chdir(tmp_path)
    assert main(["train", "20.toml", "--out", "wrong", "--ranks", "4", "--tensor", "3"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "tensors split over 3 ranks: that must divide the 4 ranks" in said.err


def test_the_command_makes_ranks_stages_of_layers(tmp_path, alone):
    done = trained(tmp_path, "staged", "--ranks", "2", "--microbatches", "4")
    assert done.returncode == 0, done.stderr
    assert "each step through a pipeline of 2 ranks simulated in this process, 4 microbatches" in done.stdout
    assert (tmp_path / "staged/weights.safetensors").read_bytes() == alone


def test_the_command_spreads_experts_over_ranks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moe.toml").write_text("""
        model = {kind = "llama", layers = 1, hidden = 16, ffn = 24, heads = 2, kv_heads = 1, vocab = 256, experts = 4}
        data = {kind = "text", path = "moe.toml", seq = 8}
        training = {batch = 4}
    """)
    assert main(["train", "moe.toml", "--ranks", "4", "--experts", "2", "--steps", "2"]) == 0
    assert "simulated in this process, stage 0 of ZeRO, experts spread over 2" in capsys.readouterr().out
    assert main(["train", "moe.toml", "--out", "o", "--ranks", "3", "--experts", "2", "--steps", "2"]) == 2
    assert "experts spread over 2 ranks: that must divide the 3 ranks" in capsys.readouterr().err


@pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpiexec and mpi4py (the extra ranks)"
)
@pytest.mark.parametrize("how", [("4", "--zero", "3"), ("2", "--microbatches", "4")], ids=str)
def test_real_ranks_train_to_the_bytes_of_the_simulation_and_one_writes(how, tmp_path):
    assert trained(tmp_path, "simulated", "--ranks", *how).returncode == 0
    done = trained(tmp_path, "real", "--ranks", *how, by=(MPIEXEC, "-n", how[0]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{how[0]} ranks by MPI") == 1
    names = {path.name for path in (tmp_path / "simulated").iterdir()}
    assert names == {path.name for path in (tmp_path / "real").iterdir()}
    assert len([name for name in names if f"-of-{how[0]}." in name]) == int(how[0])
    for name in names:
        assert (tmp_path / "real" / name).read_bytes() == (tmp_path / "simulated" / name).read_bytes(), name
    wrong = trained(tmp_path, "wrong", "--ranks", "4", by=(MPIEXEC, "-n", "2"))
    assert wrong.returncode == 2
    assert "2 processes run a step for 4 ranks" in wrong.stderr


@pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpiexec and mpi4py (the extra ranks)"
)
def test_ranks_that_find_different_checkpoints_are_refused_at_once(tmp_path):
    """Each has a folder of its own; one of them holds a checkpoint."""
    for rank in "01":
        (tmp_path / rank).mkdir()
    assert trained(tmp_path / "0", "out", "--ranks", "2", "--steps", "5").returncode == 0
    (tmp_path / "1/20.toml").write_text(CONFIG.format(batch=20))
    alone = f"cd {tmp_path}/$PMI_RANK && exec {sys.executable} -m allocsim train 20.toml --ranks 2 --resume --out out"
    done = subprocess.run(
        [MPIEXEC, "-n", "2", "sh", "-c", alone], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "begin with different settings, data or checkpoints" in done.stderr


def test_numbers_that_are_not_finite_over_ranks_advise_what_can_be_done(tmp_path, monkeypatch, capsys):
    """The advice is followed: one process goes on from the ranks' checkpoint, and names the op."""
    monkeypatch.chdir(tmp_path)
    text = """
        model = {kind = "mlp", sizes = [2, 16, 2]}
        data = {kind = "moons", points = 64}
        [training]
        epochs = 4
        batch = 8
        save_every = 1
        optimizer = "sgd"
        hyper = {alpha = 3e19}
    """
    (tmp_path / "nan.toml").write_text(text)
    assert main(["train", "nan.toml", "--out", "o", "--ranks", "2"]) == 1
    assert "without ranks and with watch = true" in capsys.readouterr().err
    (tmp_path / "nan.toml").write_text(text + "watch = true\n")
    assert main(["train", "nan.toml", "--out", "o", "--resume"]) == 1
    assert "infinity first made by mul_mat" in capsys.readouterr().err
