"""A checkpoint in which anything changed is refused in one line; nothing resumes to other weights."""

import json
import struct

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from allocsim.errors import EngineError
from engine.models.mlp import mlp
from engine.training import Settings, checkpoint, fit
from engine.training.data import moons

MODEL, DATA = mlp((2, 8, 2), activation="tanh", seed=1), moons(60, seed=3)
SETTINGS = Settings(epochs=3, batch=5, logical_batch=10, validation=0.2, hyper={"alpha": 0.02}, seed=7)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    file = tmp_path_factory.mktemp("made") / "c.safetensors"
    fit(MODEL, DATA, SETTINGS, save=file, stop_after=5)
    return file.read_bytes()


def resume(folder, content):
    file = folder / "c.safetensors"
    file.write_bytes(content)
    return fit(MODEL, DATA, SETTINGS, save=file, resume=True)


def refused(folder, content, says=""):
    with pytest.raises(EngineError, match=says) as raised:
        resume(folder, content)
    assert "\n" not in str(raised.value)
    assert (folder / "c.safetensors").read_bytes() == content, "what is refused is left as it is"


def places(content):
    """Return (name, first byte, last byte) of each tensor in the file."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return [(n, *(8 + length + at for at in row["data_offsets"])) for n, row in header.items() if n != "__metadata__"]


def flipped(content, byte, bit):
    spoiled = bytearray(content)
    spoiled[byte] ^= 1 << bit
    return bytes(spoiled)


def test_one_bit_of_any_tensor_is_seen(tmp_path, written):
    found = places(written)
    assert {"order"} < {name for name, *_ in found}
    generator = np.random.default_rng(5)
    for name, first, last in found:
        for _ in range(4):
            byte, bit = int(generator.integers(first, last)), int(generator.integers(8))
            refused(tmp_path, flipped(written, byte, bit), "is not as it was written")
            assert name


def test_one_bit_of_the_header_is_seen_or_means_the_same(tmp_path, written):
    """Names, sizes, history, generator, identity: a flip is refused, in one line; where it is read, nothing comes out otherwise."""
    (length,) = struct.unpack("<Q", written[:8])
    whole = fit(MODEL, DATA, SETTINGS)
    generator = np.random.default_rng(6)
    read, lines = 0, []
    for byte in sorted(generator.choice(8 + length, 400, replace=False).tolist()):
        content = flipped(written, byte, int(generator.integers(8)))
        try:
            rest = resume(tmp_path, content)
        except EngineError as error:
            lines.append(str(error))
            continue
        read += 1
        assert all(np.array_equal(whole.weights[name], rest.weights[name]) for name in whole.weights)
        assert rest.history == whole.history
    assert not any("\n" in line for line in lines)
    assert read < 8, "padding behind the header's JSON"


@pytest.mark.parametrize("cut", [0, 1, 8, 9, 100, -1, -8, -1000])
def test_a_file_that_was_cut_is_refused(tmp_path, written, cut):
    refused(tmp_path, written[:cut], r"c\.safetensors: is ")


def rewritten(tmp_path, written, change=lambda tensors, said: None, *, digest=True):
    """Return the file with other content, and the digest of that."""
    (tmp_path / "old").write_bytes(written)
    with safe_open(tmp_path / "old", framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        said = json.loads(file.metadata()[checkpoint.KEY])
    change(tensors, said)
    text = json.dumps(said)
    metadata = {checkpoint.KEY: text, checkpoint.DIGEST: checkpoint.digest(tensors, text)}
    return save(tensors, metadata=metadata if digest else {checkpoint.KEY: text})


def twice(tensors, _said):
    tensors["order"] = tensors["order"].copy()
    tensors["order"][0] = tensors["order"][1]


def outside(tensors, _said):
    tensors["order"] = tensors["order"] + 1


def short(tensors, _said):
    tensors["order"] = tensors["order"][:-1]


def real(tensors, _said):
    tensors["order"] = tensors["order"].astype(np.float64)


@pytest.mark.parametrize("change", [twice, outside, short, real, lambda tensors, _: tensors.pop("order")])
def test_an_order_that_is_none_is_refused_even_with_its_digest(tmp_path, written, change):
    refused(tmp_path, rewritten(tmp_path, written, change), "its order does not hold each of 60 datapoints once")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("epoch", -1), ("epoch", 1.5), ("epoch", 2), ("batch", 10**30), ("batch", 0), ("step", "5"), ("result", []), ("history", {}),
        ("history", [[1, 2]]), ("generator", {}), ("generator", {"bit_generator": "MT19937"}), ("identity", []), ("more", 1),
    ],
)  # fmt: skip
def test_metadata_that_are_none_are_refused_even_with_their_digest(tmp_path, written, entry, value):
    def change(_tensors, said):
        said[entry] = value

    refused(tmp_path, rewritten(tmp_path, written, change), "is no complete checkpoint|was made with")


def test_a_checkpoint_of_version_1_is_refused_and_says_why(tmp_path, written):
    def change(_tensors, said):
        said["version"] = 1

    refused(
        tmp_path,
        rewritten(tmp_path, written, change, digest=False),
        "of version 1, which has no digest to tell whether it is whole",
    )


def test_a_digest_that_is_missing_is_refused(tmp_path, written):
    refused(tmp_path, rewritten(tmp_path, written, digest=False), "is not as it was written")


def test_what_is_rewritten_without_a_change_resumes(tmp_path, written):
    """The refusals above are of what changed."""
    rest = resume(tmp_path, rewritten(tmp_path, written))
    whole = fit(MODEL, DATA, SETTINGS)
    assert all(np.array_equal(whole.weights[name], rest.weights[name]) for name in whole.weights)
