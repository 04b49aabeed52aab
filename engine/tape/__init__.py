"""The second executor: all ops of a program in one call of compiled code.

It works in the memory that a plan gives them.

    tape = Tape(program, kernels=..., kernel_of=..., address=..., call=...)
    for function, args in tape.calls:
        function(*args)

A tape is a row of entries in execution order: a form (what all ops that are alike share:
`engine.tape.forms`) and the addresses of the arrays it touches. It is made in columns: each form is
bound once, and each op costs a few words, not a Python object. Playing it costs some 10 ns an entry
beside what the kernels do (`engine.tape.machine`).

The same bits as the list of calls, under any plan, sound or not: the entries call the same machine
code (numba's, numpy's inner loops, BLAS through numpy's matmul) with the same arguments. Where
numpy would copy operands first, since they overlap a result, and where a call has no form, the op
stays a call from Python between two stretches of tape: `tape.calls` is then longer than one.

Invariants: addresses do not change; whoever owns the memory outlives the tape. Nothing is observed
on a tape: whoever wants to see single ops runs the calls.

What this module does not see: what an op means, which plan this is, and whether an address lies
inside its memory (`engine.runtime` checks).
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.model import Int32s, Program
from allocsim.model.layout import Int64s
from engine.kernels.binding import Call, Kernel
from engine.tape import machine
from engine.tape.forms import ELSEWHERE, Form, TapeLayout, form_of
from engine.tape.grouping import groups, padded
from engine.tape.loops import ANYHOW, APART, EXACTLY

__all__ = ["Tape"]

NO_KERNEL: Final = -1
"""Kernel of a step at which nothing is executed: views and the host's ops."""

_play: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(machine.play.address)


class Tape:
    """A program bound to memory; see the module header."""

    def __init__(
        self,
        program: Program,
        *,
        kernels: Sequence[tuple[Kernel, Mapping[str, Any]]],
        kernel_of: Int32s,
        address: Int64s,
        call: Callable[[int], Call],
        dtypes: Mapping[str, np.dtype[Any]],
    ) -> None:
        """Bind every op.

        Args:
            program: what to run.
            kernels: the distinct kernels, each with the parameters it is bound with.
            kernel_of: for each step an index into `kernels`, or `NO_KERNEL`.
            address: for each value the address of its element 0.
            call: binds one step the ordinary way; asked for those that have no form.
            dtypes: numpy's dtype for each dtype of the program.

        Raises:
            EngineError: a kernel refuses its operands.
        """
        self._program = program
        self._kernels, self._dtypes = kernels, dtypes
        ops = program.ops
        steps = np.flatnonzero(kernel_of != NO_KERNEL)
        self._steps = steps
        operands = padded(ops.operand_starts, ops.operands, steps)
        results = padded(ops.result_starts, ops.results, steps)
        layout = _layouts(program)
        alike = (*operands, *results)
        samples, group = groups([kernel_of[steps], *(np.where(c >= 0, layout[c], -1) for c in alike)])
        self._forms = [self._form(step, int(kernel_of[step])) for step in steps[samples].tolist()]
        apart = self._called(operands, results, group, address, layout)
        self._write(operands, results, group, apart)
        self._apart, self._call = apart, call
        self.calls: tuple[Call, ...] = ()
        """What to call, in order: stretches of tape, and ops that have none."""
        self.move(address)

    @property
    def entries(self) -> int:
        """Entries on the tape."""
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        return sum(c.nbytes for c in (self._codes, self._own, self._value, self._delta, self._shared, self._drivers))

    def _form(self, step: int, kernel: int) -> Form | None:
        """Return the form of the ops like that of `step`."""
        op, values = self._program.ops[step], self._program.values
        operands, results = (
            tuple(
                TapeLayout(dtype=self._dtypes[value.dtype], shape=value.shape, strides=value.strides)
                for value in (values[index] for index in indices)
            )
            for indices in (op.operands, op.results)
        )
        bound, params = self._kernels[kernel]
        return form_of(bound.bind, params, operands, results)

    def _called(
        self, operands: list[Int64s], results: list[Int64s], group: Int64s, address: Int64s, layout: Int64s
    ) -> NDArray[np.bool_]:
        """Return which ops stay calls: those without a form, or whose overlap numpy would copy."""
        overlap = np.array([APART if form is None else _overlap(form) for form in self._forms], np.int64)[group]
        apart = np.array([form is None for form in self._forms], np.bool_)[group]
        hulls = self._program.values.hulls - self._program.values.offset[:, None] + address[:, None]
        for a in operands:
            for b in results:
                meet = (a >= 0) & (b >= 0) & (hulls[a, 0] < hulls[b, 1]) & (hulls[b, 0] < hulls[a, 1])
                exact = (address[a] == address[b]) & (layout[a] == layout[b])
                apart |= meet & (overlap < np.where(exact, EXACTLY, ANYHOW))
        return apart

    def move(self, address: Int64s) -> None:
        """Bind the ops again to values elsewhere; the same ones must overlap as before."""
        self._own[:] = np.append(address, 0)[self._value] + self._delta
        self.calls = self._stretches(self._steps, self._apart, self._call)

    def _write(self, operands: list[Int64s], results: list[Int64s], group: Int64s, apart: NDArray[np.bool_]) -> None:
        """Lay out the codes and the own words of all entries, form by form."""
        entries = [form or () for form in self._forms]
        first = _sums([len(form) for form in entries])
        widths = np.array([sum(len(entry.place) for entry in parts) for parts in entries], np.int64)
        self._entry_at = _sums(np.where(apart, 0, np.diff(first)[group]))
        self._own_at = _sums(np.where(apart, 0, widths[group]))
        self._codes = np.empty(self._entry_at[-1], np.int64)
        self._own = np.empty(self._own_at[-1], np.int64)
        self._value, self._delta = np.empty_like(self._own), np.empty_like(self._own)
        nowhere = len(self._program.values)
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(entries) + 1))
        for index, parts in enumerate(entries):
            rows = order[bounds[index] : bounds[index + 1]]
            rows = rows[~apart[rows]]
            if not len(rows):
                continue
            touched = [column[rows] for column in operands if column[rows[0]] >= 0]
            touched += [column[rows] for column in results if column[rows[0]] >= 0]
            at = self._own_at[rows]
            for position, entry in enumerate(parts):
                self._codes[self._entry_at[rows] + position] = ((first[index] + position) << 16) | len(entry.place)
                for place, delta in zip(entry.place, entry.delta, strict=True):
                    self._value[at] = nowhere if place == ELSEWHERE else touched[place]
                    self._delta[at] = delta
                    at = at + 1
        table = [entry for parts in entries for entry in parts]
        self._shared = np.array([entry.shared.ctypes.data for entry in table], np.int64)
        self._drivers = np.array([entry.driver for entry in table], np.int64)

    def _stretches(self, steps: Int64s, apart: Any, call: Callable[[int], Call]) -> tuple[Call, ...]:
        found: list[Call] = []
        cuts = np.flatnonzero(apart).tolist()
        for before, here in pairwise([-1, *cuts, len(steps)]):
            first, last = int(self._entry_at[before + 1]), int(self._entry_at[here])
            if last > first:
                found.append((self._stretch, (first, last - first, int(self._own_at[before + 1]))))
            if here < len(steps):
                found.append(call(int(steps[here])))
        return tuple(found)

    def _stretch(self, first: int, count: int, own: int) -> None:
        codes, words = self._codes.ctypes.data + 8 * first, self._own.ctypes.data + 8 * own
        failed = _play(codes, count, self._drivers.ctypes.data, self._shared.ctypes.data, words)
        if failed >= 0:
            step = int(self._steps[np.searchsorted(self._entry_at, first + failed, side="right") - 1])
            raise EngineError(f"the kernel of op {step} ({self._program.ops.called(step)!r}) raised an exception")


def _overlap(form: Form) -> int:
    """Return which overlap of a result with an operand all entries of a form allow."""
    return min((entry.overlap for entry in form), default=ANYHOW)


def _layouts(program: Program) -> Int64s:
    """Return a number for each value, equal for values of one dtype, shape and strides."""
    values = program.values
    rows = np.arange(len(values))
    dims = (column for flat in (values.shape, values.strides) for column in padded(values.dim_starts, flat, rows))
    return groups([values.dtype, np.diff(values.dim_starts), *dims])[1]


def _sums(counts: Any) -> Int64s:
    """Return where each of several parts begins, and the end."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
