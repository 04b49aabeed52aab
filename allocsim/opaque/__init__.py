"""A plan executed: every op with an opaque kernel, each buffer in its slot, beside a run with
memory of its own for each value.

    told = told_by_replay(document, [cause.violations for cause in causes])
    told.numbers        for each of them a sentence with the numbers that differ, or RULE_ALONE
    told.unaccounted    a read that differs where nothing was found

**Opaque kernels.** A kernel is a hash: every number that an op writes depends on the op, on its
place in the result, and on every number that it read. Uploads differ from run to run, and `same`
moves numbers. So any program can be run, whatever its kinds, and a wrong byte shows in whatever is
made of it. Any real kernel is a function of what it reads, so where these numbers agree its numbers
do (a law of the tests, with sums and products). The reverse is not claimed: two ops never make
equal numbers here, and a real kernel may by chance (zeros over zeros). Nor would NumPy's kernels
tell more: in what order one reads that writes over its operand, the runtime's own decides.

**In place.** A kernel is the worst that keeps its promises. It reads each operand before it writes,
as far as the document vouches for the pair as the plan lays it: `exact` from one address in one
layout, `bytes` from one address into no more bytes, `whole` anywhere, and where nobody knows, as
`exact`. What a result covers beyond that is read after the result was written, as a kernel does
that clears its result and adds to it. That is all that a document carries of the order in which
elements are read: importers that compute it (`allocsim.systems.xla.hlo_windows`, `hlo_in_place`)
hand it on as these pairs.

**Three memories.** *Apart*: one memory for each buffer, and a read of a value that an op made gets
what that op gave to it (one memory a value, so the program's own late reads show too). *Planned*:
buffers lie in their slots, and ops write what they would have written apart, so each read is right
or wrong by itself and one fault is not counted again by those who read it on. *Followed*: the same
slots, and ops write what follows from what they read, which tells what the host finds in the end.

**Cells.** Memory is cut where any value, any slot or any `same` begins or ends, in every buffer
that ever lies there, until nothing is cut any further. Between two cuts every access takes all or
nothing, so one number of 64 bits stands for all bits of a *cell*: the numbers of a cell are equal
in two memories if and only if all its bytes hold what the same write left at the same place, but
for chance (2^-64 a cell). Nothing is sampled, and size costs nothing. Numbers shown are the first
four bytes of a cell. More than `CELLS` cells, or `MOST` numbers read and written, are not replayed,
and it is said so.

**Order.** That of the list; a race is replayed in an order in which the later op goes just before
the earlier one, with what it waits for, and is told by the first read that is wrong in one of the
two orders and not the same in the other. Runs follow the session; sizes with a range are at
`nbytes`.

Complexity: O(numbers read and written), once more for each race that is asked about; cutting is
O(cells x log) for each round, of which there are as many as a cut has to travel.

What this package does not see: real numbers (detectors D and P execute kernels), what a kernel does
beyond its promises (K), what a slot does not fit (a slot that is too small or misaligned has memory
here), content of persistent buffers that no op reads any more, and packed elements of one byte that
two ops write without an order (hardware writes whole bytes; here each bit is its own).
"""

from allocsim.opaque.memory_cells import CELLS, MOST
from allocsim.opaque.replay_answers import MEASURED, NOT_TRIED, RULE_ALONE, UNASKED, ReplayAnswer, told_by_replay

__all__ = ["CELLS", "MEASURED", "MOST", "NOT_TRIED", "RULE_ALONE", "UNASKED", "ReplayAnswer", "told_by_replay"]
