"""Random eager PyTorch programs, recorded and judged: an honest program must come out clean, a planted misuse must not.

    PYTHONPATH=. python-with-torch benchmarks/eager_programs.py [--programs N] [--first SEED] [--out FILE]

A program is drawn from its seed: operators, views, writes in place and through views, `out=`, temporaries that go and stay, and for half of them a
backward pass. PyTorch runs one kernel after the other on one thread and its allocator serves no live block twice, so every accusation of an honest
program is a false one. Beside each a second program ends with a product over its own operand (`torch.mm(a, b, out=a)`), whose numbers are compared
with those of a product into other memory: where they differ it must be convicted, and it must be the only thing that is.
"""

import random
import time
from collections import Counter

from harness import Found, run

import torch

from allocsim.judge.fast import check
from allocsim.systems.torch import record

N = 12


def drawn(rng: random.Random, *, grad: bool) -> torch.Tensor:
    """Run a program and return its last result."""
    kept = [torch.randn(N, N).requires_grad_(grad) for _ in range(3)]
    for _ in range(rng.randint(3, 25)):
        a, b = rng.choice(kept), rng.choice(kept)
        deed = rng.randrange(14)
        if deed < 5:
            made = (a + b, a * b, a @ b, a.relu(), torch.softmax(a, -1))[deed]
        elif deed == 5:
            made = a[rng.randrange(N) :].sum(0).expand(N, N)
        elif deed == 6:
            made = a.t()
        elif deed == 7:
            made = torch.cat([a[: N // 2], b[N // 2 :]])
        elif deed == 8:
            made = a.clone()
            made[rng.randrange(N)].mul_(0.5)
        elif deed == 9:
            made = a.contiguous().view(N * N)[torch.randperm(N * N)].reshape(N, N)
        elif deed == 10:
            made = a.double().float()
        elif deed == 11 and not grad:
            made = torch.add(a, b, out=torch.empty(N, N))
        elif deed == 12 and not grad:
            made = torch.sub(a, b, out=a if a.is_contiguous() and 0 not in a.stride() else torch.empty(0))
        else:
            made = torch.nn.functional.layer_norm(a, (N,))
        kept.append(made)
        if len(kept) > 4:
            kept.pop(rng.randrange(len(kept)))
    last = sum(kept)
    if grad and last.requires_grad:
        last.square().mean().backward()
    return last.detach()


def measure(*, programs: int = 1000, first: int = 0) -> Found:
    """Draw, record, judge and count."""
    counted: Counter[str] = Counter()
    wrong: dict[str, list[int]] = {"accused": [], "missed": []}
    begin = time.process_time()
    for seed in range(first, first + programs):
        rng = random.Random(seed)  # noqa: S311 - cases, not secrets
        torch.manual_seed(seed)
        with record() as honest:
            drawn(rng, grad=seed % 2 == 0)
        report = check(honest.document)
        counted["clean" if not report.violations else "accused"] += 1
        counted["ops"] += report.stats.ops
        counted["exact aliases nobody vouches for"] += sum(w.kind == "AssumedInPlace" for w in report.warnings)
        wrong["accused"] += [seed] if report.violations else []
        a, b = torch.randn(N, N), torch.randn(N, N)
        right = a @ b
        with record() as planted:
            a.mul_(1)
            torch.mm(a, b, out=a)
        kinds = {v.kind for v in check(planted.document).violations}
        counted["planted: numbers differ"] += not torch.equal(a, right)
        counted["planted: convicted"] += kinds == {"UnsafeInPlace"}
        wrong["missed"] += [seed] if kinds != {"UnsafeInPlace"} else []
    return {
        "version": torch.__version__, "programs": programs, "first": first,
        "counts": dict(sorted(counted.items())), **wrong, "cpu_seconds": round(time.process_time() - begin, 1),
    }  # fmt: skip


if __name__ == "__main__":
    run(measure, failed=("accused", "missed"))
