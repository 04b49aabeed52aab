"""The functions of PyTorch that people use most (`tests/pytorch_functions.py`), each at the front: PyTorch's values and gradients at random numbers and at infinities, NaN and zeros, first and second derivatives against differences, the contracts of all kernels that it runs (detector K)."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from pytorch_functions import CONSTANTS, FAMILIES, INPUTS, ROWS, SPECIAL

from allocsim.errors import EngineError
from engine import gradcheck, gradgradcheck, tensor
from engine.front import functions as fn
from engine.front import record
from engine.front.attention_modules import MultiheadAttention, TransformerEncoderLayer
from engine.front.modules import Gru, Linear, Lstm, Module, Sequential
from engine.k_audit import AuditCase, AuditLayout, audit_ops

try:
    import torch
except ImportError:
    torch = None

PAGE = Path(__file__).parents[4] / "docs" / "pytorch.md"
RNG = np.random.default_rng(0)
SMOOTH = {"rtol": 1e-4, "atol": 1e-6}


# what is no expression: modules over given weights, and changes in place


def laid(x, key, values):
    y = x * 1.0
    y[key] = values
    return y


def copied(x, values):
    return (x * 1.0).copy_(values)


class Here:
    """The helpers at the front."""

    @staticmethod
    def lstm(x, given, on):
        made = Lstm(2, 3, RNG)
        made.weight, made.recurrent, made.bias = given, on, made.bias.detach().astype(x.dtype)
        return made(x)[0]

    @staticmethod
    def gru(x, given, on):
        made = Gru(2, 3, RNG)
        made.weight, made.recurrent, zero = given, on, made.bias.detach().astype(x.dtype)
        made.bias = made.recurrent_bias = zero
        return made(x)[0]

    @staticmethod
    def heads(x, three, four):
        return of_weights(MultiheadAttention(4, 2, RNG), x, {"given.weight": three, "out.weight": four})

    @staticmethod
    def encoder(x, three, four):
        weights = {
            "attention.given.weight": three,
            "attention.out.weight": four,
            "first.weight": four,
            "second.weight": four,
        }
        return of_weights(TransformerEncoderLayer(4, 2, 4, RNG, p=0.0), x, weights)

    @staticmethod
    def chain(x, four):
        first, second = Linear(4, 4, RNG, bias=False), Linear(4, 4, RNG, bias=False)
        first.weight = second.weight = four
        return Sequential(first, lambda y: y.tanh(), second)(x)

    @staticmethod
    def listed(x, four):
        class Listed(Module):
            def __init__(self):
                self.layers = [Linear(4, 4, RNG, bias=False) for _ in range(2)]

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x).tanh()
                return x

        return of_weights(Listed(), x, {"layers.0.weight": four, "layers.1.weight": four})


def of_weights(module, x, weights):
    """Return what a module makes of x over these weights, and the others as they are."""
    own = {name: tensor(held.data, dtype=x.dtype) for name, held in module.parameters().items()}
    return module.using({**own, **weights})(x)


class There:
    """The same by PyTorch."""

    @staticmethod
    def lstm(x, given, on):
        made = torch.nn.LSTM(2, 3, batch_first=True, bias=False).double()
        return torch.func.functional_call(made, {"weight_ih_l0": given, "weight_hh_l0": on}, (x,))[0]

    @staticmethod
    def gru(x, given, on):
        made = torch.nn.GRU(2, 3, batch_first=True, bias=False).double()
        return torch.func.functional_call(made, {"weight_ih_l0": given, "weight_hh_l0": on}, (x,))[0]

    @staticmethod
    def heads(x, three, four):
        made = torch.nn.MultiheadAttention(4, 2, bias=False, batch_first=True).double()
        weights = {"in_proj_weight": three, "out_proj.weight": four}
        return torch.func.functional_call(made, weights, (x, x, x), {"need_weights": False})[0]

    @staticmethod
    def encoder(x, three, four):
        made = torch.nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True).double()
        zeros = {name: torch.zeros_like(p) for name, p in made.named_parameters() if "bias" in name}
        weights = {
            "self_attn.in_proj_weight": three,
            "self_attn.out_proj.weight": four,
            "linear1.weight": four,
            "linear2.weight": four,
        }
        return torch.func.functional_call(made, {**zeros, **weights}, (x,))

    @staticmethod
    def chain(x, four):
        made = torch.nn.Sequential(
            torch.nn.Linear(4, 4, bias=False), torch.nn.Tanh(), torch.nn.Linear(4, 4, bias=False)
        )
        return torch.func.functional_call(made.double(), {"0.weight": four, "2.weight": four}, (x,))

    @staticmethod
    def listed(x, four):
        made = torch.nn.ModuleList([torch.nn.Linear(4, 4, bias=False) for _ in range(2)]).double()
        for number in range(2):
            x = torch.func.functional_call(made[number], {"weight": four}, (x,)).tanh()
        return x


HELPERS = ("lstm", "gru", "heads", "encoder", "chain", "listed")
HERE = {"fn": fn, "np": np, "tensor": tensor, "laid": laid, "copied": copied}
HERE |= CONSTANTS | {name: getattr(Here, name) for name in HELPERS}


def there():
    constants = {name: torch.tensor(array) for name, array in CONSTANTS.items()}
    functions = {name: getattr(There, name) for name in HELPERS}
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "np": np,
        "laid": laid,
        "copied": copied,
        **constants,
        **functions,
    }


THERE = there() if torch else {}
PRESENT = [row for row in ROWS if not row.absent]
pytestmark = pytest.mark.filterwarnings("ignore:reduction:UserWarning")  # PyTorch's, of kl_div
SLOPED = [row for row in PRESENT if not row.flat and INPUTS.keys() & set(compile(row.here, row.name, "eval").co_names)]
COMPARED = [row for row in PRESENT if not row.drawn]
named = pytest.mark.parametrize("row", PRESENT, ids=lambda row: row.name)
compared = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
sloped = pytest.mark.parametrize("row", SLOPED, ids=lambda row: row.name)


def inputs_of(row):
    """Return the names of the tensors in a row."""
    return [name for name in compile(row.here, row.name, "eval").co_names if name in INPUTS]


def here(row):
    """Return the function of the tensors of a row, as it is spelled at the front."""
    code, names = compile(row.here, row.name, "eval"), inputs_of(row)
    return lambda *given: eval(code, HERE, dict(zip(names, given, strict=True)))


def at_the_front(row, data):
    """Return the value and the gradients, zeros where none flows."""
    given = [tensor(data[name], requires_grad=True, dtype="float64") for name in inputs_of(row)]
    y = here(row)(*given)
    weights = np.random.default_rng(1).standard_normal(y.shape)
    with suppress(EngineError):  # what has no gradient is refused
        (y * weights.astype(y.dtype) if y.dtype.kind == "f" else y).sum().backward()
    return y.numpy().astype(float), [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in given]


def by_pytorch(row, data):
    """Return the same by PyTorch."""
    names = inputs_of(row)
    given = [torch.tensor(data[name], dtype=torch.float64, requires_grad=not row.flat) for name in names]
    y = eval(row.there, THERE, dict(zip(names, given, strict=True)))
    weights = np.random.default_rng(1).standard_normal(tuple(y.shape))
    if y.requires_grad:
        (y * torch.tensor(weights, dtype=y.dtype)).sum().backward()
    gradients = [np.zeros(tuple(x.shape)) if x.grad is None else x.grad.numpy() for x in given]
    return y.detach().double().numpy(), gradients


def apart(found, wanted, tolerance):
    """Return what differs: the value, or the number of an input whose gradient does."""
    pairs = {"value": (found[0], wanted[0]), **dict(enumerate(zip(found[1], wanted[1], strict=True)))}
    return [
        name
        for name, (a, b) in pairs.items()
        if a.shape != b.shape or not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    ]


def test_the_list_has_161_names_and_nearly_all_are_there():
    assert len({row.name for row in ROWS}) == len(ROWS) == 161
    assert len(PRESENT) >= 150
    assert all(row.here and row.there for row in PRESENT)


@compared
@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row.name)
def test_values_and_gradients_are_pytorchs(row):
    tolerance = 1e-6 if "float32" in row.here else 1e-9
    assert apart(at_the_front(row, INPUTS), by_pytorch(row, INPUTS), tolerance) == []


@compared
@pytest.mark.parametrize("row", [row for row in COMPARED if row.special and inputs_of(row)], ids=lambda row: row.name)
def test_they_are_at_infinities_nan_and_zeros_but_where_the_row_says_so(row):
    found = apart(at_the_front(row, SPECIAL), by_pytorch(row, SPECIAL), 1e-6 if "float32" in row.here else 1e-9)
    assert bool(found) == bool(row.apart), found


@pytest.mark.parametrize("row", [row for row in PRESENT if row.drawn], ids=lambda row: row.name)
def test_what_is_drawn_is_alike_and_by_a_seed_the_same(row):
    given = [tensor(INPUTS[name]) for name in inputs_of(row)]
    drawn, again = (here(row)(*given).numpy() for _ in range(2))
    np.testing.assert_array_equal(drawn, again)
    assert eval(row.drawn, {"np": np, **INPUTS, "y": drawn})
    if torch:
        theirs = eval(row.there, THERE, {name: torch.tensor(INPUTS[name]) for name in inputs_of(row)})
        assert eval(row.drawn, {"np": np, **INPUTS, "y": theirs.numpy()})


@sloped
def test_first_and_second_derivatives_are_those_of_differences(row):
    function = here(row)
    if "float32" in row.here:
        pytest.skip("differences need float64")
    given = [INPUTS[name] for name in inputs_of(row)]
    assert gradcheck(function, *given, rtol=1e-4, atol=1e-6).ok
    assert gradgradcheck(function, *given, **SMOOTH).ok


@named
def test_no_kernel_that_it_runs_breaks_its_contract(row):
    """Detector K at the calls of the function, of its derivative and of the derivative of that."""
    found = audit_ops(calls_of(row))
    assert [f"{one.kind} over operand {one.operand}" for one in found if one.broken] == []


def test_what_detector_k_looks_at_are_all_calls():
    kinds = {call.kind for row in PRESENT if row.name == "TransformerEncoderLayer" for call in calls_of(row)}
    assert kinds > {"attention", "attention_back", "norm", "norm_back", "relu", "mul_mat", "out_prod", "add"}


def calls_of(row):
    """Return the calls of kernels that a row comes to, and its first and second derivatives."""
    record._recipes.clear()
    given = [tensor(INPUTS[name], requires_grad=True, dtype="float64") for name in inputs_of(row)]
    y = here(row)(*given)
    with suppress(EngineError):
        (y * y).sum().backward(create_graph=True)
        slopes = [x.grad for x in given if x.grad is not None and x.grad.requires_grad]
        for slope in slopes:
            (slope * slope).sum().backward()
    return [
        AuditCase(kind=recipe.kind, params=recipe.params, operands=tuple(map(layout, recipe.sources)), results=(layout(recipe.result),))
        for recipe, _ in record._recipes.values()
        if recipe.result is not None and 0 not in recipe.result.shape
    ]  # fmt: skip


@compared
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_with_attention_is_pytorchs_with_a_mask(norm_first):
    """Truth in a mask is the other way round in PyTorch's modules."""
    mine = TransformerEncoderLayer(4, 2, 6, np.random.default_rng(2), p=0.0, norm_first=norm_first)
    theirs = torch.nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True, norm_first=norm_first)
    names = {"attention.given": "self_attn.in_proj_", "attention.out": "self_attn.out_proj.", "first": "linear1."}
    names |= {"second": "linear2.", "norms.0": "norm1.", "norms.1": "norm2."}
    weights = {
        names[name.rpartition(".")[0]] + name.rpartition(".")[2]: torch.tensor(held.numpy())
        for name, held in mine.parameters().items()
    }
    x, mask = INPUTS["words"].astype(np.float32), np.tri(3, 3, dtype=bool)
    wanted = torch.func.functional_call(theirs, weights, (torch.tensor(x), torch.tensor(~mask)))
    np.testing.assert_allclose(mine(tensor(x), mask).numpy(), wanted.detach().numpy(), atol=2e-6)


def layout(laid_out):
    return AuditLayout(dtype=laid_out.name, shape=laid_out.shape, strides=laid_out.strides)


def page():
    """Return docs/pytorch.md."""
    lines = [
        "# PyTorch's functions at the front",
        "",
        f"This page lists the {len(ROWS)} functions of PyTorch that people use most in models and training, and",
        f"their spelling in the engine's front, which has {len(PRESENT)} of them. The page is made from",
        "`tests/pytorch_functions.py`, which says how the functions were chosen and which shapes the",
        "operands have. A test compares values and gradients with PyTorch's at random numbers and at",
        "infinities, NaN and zeros. It also checks first and second derivatives against finite",
        "differences, and the kernels by detector K. For functions without a gradient, and for random",
        "functions, only the checks that apply are done. The last column says what is not supported or",
        "differs; after a dash it says what differs at infinities, NaN, zeros and ties.",
        "",
        "`ALLOCSIM_UPDATE=1 pytest tests/unit/engine/front/test_pytorch_functions.py -k page` writes it.",
    ]
    for family, rows in FAMILIES.items():
        lines += ["", f"## {family}", "", "| PyTorch | here | what differs |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {spelled(row)} | {said(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def spelled(row):
    return f"`{row.here}`".replace("|", "\\|") if row.here else "-"


def said(row):
    return " - ".join(part for part in ((row.absent and f"not there: {row.absent}") or row.but, row.apart) if part)


def test_the_page_is_made_of_the_list():
    if os.environ.get("ALLOCSIM_UPDATE"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
