"""States: tensors that a model keeps from one run to the next and writes itself.

    class Counter(Module):
        def __init__(self):
            self.seen = state(np.zeros(1))

        def forward(self, data):
            with no_grad():
                self.seen.add_(1.0)
            return data * self.seen

Running statistics, moving averages and caches are states. They are neither trained nor constants:
what changes them in place (`copy_`, `add_`, `x[...] = y`) is, in a recorded model, part of the
program. There the new value is laid over the old one at the end of the run, when nothing reads the
old one any more, and the next run begins with it. States start from what they were made of, lie
outside of the arenas, are judged across runs by detector R, saved in checkpoints, and shared by all
builds of a trainer: what training writes, `predict` and validation read. These write none: what a
model is shown to be looked at leaves no trace in it. Within their run they read what they lay.

A state holds numbers without history. What is written, through a view of it too, is computed under
`no_grad()`, or detached.

What this module does not see: graphs, trainers.
"""

from typing import Any

from engine.front.tensors import EagerTensor, tensor


class State(EagerTensor):
    """A tensor that a model keeps; see the module header."""

    __slots__ = ()
    kept = True


def state(data: Any, *, dtype: Any = None, name: str = "") -> State:
    """Return a state that starts from a copy of `data`; arguments and errors as of `tensor`."""
    made = tensor(data, dtype=dtype, name=name)
    made._node.storage.changes.kept = True  # noqa: SLF001 - of ours
    return State(made._node, made.shape)  # noqa: SLF001 - of ours
