"""Two planners as another project would offer them: a placement, and an online allocator made a planner."""

from allocsim.allocators.driven_online import allocator


def stacked(problem):
    """Put every buffer on top of the one before, each arena for itself."""
    tops = [0] * len(problem.program.arenas)
    offsets = []
    for buffer, nbytes in enumerate(problem.nbytes.tolist()):
        arena, step = int(problem.program.buffers.arena[buffer]), int(problem.program.buffers.alignment[buffer])
        offsets.append(-(-tops[arena] // step) * step)
        tops[arena] = offsets[-1] + nbytes
    return offsets


class Bump:
    """Never gives anything back."""

    def __init__(self, capacity, alignment):
        self.capacity, self.top = capacity, 0

    def alloc(self, nbytes, alignment):
        offset = -(-self.top // alignment) * alignment
        if self.capacity is not None and offset + nbytes > self.capacity:
            return None
        self.top = offset + nbytes
        return offset

    def free(self, offset, nbytes):
        pass


BUMP = allocator("bump", Bump, source="a plugin")
