"""What products measure of a machine: it changes no bit, it is measured once, and a file that says anything else is measured anew."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels import compiled, tiles, tuning
from engine.kernels.compiled import products

TUNINGS = st.builds(tuning.Tuning, **{name: st.sampled_from(values) for name, (values, _) in tuning.CANDIDATES.items()})


def bits(left, right, tuned, *, start=None):
    """Return the bytes of a product that goes through memory as it is told."""
    (m, k), n = left.shape, right.shape[1]
    out = np.full((1, 1, m, n), np.nan, np.float32) if start is None else start.copy()[None, None]
    room = np.empty(products.room_for(m, k), np.float32)
    args = left[None, None], right[None, None], out, room, tuned, start is not None
    compiled.entry(products.multiply, args, layout="A")(*args)
    return out.tobytes()


@given(
    tuned=TUNINGS,
    m=st.sampled_from([1, 8, 47, 130, 200, 520]),
    k=st.sampled_from([1, 96, 97, 300]),
    n=st.sampled_from([48, 80, 97, 224, 256, 1536, 1600]),
    turned=st.booleans(),
    add=st.booleans(),
)
def test_no_bit_hangs_on_what_was_measured(*, tuned, m, k, n, turned, add):
    """Any values that may be kept, at rows that crowd each other and at rows that do not, give what the defaults give."""
    rng = np.random.default_rng([m, k, n])
    left, right = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    right = np.ascontiguousarray(right.T).T if turned else right
    start = rng.standard_normal((m, n)).astype("f4") if add else None

    assert bits(left, right, tuned, start=start) == bits(left, right, tuning.Tuning(), start=start)


@pytest.mark.parametrize("tuned", [tuning.Tuning(in_place=0), tuning.Tuning(block=768), tuning.Tuning(narrow=125)])
def test_a_result_that_meets_an_operand_has_the_bits_of_every_machine(monkeypatch, tuned):
    """What is read was written by then, or not: the order of tiles is that of the defaults, whatever was measured."""
    found = []
    for told in (tuning.Tuning(), tuned):
        monkeypatch.setattr(tiles, "tuned", lambda told=told: told)
        memory = np.random.default_rng(3).standard_normal((200, 3072)).astype("f4")
        left = np.random.default_rng(4).standard_normal((64, 96)).astype("f4")
        function, args = tiles.call(left, memory[:96], memory[2:66])
        function(*args)
        found.append(memory.tobytes())
    assert found[0] == found[1]


def clocked(monkeypatch, cost):
    """Let a product take `cost(rows, columns, tuning)` seconds; return where the time stands."""
    now = [0.0]

    def multiply(left, _right, out, _room, tuned, _add):
        now[0] += cost(left.shape[2], out.shape[3], tuned)

    monkeypatch.setattr(tuning.time, "thread_time", lambda: now[0])
    return multiply


def room(rows, terms):
    """Return a size; nothing is written there."""
    return rows * terms


@pytest.mark.parametrize("field", list(tuning.CANDIDATES))
def test_each_field_is_what_is_quickest(monkeypatch, field):
    """Whichever value makes products quicker by more than noise is taken, and the other fields keep their defaults."""
    for value in tuning.CANDIDATES[field][0]:
        multiply = clocked(monkeypatch, lambda m, n, tuned, v=value: m * n * (0.9 if getattr(tuned, field) == v else 1))
        assert tuning.measure(multiply, room) == tuning.Tuning()._replace(**{field: value})


def test_what_is_quicker_by_less_than_noise_is_left(monkeypatch):
    multiply = clocked(monkeypatch, lambda m, n, tuned: m * n * (1 if tuned == tuning.Tuning() else 0.98))

    assert tuning.measure(multiply, room) == tuning.Tuning()


def test_one_slow_round_decides_nothing(monkeypatch):
    """The least of all rounds counts: what another process did meanwhile does not."""
    calls = iter(range(10**6))
    multiply = clocked(
        monkeypatch, lambda m, n, tuned: m * n * ((20 if next(calls) < 8 else 1) - 0.1 * (tuned.ahead == 0))
    )

    assert tuning.measure(multiply, room).ahead == 0


def test_a_machine_is_measured_once(monkeypatch, tmp_path):
    """The second process reads what the first one kept; other code is measured anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = tuning.Tuning(ahead=0, block=768)
    asked = []
    monkeypatch.setattr(tuning, "measure", lambda *_: asked.append(1) or found)

    assert [tuning.kept(None, room, code) for code in (b"one", b"one", b"two", b"one")] == [found] * 4
    assert len(asked) == 2


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"block": 97}',
        b'{"in_place": 128, "block": 1536, "narrow": 108}',
        b"[" * 100_000,
        b'{"in_place": 128, "block": 97, "narrow": 108, "ahead": 1}',
        b'{"in_place": 128, "block": 0, "narrow": 108, "ahead": 1}',
        b'{"in_place": 128, "block": 1536, "narrow": 108, "ahead": 1, "more": 1}',
        b'{"in_place": [], "block": 1536, "narrow": 108, "ahead": 1}',
        b'{"in_place": 128.0, "block": 1536, "narrow": 108, "ahead": 1}',
        b"\xff\xfe",
    ],
)
def test_a_file_that_holds_no_measured_values_is_replaced(monkeypatch, tmp_path, held):
    """Whatever stands there, no product is computed by it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "measure", lambda *_: tuning.Tuning())
    tuning.kept(None, room, b"code")
    (file,) = (tmp_path / "allocsim").iterdir()
    file.write_bytes(held)

    assert tuning.kept(None, room, b"code") == tuning.Tuning()
    assert json.loads(file.read_bytes()) == tuning.Tuning()._asdict()


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "allocsim").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "measure", lambda *_: tuning.Tuning())

    assert tuning.kept(None, room, b"code") == tuning.Tuning()


def test_a_user_without_a_home_is_no_error(monkeypatch):
    """Nothing can be kept then."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    monkeypatch.setattr(tuning, "measure", lambda *_: tuning.Tuning(ahead=0))

    assert tuning.kept(None, room, b"code") == tuning.Tuning(ahead=0)


def test_the_machine_is_measured_by_the_tiles_themselves():
    """One that is measured here and now gets values that were tried."""
    found = tuning.measure(tiles._multiply(), products.room_for)

    assert all(value in tuning.CANDIDATES[name][0] for name, value in found._asdict().items())


def test_columns_of_a_block_are_whole_tiles():
    """A block that ends within a tile would compute columns twice."""
    values, _ = tuning.CANDIDATES["block"]

    assert tuning.UNIT % compiled.products.COLUMNS == tuning.UNIT % compiled.products.NARROW_COLUMNS == 0
    assert not any(value % tuning.UNIT for value in values)
