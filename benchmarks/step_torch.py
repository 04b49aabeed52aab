"""The other side of the step benchmark: the same model and the same step in PyTorch, written as one writes it.

RMSNorm, rotary positions, grouped-query attention, SwiGLU, frozen weights, rank-r LoRA on q and v, cross entropy, SGD on the adapters. Needs
torch and numpy, nothing of this project. With `weights` (an .npz) it starts from those, so that losses can be compared.
"""

import math
from typing import Any

import numpy as np
import step_serving
import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """x / sqrt(mean(x * x) + eps) * gain."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Adapted(nn.Module):
    """A frozen projection with a trainable low-rank one beside it."""

    def __init__(self, inner: int, outer: int, rank: int, scale: float) -> None:
        super().__init__()
        self.base = frozen(inner, outer)
        self.a = nn.Parameter(torch.randn(rank, inner) / math.sqrt(inner))
        self.b = nn.Parameter(torch.randn(outer, rank) / math.sqrt(rank))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Project the last axis."""
        return self.base(x) + functional.linear(functional.linear(x, self.a), self.b) * self.scale


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and round a residual."""

    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        hidden, ffn, self.size = c["hidden"], c["ffn"], c["hidden"] // c["heads"]
        kv, scale = self.size * c["kv_heads"], c["alpha"] / c["rank"]
        self.repeats = c["heads"] // c["kv_heads"]
        self.attn_norm, self.ffn_norm = RMSNorm(hidden, c["eps"]), RMSNorm(hidden, c["eps"])
        self.attn_q, self.attn_v = Adapted(hidden, hidden, c["rank"], scale), Adapted(hidden, kv, c["rank"], scale)
        self.attn_k, self.attn_output = frozen(hidden, kv), frozen(hidden, hidden)
        self.ffn_gate, self.ffn_up, self.ffn_down = frozen(hidden, ffn), frozen(hidden, ffn), frozen(ffn, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Return x after one layer; x is [T, hidden]."""
        h, steps = self.attn_norm(x), len(x)
        q = rotate(self.attn_q(h).view(steps, -1, self.size).transpose(0, 1), cos, sin)
        k = rotate(self.attn_k(h).view(steps, -1, self.size).transpose(0, 1), cos, sin)
        k = k.repeat_interleave(self.repeats, 0)
        v = self.attn_v(h).view(steps, -1, self.size).transpose(0, 1).repeat_interleave(self.repeats, 0)
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(self.size) + mask, -1)
        x = x + self.attn_output((weights @ v).transpose(0, 1).reshape(steps, -1))
        h = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Model(nn.Module):
    """Tied token table, layers, final norm."""

    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        self.token_embd = nn.Parameter(torch.randn(c["vocab"], c["hidden"]), requires_grad=False)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.output_norm = RMSNorm(c["hidden"], c["eps"])
        size = c["hidden"] // c["heads"]
        angles = torch.arange(c["seq"])[:, None] * c["rope_theta"] ** (-2.0 * torch.arange(size // 2) / size)
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos().float())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin().float())
        self.register_buffer("mask", torch.triu(torch.full((c["seq"], c["seq"]), -torch.inf), 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [T, vocab]."""
        x = self.token_embd[tokens]
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return functional.linear(self.output_norm(x), self.token_embd)


def frozen(inner: int, outer: int) -> nn.Linear:
    """Return a projection without bias that is not trained."""
    return nn.Linear(inner, outer, bias=False).requires_grad_(False)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + half) of x [heads, T, size]."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def load(model: Model, arrays: Any, c: dict[str, Any]) -> None:
    """Copy the engine's parameters into the model, rows of q and k in this code's order of pairs."""
    size = c["hidden"] // c["heads"]
    names = {"base.weight": "weight", "a": "lora_a", "b": "lora_b"}
    for name, parameter in model.named_parameters():
        theirs = name.replace("layers.", "layer.").replace("norm.weight", "norm")
        for ours, key in names.items():
            if theirs.endswith((f"attn_q.{ours}", f"attn_v.{ours}")):
                theirs = theirs.removesuffix(ours) + key
        parameter.data.copy_(torch.from_numpy(step_serving.halves(theirs, np.array(arrays[theirs]), size)))


def main() -> None:
    """Serve steps until standard input ends."""
    job = step_serving.job()
    torch.manual_seed(job["seed"])
    torch.set_num_threads(job["threads"])
    torch.set_flush_denormal(job.get("flush", False))
    model = Model(job["config"])
    tokens = torch.randint(job["config"]["vocab"], (job["config"]["seq"] + 1,))
    tokens, labels = tokens[:-1], tokens[1:]
    if job.get("weights"):
        arrays = np.load(job["weights"])
        load(model, arrays, job["config"])
        tokens, labels = torch.from_numpy(arrays["tokens"]).long(), torch.from_numpy(arrays["labels"]).long()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=job["learning_rate"])

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    step_serving.serve(job["warmup"], step, lambda: {"versions": {"torch": torch.__version__}})


if __name__ == "__main__":
    main()
