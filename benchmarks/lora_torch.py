"""The LoRA step of `lora_systems.py` in PyTorch: recorded while it runs eagerly, and as the wrappers that TorchInductor generates.

    python benchmarks/lora_torch.py eager FILE [LAYERS]          # writes a native document, prints milliseconds of a step
    python benchmarks/lora_torch.py inductor FOLDER [LAYERS]     # writes a wrapper for each graph, prints the same

Run by an interpreter that has torch.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout, installed or not

import torch
from lora_sizes import ADAPTERS, BATCH, FROZEN, RATE, SCALE, VOCAB, D, T, timed

Weights = dict[str, torch.Tensor]


def made(layers: int) -> tuple[Weights, Weights]:
    """Return frozen weights and adapters, by name."""
    torch.manual_seed(0)
    frozen = {"emb": torch.randn(VOCAB, D) * 0.02, "head": torch.randn(D, VOCAB) * 0.02}
    adapters = {}
    for layer in range(layers):
        frozen |= {f"{layer}.{name}": torch.randn(shape) * 0.02 for name, shape in FROZEN.items()}
        adapters |= {f"{layer}.{name}": (torch.randn(s) * 0.02).requires_grad_() for name, s in ADAPTERS.items()}
    return frozen, adapters


def norm(x: torch.Tensor) -> torch.Tensor:
    """Return the layer norm without weights."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def loss(frozen: Weights, adapters: Weights, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy."""
    h = frozen["emb"][x]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    for layer in range(len(adapters) // 4):
        w, a = ({name: held[f"{layer}.{name}"] for name in of} for held, of in ((frozen, FROZEN), (adapters, ADAPTERS)))
        n = norm(h)
        q, k, v = (n @ w["qkv"] + SCALE * ((n @ a["qkv_a"]) @ a["qkv_b"])).chunk(3, -1)
        s = torch.where(mask, q @ k.transpose(-1, -2) / D**0.5, -1e9)
        c = torch.softmax(s, -1) @ v
        h = h + c @ w["o"] + SCALE * ((c @ a["o_a"]) @ a["o_b"])
        h = h + torch.nn.functional.gelu(norm(h) @ w["w1"], approximate="tanh") @ w["w2"]
    logits = torch.log_softmax(norm(h) @ frozen["head"], -1)
    return -logits.gather(-1, y.unsqueeze(-1)).mean()


def main() -> None:
    """Run, record or compile, and write."""
    mode, target, layers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2
    torch.set_num_threads(1)
    frozen, adapters = made(layers)
    momenta = {name: torch.zeros_like(row) for name, row in adapters.items()}
    x, y = torch.randint(0, VOCAB, (BATCH, T)), torch.randint(0, VOCAB, (BATCH, T))

    def step(of: Callable[..., torch.Tensor]) -> float:
        value = of(frozen, adapters, x, y)
        value.backward()
        with torch.no_grad():
            for name, row in adapters.items():
                momenta[name].mul_(0.9).add_(row.grad)
                row.sub_(momenta[name], alpha=RATE)
                row.grad = None
        return float(value.detach())

    run = loss
    if mode == "inductor":
        from torch._inductor.utils import run_and_get_code

        run = torch.compile(loss, fullgraph=True)
        _, codes = run_and_get_code(lambda: step(run))
        target.mkdir(parents=True, exist_ok=True)
        for number, code in enumerate(codes):
            (target / f"graph{number}.py").write_text(code, encoding="utf-8")
    else:
        try:
            from allocsim import write
            from allocsim.systems.torch import record
        except ImportError as error:
            sys.exit(f"to record, {sys.executable} needs {error.name} too: pip install numpy msgspec lazy-loader")
        step(run)
        with record({**frozen, **adapters}, name="lora step, torch eager") as recording:
            step(run)
        write(recording.document, target)
        print(*recording.lines(), sep="\n", file=sys.stderr)
    timed(partial(step, run))


if __name__ == "__main__":
    main()
