"""A recorder of PyTorch programs, with torch where it is installed: clean programs are clean, planted misuse is named."""

import pytest

import allocsim.systems.torch
from allocsim import Role
from allocsim.errors import AllocsimError, ModelError
from allocsim.judge.fast import check

torch = pytest.importorskip("torch", reason="the recorder records torch; the ledger beneath is tested without")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


def kinds(recording):
    return sorted({v.kind for v in check(recording.document).violations})


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 16)
    )


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("foreach", [False, True])
def test_training_steps_are_clean_and_numbers_stay_what_they_are(optimizer, foreach):
    def steps(recorded):
        torch.manual_seed(3)
        net = model()
        opt = getattr(torch.optim, optimizer)(net.parameters(), lr=0.01, foreach=foreach)
        x = torch.randn(8, 16)
        losses = []
        with recorded(net) as r:
            for _ in range(2):
                opt.zero_grad()
                loss = (net(x) - x).square().mean()
                loss.backward()
                opt.step()
                losses.append(loss.item())
        return losses, r

    from contextlib import nullcontext  # noqa: PLC0415 - only here

    plain, _ = steps(nullcontext)
    losses, recording = steps(allocsim.systems.torch.record)
    report = check(recording.document)

    assert losses == plain
    assert report.violations == ()
    assert not [w for w in report.warnings if w.kind == "AssumedInPlace"]
    assert recording.unseen == 0
    assert "0.weight" in recording.document.programs[0].buffers.names
    assert "0.weight.grad" in recording.document.programs[0].buffers.names


def test_names_roles_and_lines_of_the_caller():
    net = model()
    with allocsim.systems.torch.record(net) as r:
        out = net(torch.ones(4, 16))
    program = r.document.programs[0]
    roles = dict(zip(program.buffers.names, map(Role, program.buffers.role), strict=True))

    assert roles["0.weight"] is Role.PARAMETER
    assert any(row.get("at", "").startswith("test_eager_recording.py:") for row in program.ops.meta.values())
    assert out.shape == (4, 16)
    assert any("addresses" in line for line in r.lines())


def in_place_of_a_view(x):
    y = x.clone()
    y[0].zero_()
    return y + 1


def pointwise_over_its_operand(x):
    y = x.clone()
    return torch.add(y, 1, out=y)


def product_over_what_it_adds(x):
    y = x.clone()
    return torch.addmm(y, x, x, out=y)


def resized_and_read(x):
    y = x.clone()
    y.resize_(8192)
    y[64:].zero_()
    return y[:64].sum() + y[-1]


def away_and_back(x):
    p, others = torch.zeros(4096), []
    size = p.untyped_storage().nbytes()
    p.untyped_storage().resize_(0)
    others += [torch.ones(4096) for _ in range(3)]  # one of them gets the bytes
    p.untyped_storage().resize_(size)
    p.copy_(others[0])
    return p + others[1] + x.sum()


def array_met_by_a_slice_first(x):
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(1000, dtype=numpy.float32)
    part, whole = torch.from_numpy(array[500:600]), torch.from_numpy(array)
    first = part + 2
    part.mul_(2)
    return first + whole[500:600] + part + x.sum()


VIEWS = {
    "out, of elements that were written, resized": lambda x: torch.add(x, 1, out=torch.zeros(4)) + 1,
    "resized and read": resized_and_read,
    "storage away and back": away_and_back,
    "array met by a slice first": array_met_by_a_slice_first,
    "slice": lambda x: x[2:5, ::2] + 1,
    "transposed": lambda x: x.t().contiguous() @ x,
    "expanded": lambda x: x[:1].expand(8, 8) + x,
    "in place through a view": lambda x: x.clone()[1:3].mul_(2),
    "in place of a view, then whole": in_place_of_a_view,
    "split": lambda x: sum(x.split(2)),
    "out": lambda x: torch.add(x, 1, out=torch.empty(8, 8)),
    "out, resized": lambda x: torch.add(x, 1, out=torch.empty(0)) + 1,
    "pointwise over its operand": pointwise_over_its_operand,
    "product over what it adds": product_over_what_it_adds,
    "scatter": lambda x: x.clone().index_put_((torch.tensor([0, 2]),), torch.ones(2, 8)),
    "complex": lambda x: torch.view_as_real(torch.fft.fft(x)).sum(),
    "half": lambda x: x.to(torch.bfloat16).float(),
    "boolean": lambda x: torch.where(x > 0, x, -x),
    "two results": lambda x: torch.sort(x)[1].float().mean(),
    "unbound": lambda x: torch.stack(x.unbind()[::-1]),
    "foreach": lambda x: torch._foreach_add([x, x], 1)[0],
    "convolution": lambda x: torch.nn.functional.conv2d(x[None, None], torch.ones(2, 1, 3, 3)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "as_strided": lambda x: x.as_strided((3, 3), (8, 1), 5) + 1,
    "nothing": lambda x: x[:0] + 1,
    "scalar": lambda x: float(x.sum()) + 1,
    "numpy": lambda x: torch.from_numpy(x.numpy().copy()) + x,
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", VIEWS)
def test_views_mutations_and_outs_of_honest_programs_are_clean(name):
    x = torch.randn(8, 8)
    with allocsim.systems.torch.record({"x": x}) as r:
        result = VIEWS[name](x)
    report = check(r.document)

    assert report.violations == (), name
    assert not [w for w in report.warnings if w.kind == "AssumedInPlace"], name
    assert result is not None


def test_gradients_through_views_checkpoints_and_hooks_are_clean():
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415 - optional

    x = torch.randn(8, 8, requires_grad=True)
    with allocsim.systems.torch.record({"x": x}) as r:
        y = checkpoint(lambda z: (z @ z).relu()[::2], x, use_reentrant=False)
        y.register_hook(lambda g: g * 2)
        y.t().sum().backward()

    assert kinds(r) == []


def test_a_product_over_its_own_operand_is_convicted_and_gives_wrong_numbers():
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    right = a @ b
    with allocsim.systems.torch.record({"a": a, "b": b}) as r:
        torch.mm(a, b, out=a)

    assert kinds(r) == ["UnsafeInPlace"]
    assert not torch.allclose(a, right)


def test_memory_that_is_read_before_it_is_written_is_named():
    x = torch.ones(8)
    with allocsim.systems.torch.record({"x": x}) as r:
        _ = torch.empty(8) + x

    assert kinds(r) == ["UninitialisedRead"]


def test_what_a_reference_keeps_alive_is_in_the_belief_and_at_the_peak():
    def summed(x):
        kept = [x * n for n in range(8)]
        total = torch.zeros(1024)
        for row in kept:
            total = total + row
        return total

    x = torch.ones(1024)
    with allocsim.systems.torch.record({"x": x}) as r:
        _ = summed(x)
    lines = r.lines(most=20)

    assert sum("mul" in line and "needs it" in line for line in lines) >= 7
    assert "order      another order needs 12 KiB, this order 40 KiB" in lines


def test_a_recording_records_once_and_an_error_of_the_program_passes_through():
    recording = allocsim.systems.torch.record()
    with pytest.raises(AllocsimError, match="has not ended"):
        _ = recording.document

    def fails():
        _ = torch.ones(2) + 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), recording:
        fails()
    with pytest.raises(AllocsimError, match="started only once"), recording:
        pass
    assert check(recording.document).violations == ()
    with pytest.raises(ModelError, match="neither a module"):
        allocsim.systems.torch.record(3)


def test_a_fake_tensor_is_one_without_a_storage():
    """Its device says `cpu`; FSDP2 makes such ones where it wraps a module, to ask what shape a result has."""
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with allocsim.systems.torch.record() as r:
        with fake.FakeTensorMode():
            _ = torch.empty(4) + 1
        _ = torch.ones(2) + 1

    assert [buffer for buffer in r.document.programs[0].buffers.names if "empty" in buffer] == []
    assert check(r.document).violations == ()


def test_tensors_without_a_storage_are_counted_and_do_no_harm():
    with allocsim.systems.torch.record() as r:
        _ = torch.ones(2, device="meta") + 1
        sparse = torch.eye(4).to_sparse()
        _ = sparse.to_dense() + 1

    assert r.unseen > 0
    assert "UnsafeInPlace" not in kinds(r)
