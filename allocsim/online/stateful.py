"""A Hypothesis state machine for an online allocator, for tests of one's own.

    from allocsim.online.stateful import state_machine

    TestMyPool = state_machine(my_pool.make, capacity=1 << 16).TestCase

Its one rule is a call of the driver (`allocsim.online.driver`), which keeps the caller's promises
and holds each answer to the allocator's; what is left at the end is freed and must come back.
Calls that the target has no method for do nothing.

What this module does not see: shapes of real use; `allocsim fuzz --online` draws those.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from allocsim.online.campaign import Judge
from allocsim.online.driver import Call
from allocsim.online.protocol import Make
from allocsim.online.sequences import Sequence


def state_machine(
    make: Make, *, capacity: int | None = 1 << 16, alignment: int = 64, streams: int = 1
) -> type[RuleBasedStateMachine]:
    """Return the class of a state machine that drives targets of `make`.

    Args:
        make: `(capacity, alignment, device)` to a target.
        capacity: in bytes; None is unbounded.
        alignment: in bytes, a power of two.
        streams: how many use the memory.
    """
    handles, flags = st.integers(0, 7), st.booleans()
    numbers, steps = st.integers(0, streams - 1), st.integers(0, 3)
    sizes = st.integers(1, capacity or 1 << 20)
    groups = st.lists(handles, min_size=1, max_size=3, unique=True).map(tuple)
    calls = st.one_of(
        st.tuples(st.just("alloc"), handles, sizes, st.just(alignment), numbers),
        st.tuples(st.just("free"), handles, flags),
        st.tuples(st.just("use"), numbers, groups, flags),
        st.tuples(st.just("realloc"), handles, sizes),
        st.tuples(st.just("share"), handles, handles, st.integers(0, 2)),
        st.tuples(st.just("part"), handles, st.integers(0, 2), st.integers(1, 2)),
        st.tuples(st.sampled_from(("write", "count")), handles),
        st.tuples(st.just("begin"), steps, numbers, groups),
        st.tuples(st.just("end"), steps),
        st.tuples(st.sampled_from(("advance", "synchronize")), numbers),
        st.tuples(st.just("reserve"), sizes, numbers),
        st.tuples(st.just("trim")),
    )
    empty = Sequence(shape="machine", capacity=capacity, alignment=alignment, streams=streams, calls=())
    judge = Judge(make=make)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.driver = judge.driver(empty)

        @rule(call=calls)
        def call(self, call: Call) -> None:
            self.driver.step(call)

        def teardown(self) -> None:
            if self.driver.sound:  # else the broken promise has been told already
                self.driver.finish(judge.largest(empty, self.driver.abilities))

    return Machine
