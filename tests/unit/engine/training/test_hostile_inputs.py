"""Files of others: every broken one is one line, and none takes more time or memory than its size can ask for."""

import io
import json
import resource
import zipfile
import zlib

import numpy as np
import pytest
from safetensors.numpy import save

from allocsim.errors import AllocsimError, EngineError
from engine.models import weights
from engine.training import array_files, config
from engine.training.data import arrays, tokens


def npz(folder, **columns):
    np.savez(folder / "d.npz", **columns)
    return folder / "d.npz"


@pytest.fixture
def good(tmp_path):
    return npz(tmp_path, data=np.ones((6, 2), np.float32), labels=np.arange(6, dtype=np.int32)), tmp_path


def test_what_numpy_writes_is_read(tmp_path):
    """Order in memory, compression and empty columns included."""
    turned = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "d.npz", data=turned, labels=np.arange(4), none=np.zeros((4, 0)))
        found = array_files.read_npz(tmp_path / "d.npz")
        assert list(found) == ["data", "labels", "none"]
        np.testing.assert_array_equal(found["data"], turned)
        assert found["none"].shape == (4, 0)
    np.save(tmp_path / "t.npy", np.arange(9, dtype=np.uint16))
    np.testing.assert_array_equal(array_files.read_npy(tmp_path / "t.npy"), np.arange(9))


def test_every_mutant_of_an_npz_is_read_or_one_line(good):
    """Bits flipped, bytes lost, pieces doubled: 1,500 of them."""
    path, _ = good
    content = path.read_bytes()
    generator = np.random.default_rng(11)
    lines = []
    for number in range(1_500):
        spoiled = bytearray(content)
        for _ in range(int(generator.integers(1, 4))):
            at = int(generator.integers(0, len(spoiled)))
            if number % 3 == 0:
                spoiled[at] ^= 1 << int(generator.integers(8))
            elif number % 3 == 1:
                del spoiled[at : at + int(generator.integers(1, 40))]
            else:
                spoiled[at:at] = spoiled[: int(generator.integers(1, 40))]
        path.write_bytes(spoiled)
        try:
            arrays(path)
        except EngineError as error:
            lines.append(str(error))
    assert not [line for line in lines if "\n" in line or ("d.npz" not in line and "column" not in line)]
    assert len(lines) > 1_000


def bomb(path, nbytes, *, said=None):
    """Write an .npz whose member says it has `nbytes` zeros."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (said or nbytes,)})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("data.npy", "w", force_zip64=True) as file,
    ):
        file.write(head.getvalue())
        for _ in range(nbytes >> 20):
            file.write(bytes(1 << 20))


def test_a_file_that_grows_beyond_its_ceiling_is_refused_before_it_is_read(tmp_path):
    bomb(tmp_path / "b.npz", 200 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EngineError, match="would grow to"):
        arrays(tmp_path / "b.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("said", [1, 1 << 20, (2 << 20) + 1, 1 << 60])
def test_a_header_that_says_another_length_is_refused(tmp_path, said):
    bomb(tmp_path / "b.npz", 2 << 20, said=said)
    with pytest.raises(EngineError, match="which is"):
        arrays(tmp_path / "b.npz")


def test_a_directory_that_lies_about_sizes_is_refused(tmp_path):
    """The member says it is small and inflates to more."""
    bomb(tmp_path / "b.npz", 1 << 20)
    content = bytearray((tmp_path / "b.npz").read_bytes())
    size = (1 << 20) + 128
    assert content.count(size.to_bytes(8, "little")) + content.count(size.to_bytes(4, "little")) >= 1
    for width in (8, 4):
        content = content.replace(size.to_bytes(width, "little"), (1 << 19).to_bytes(width, "little"))
    (tmp_path / "b.npz").write_bytes(content)
    with pytest.raises(EngineError):
        arrays(tmp_path / "b.npz")


@pytest.mark.parametrize(
    "array", [np.array([{}], object), np.array(["a"]), np.zeros(3, "datetime64[s]"), np.zeros(2, "c8")]
)
def test_what_is_no_number_is_refused(tmp_path, array):
    np.savez(tmp_path / "d.npz", allow_pickle=True, data=array)
    with pytest.raises(EngineError):
        arrays(tmp_path / "d.npz")


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00\xff\xff", b"\x93NUMPY\x09\x00", zlib.compress(b"x")]
)
def test_what_is_no_array_file_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    for read in (arrays, lambda path: tokens(path, seq=2)):
        with pytest.raises(EngineError, match=r"x: ") as raised:
            read(tmp_path / "x")
        assert "\n" not in str(raised.value)


TABLES = {
    "mlp": {"sizes": [2, 4, 2]},
    "cnn": {"size": 12, "classes": 4, "channels": [4, 4], "inputs": 1},
    "gpt2": {"layers": 1, "channels": 8, "heads": 2, "vocab": 9, "positions": 8},
    "llama": {"layers": 1, "hidden": 8, "ffn": 8, "heads": 2, "kv_heads": 1, "vocab": 9, "rank": 2},
    "moons": {"points": 20},
    "shapes": {"images": 5, "size": 12},
}


def written(folder, kind, entry, value):
    """Write a training file with one entry of one table changed."""
    data = kind in {"moons", "shapes"}
    rows = {**TABLES[kind], entry: value}
    table = [f'kind = "{kind}"', *(f"{name} = {row}" for name, row in rows.items())]
    other = ['kind = "mlp"', "sizes = [2, 4, 2]"] if data else ['kind = "moons"', "points = 20"]
    parts = (["[data]", *table, "[model]", *other]) if data else (["[model]", *table, "[data]", *other])
    (folder / "t.toml").write_text("\n".join(parts) + "\n")
    return folder / "t.toml"


def make(path):
    said = config.read(path)
    return said.model.made(path.parent), said.data.made(path.parent)


@pytest.mark.parametrize("kind", TABLES)
def test_the_tables_that_are_spoiled_below_are_right_as_they_stand(tmp_path, kind):
    assert make(written(tmp_path, kind, *next(iter(TABLES[kind].items()))))


@pytest.mark.parametrize(("kind", "entry"), [(kind, entry) for kind, rows in TABLES.items() for entry in rows])
def test_a_size_in_a_training_file_is_checked_before_anything_is_made_of_it(tmp_path, kind, entry):
    for size in (10**8, 1 << 31, 1 << 61, -(1 << 61), 0 if entry != "rank" else -1):
        value = [2, size, 2] if isinstance(TABLES[kind][entry], list) else size
        path = written(tmp_path, kind, entry, value)
        with pytest.raises(AllocsimError) as raised:
            make(path)
        assert "\n" not in str(raised.value)


def test_sizes_that_are_each_allowed_are_refused_together(tmp_path):
    for kind, rows in (
        ("mlp", {"sizes": [1 << 20, 1 << 20]}),
        ("gpt2", {"channels": 1 << 15, "layers": 4096}),
        ("shapes", {"images": 1 << 22, "size": 4096}),
    ):
        path = written(tmp_path, kind, *next(iter(rows.items())))
        text = path.read_text()
        for name, value in list(rows.items())[1:]:
            text = "\n".join(
                f"{name} = {value}" if line.startswith(f"{name} =") else line for line in text.splitlines()
            )
        path.write_text(text)
        with pytest.raises(EngineError, match="numbers; 1073741824 are the most"):
            config.read(path)


def test_a_model_file_of_more_layers_than_tensors_is_refused(tmp_path):
    """2^61 layers in a config.json, with the tensors of none."""
    tensors = {"model.embed_tokens.weight": np.zeros((9, 8), np.float32), "model.norm.weight": np.ones(8, np.float32)}
    (tmp_path / "m.safetensors").write_bytes(save(tensors))
    sizes = {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_attention_heads": 2,
        "rms_norm_eps": 1e-5,
    }
    for layers in (1 << 61, 4_000_000_000, 1 << 31, 3):
        (tmp_path / "config.json").write_text(json.dumps({**sizes, "num_hidden_layers": layers}))
        with pytest.raises(EngineError, match=r"num_hidden_layers is|layers and has 2 tensors") as raised:
            weights.read(tmp_path / "m.safetensors")
        assert "\n" not in str(raised.value)


def test_a_deep_config_is_one_line(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(save({"a": np.zeros(2, np.float32)}))
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(EngineError, match=r"config\.json"):
        weights.read(tmp_path / "m.safetensors")
