"""Measure one row of the audit: a kernel, an operand, a result and a layout.

Every arrangement of every case is run and compared with a run whose arrays lie apart.

* A run is safe if each bit of the result is what it is with all results in memory of their own;
  with `special` data two NaNs are equal whatever their payload. `max_error` is max |over - apart| /
  max |apart| over the worst run; infinite where one run has a NaN or an infinity that the other has
  not.
* Of each case and arrangement a canary is measured first, on the same data and in the same way: a
  kernel that clears its result before it reads the operand. One that is not caught is an error of
  the audit, not a finding: the alias did not happen, or the data hide it.
* `apart` is unsafe where the result depends on what was in its memory before, or an operand is not
  what it was.
* What is safe although the result never depended on the operand was lucky, and is called
  `not reached`.

What this module does not see: tables, processes, and what anybody believes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, Final, Literal

import numpy as np

from allocsim.errors import EngineError
from engine.k_audit.arranged_memory import Array, Draw, alone, canary, draw, lay, redden, tell
from engine.k_audit.arrangements import LAYOUTS, READING, Arrangement, apart, likes
from engine.k_audit.audit_cases import AuditCase
from engine.kernels import Kernel
from engine.kernels.binding import Pairs
from engine.runtime.plan_memory import finfo

Measured = Literal["safe", "unsafe", "not applicable", "not reached", "crashed", "hung"]

DATA: Final = ("distinct", "special")
"""The draws in layouts that a contract may permit; elsewhere only the first is made."""

PERMITTED: Final = frozenset({"apart", "over", "duplicate over"})

ROUNDING: Final = 256
"""Machine epsilons by which a kernel may round otherwise: one that is given one operand twice
(`x @ x.T` is another BLAS call than `x @ y`), and one that allows any overlap, since it copies what
it must not write over (numpy's loops of vectors then begin at another address)."""

FEW: Final = 8
"""Cases in layouts that no contract permits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """What was measured for one kernel, one (operand, result) pair and one layout."""

    kind: str
    variant: str
    operand: int
    result: int
    layout: str
    """A key of `LAYOUTS`."""
    declared: bool | None
    """Whether the author promises it; None: nothing is declared either way."""
    measured: Measured
    """`not applicable`: in no case can the arrays lie so."""
    max_error: float
    """Worst relative error against the run apart; 0 where safe."""
    cases: int
    """Cases that could be and were run."""
    runs: int
    """Runs that were compared with a run apart: cases, arrangements and draws."""
    unsafe: int
    """Of them."""
    dtypes: tuple[str, ...]
    """Of the cases' results."""
    smallest: AuditCase | None
    """The failing case with the fewest elements in its result."""
    words: str
    """What was unsafe first: arrangement, data, and what happened."""
    sample: AuditCase | None
    """A case that can lie so, the smallest failing one if there is one."""
    in_place: Pairs
    """What the kernel declares, as `Kernel`."""
    overlap: str
    by_size: tuple[tuple[int, int, int], ...] = ()
    """(elements of the result, runs, unsafe)."""
    by_data: tuple[tuple[str, int, int], ...] = ()
    """(data, runs, unsafe)."""

    @property
    def broken(self) -> bool:
        """Whether the kernel breaks its declaration: the defect this detector is for."""
        return bool(self.declared) and self.measured in {"unsafe", "crashed", "hung"}


@dataclass(slots=True)
class _Tally:
    runs: Counter[Any] = field(default_factory=Counter)
    unsafe: Counter[Any] = field(default_factory=Counter)
    cases: list[AuditCase] = field(default_factory=list)
    failing: list[AuditCase] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    words: str = ""


def measure(
    kernel: Kernel, group: Sequence[AuditCase], pair: tuple[int, int], layout: str, *, seed: int = 0, draws: Draw = draw
) -> AuditRow:
    """Measure one row over the cases of one kernel.

    Raises EngineError where a kernel cannot be bound to a case as it stands.
    """
    tally = _Tally()
    for case in group if layout in PERMITTED or kernel.overlap == "any" else _few(group):
        if pair[0] < len(case.operands) and pair[1] < len(case.results):
            _case(tally, kernel, case, pair, layout, seed=seed, draws=draws)
    smallest = min(tally.failing, key=lambda case: case.elements, default=None)
    ran = sum(tally.runs[name] for name in DATA)
    bad = sum(tally.unsafe[name] for name in DATA)
    measured: Measured = "unsafe" if bad else "safe" if ran else "not applicable"
    if measured == "safe" and layout not in READING and not _depends(kernel, tally.cases, pair, seed, draws):
        measured = "not reached"
    return AuditRow(
        kind=group[0].kind,
        variant=group[0].variant or "",
        operand=pair[0],
        result=pair[1],
        layout=layout,
        declared=promised(kernel, tally.cases or group, pair, layout),
        measured=measured,
        max_error=max(tally.errors, default=0.0),
        cases=len(tally.cases),
        runs=ran,
        unsafe=bad,
        dtypes=tuple(sorted({case.results[pair[1]].dtype for case in tally.cases})),
        smallest=smallest,
        words=tally.words,
        sample=smallest or next(iter(tally.cases), None),
        in_place=kernel.in_place,
        overlap=kernel.overlap,
        by_size=tuple(
            (size, tally.runs[size], tally.unsafe[size]) for size in sorted(n for n in tally.runs if isinstance(n, int))
        ),
        by_data=tuple((name, tally.runs[name], tally.unsafe[name]) for name in DATA if tally.runs[name]),
    )


def unmeasured(
    kernel: Kernel, group: Sequence[AuditCase], pair: tuple[int, int], layout: str, *, words: str
) -> AuditRow:
    """Return the row of what did not come to the test."""
    fits = (case for case in group if pair[0] < len(case.operands) and pair[1] < len(case.results))
    return AuditRow(
        kind=group[0].kind, variant=group[0].variant or "", operand=pair[0], result=pair[1], layout=layout,
        declared=promised(kernel, group, pair, layout), measured="not reached", max_error=0.0, cases=0, runs=0, unsafe=0, dtypes=(),
        smallest=None, words=words, sample=next((case for case in fits if any(LAYOUTS[layout](case, *pair))), None),
        in_place=kernel.in_place, overlap=kernel.overlap,
    )  # fmt: skip


def _few(group: Sequence[AuditCase]) -> list[AuditCase]:
    """Return at most `FEW` cases, one for each size of the largest array, both ends included."""
    sizes = {max(prod(spec.shape) for spec in (*case.operands, *case.results)): case for case in reversed(group)}
    kept = sorted(sizes)
    if len(kept) > FEW:
        kept = [kept[round(n * (len(kept) - 1) / (FEW - 1))] for n in range(FEW)]
    return [sizes[size] for size in kept]


def promised(kernel: Kernel, cases: Sequence[AuditCase], pair: tuple[int, int], layout: str) -> bool | None:
    """Return what the kernel's author says of a layout; None where nothing is said."""
    if layout in READING or kernel.overlap == "any":
        return True
    if layout not in {"over", "duplicate over"}:
        return False
    if kernel.overlap == "unknown":
        return None
    operands = (
        {pair[0]}
        if layout == "over"
        else {n for case in cases if pair[0] < len(case.operands) for n in likes(case, pair[0])}
    )
    return all((operand, pair[1]) in kernel.in_place for operand in operands)


def _case(
    tally: _Tally, kernel: Kernel, case: AuditCase, pair: tuple[int, int], layout: str, *, seed: int, draws: Draw
) -> None:
    hows = DATA if layout in PERMITTED else DATA[:1]
    data: list[list[Array]] = []
    ran = False
    for arrangement in LAYOUTS[layout](case, *pair):
        data = data or [
            [draws(case, n, np.random.default_rng([seed, number, n]), how) for n in range(len(case.operands))]
            for number, how in enumerate(hows)
        ]
        _catch(case, arrangement, data[0])
        for how, values in zip(hows, data, strict=True):
            found = _judge(kernel, case, pair, layout, arrangement=arrangement, data=values, exact=how != "special")
            if found is None:
                break
            error, words = found
            ran = True
            for key in (how, case.elements):
                tally.runs[key] += 1
                tally.unsafe[key] += error > 0
            if error > 0:
                tally.errors.append(error)
                tally.failing.append(case)
                spec = case.results[pair[1]]
                tally.words = tally.words or f"{words}: {spec.dtype}{list(spec.shape)}, {how} data"
    if ran:
        tally.cases.append(case)


def _judge(
    kernel: Kernel,
    case: AuditCase,
    pair: tuple[int, int],
    layout: str,
    *,
    arrangement: Arrangement,
    data: list[Array],
    exact: bool,
) -> tuple[float, str] | None:
    """Return the error of one run, 0 where safe, and what it is.

    Returns None where the kernel does not take arrays that lie so.
    """
    ran = _play(kernel, case, arrangement, data, 0, optional=layout in {"views", "duplicate"})
    if ran is None:
        return None
    results, seen, after = ran
    if layout in READING:
        for n, (before, now) in enumerate(zip(seen, after, strict=True)):
            if before.tobytes() != now.tobytes():
                return inf, f"writes operand {n}"
    reference = _play(
        kernel, case, alone(arrangement, twins=layout != "duplicate"), seen, 1 if layout == "apart" else 0
    )
    assert reference is not None
    want, found = reference[0][pair[1]], results[pair[1]]
    error = _difference(want, found, exact=exact)
    if layout == "apart":
        return error, "the result depends on what was in its memory before"
    rounds = layout == "duplicate" or (kernel.overlap == "any" and layout not in PERMITTED)
    if rounds and want.dtype.kind == "f" and error < ROUNDING * float(finfo(want.dtype).eps):
        error = 0.0
    return error, arrangement.words


def _catch(case: AuditCase, arrangement: Arrangement, data: list[Array]) -> None:
    """Raise EngineError unless a kernel that clears its result first is caught here.

    Arrangement and data are those of the measurement.
    """
    for operand, result in arrangement.over:
        ran = _play(canary(operand), case, arrangement, data, 0)
        assert ran is not None
        clear = np.empty_like(ran[0][result])
        tell(clear, ran[1][operand])
        if _difference(clear, ran[0][result], exact=True) == 0:
            raise EngineError(
                f"audit of {case.kind}: {arrangement.words}: a kernel that clears its result first is not caught"
            )


def _play(
    kernel: Kernel,
    case: AuditCase,
    arrangement: Arrangement,
    data: Sequence[Array],
    red: int,
    *,
    optional: bool = False,
) -> tuple[list[Array], list[Array], list[Array]] | None:
    """Run a kernel once; return its results, and its operands before and after, all as copies.

    With `optional`, None where the kernel is not to be bound to arrays that lie so.
    """
    try:
        arrays = lay(arrangement)
    except EngineError as error:
        raise EngineError(f"audit of {case.kind}: {error}") from error
    operands, results = arrays[: arrangement.operands], arrays[arrangement.operands :]
    for result in results:
        redden(result, red)
    for operand, values in zip(operands, data, strict=True):
        np.copyto(operand, values)
    seen = [np.array(operand, order="C") for operand in operands]
    try:
        function, args = kernel.bind(case.params, operands, results)
    except EngineError as error:
        if optional:
            return None
        raise EngineError(f"audit of {case.kind}/{case.variant}: {error}") from error
    try:
        with np.errstate(all="ignore"):
            function(*args)
    except Exception as error:
        if optional:
            return None
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise EngineError(f"audit of {case.kind}: {arrangement.words}: it raised {said}") from error
    return (
        [np.array(result, order="C") for result in results],
        seen,
        [np.array(operand, order="C") for operand in operands],
    )


def _difference(reference: Array, found: Array, *, exact: bool) -> float:
    """Return the relative error, 0 where every bit agrees; NaNs agree unless `exact`."""
    if reference.tobytes() == found.tobytes():
        return 0.0
    a, b = (array.astype("f8") for array in (reference, found))
    if not exact:
        same = np.isnan(a) & np.isnan(b)
        bits = [np.where(same, 0, array).tobytes() for array in (reference, found)]
        if bits[0] == bits[1]:
            return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        gap, scale = np.abs(a - b).max(), np.abs(a).max()
    return float(gap / scale) if np.isfinite(gap) and gap > 0 and scale > 0 else inf


def _depends(kernel: Kernel, cases: Sequence[AuditCase], pair: tuple[int, int], seed: int, draws: Draw) -> bool:
    """Return whether another operand gives another result in some case."""
    for case in cases:
        data = [draws(case, n, np.random.default_rng([seed, 0, n]), "distinct") for n in range(len(case.operands))]
        other = list(data)
        other[pair[0]] = draws(case, pair[0], np.random.default_rng([seed, 7, pair[0]]), "distinct")
        one, two = (_play(kernel, case, apart(case), values, 0) for values in (data, other))
        assert one is not None
        assert two is not None
        if one[0][pair[1]].tobytes() != two[0][pair[1]].tobytes():
            return True
    return False
