"""The free-block allocator on hand-computed cases; sizes are in bytes, the alignment is 1 unless it matters."""

from math import lcm

from allocsim.allocators.ggml_kernel import alloc, empty, give, reserve

NO_ROOM = (-1, -1)


class Memory:
    """One memory under the compiled functions."""

    def __init__(self, alignment, capacities):
        self.alignment = alignment
        self.blocks, self.chunks = empty([(alignment, capacities)], 16)

    def alloc(self, nbytes, alignment=1):
        return alloc(self.blocks, self.chunks, 0, nbytes, lcm(self.alignment, alignment))

    def free(self, chunk, offset, nbytes):
        if nbytes:
            give(self.blocks, self.chunks, chunk, offset, offset - (-nbytes // self.alignment) * self.alignment)

    def reserve(self, chunk, offset, nbytes):
        unit = self.alignment
        self.chunks.open[0] = max(self.chunks.open[0], chunk + 1)
        reserve(self.blocks, self.chunks, chunk, offset // unit * unit, -(-(offset + nbytes) // unit) * unit)


def holes(*ranges, total=1000, alignment=1):
    """A memory of one chunk that is full but for `ranges` below `total`, and free above it."""
    memory = Memory(alignment, [None])
    assert memory.alloc(total) == (0, 0)
    for start, stop in ranges:
        memory.free(0, start, stop - start)
    return memory


def free_blocks(memory, chunk=0):
    return [tuple(block) for block in memory.blocks[chunk, : memory.chunks.filled[chunk] - 1].tolist()]


def test_sizes_are_rounded_up_to_the_alignment():
    memory = Memory(32, [None])

    assert [memory.alloc(1), memory.alloc(33), memory.alloc(32)] == [(0, 0), (0, 32), (0, 96)]
    assert memory.chunks.used[0] == 128


def test_the_smallest_free_block_that_is_large_enough_is_taken_from_its_front():
    memory = holes((0, 50), (100, 120), (200, 230))

    assert memory.alloc(15) == (0, 100)
    assert free_blocks(memory) == [(0, 50), (115, 120), (200, 230)]


def test_of_two_equal_blocks_the_later_is_taken():
    memory = holes((0, 20), (100, 120), (200, 220), (300, 340))

    assert memory.alloc(20) == (0, 200)
    assert memory.alloc(20) == (0, 100)


def test_the_tail_is_used_only_where_no_other_block_fits():
    memory = holes((0, 500))

    assert memory.alloc(499) == (0, 0)
    assert memory.alloc(2) == (0, 1000)
    assert memory.chunks.used[0] == 1002


def test_free_space_at_the_end_is_part_of_the_tail_and_grows_the_buffer_only_by_what_is_missing():
    memory = Memory(1, [None])
    memory.alloc(100)
    memory.alloc(50)
    memory.free(0, 100, 50)

    assert memory.alloc(70) == (0, 100)
    assert memory.chunks.used[0] == 170


def test_freed_blocks_merge_with_both_neighbours():
    memory = holes((0, 10), (20, 30))

    memory.free(0, 10, 10)

    assert free_blocks(memory) == [(0, 30)]


def test_a_block_that_is_used_up_disappears():
    memory = holes((0, 10))

    memory.alloc(10)

    assert free_blocks(memory) == []


def test_a_fit_in_a_later_chunk_replaces_a_better_fit_in_an_earlier_one():
    """The best size is forgotten at each chunk."""
    memory = Memory(1, [100, 100])
    assert memory.alloc(90) == (0, 0)
    assert memory.alloc(90) == (1, 0)
    memory.free(0, 0, 10)
    memory.free(1, 0, 50)

    assert memory.alloc(10) == (1, 0)


def test_a_chunk_is_opened_only_where_no_open_chunk_has_room():
    memory = Memory(1, [100, 100])

    assert memory.alloc(60) == (0, 0)
    assert memory.alloc(60) == (1, 0)
    assert memory.chunks.open[0] == 2
    assert memory.alloc(40) == (0, 60)
    assert memory.alloc(41) == NO_ROOM


def test_among_tails_the_smallest_surplus_wins_over_growth_and_growth_by_less_over_growth_by_more():
    memory = Memory(1, [1000, 1000])
    memory.alloc(300)
    memory.alloc(900)
    memory.free(0, 100, 200)
    memory.free(1, 500, 400)
    assert memory.alloc(150) == (0, 100)  # 50 bytes stay unused there, 250 in the other chunk
    memory.free(0, 100, 150)

    assert memory.alloc(350) == (1, 500)  # fits below the mark of chunk 1; chunk 0 would grow by 150
    assert memory.alloc(250) == (0, 100)  # chunk 0 grows by 50, chunk 1 has no room


def test_capacity_bounds_the_bytes_asked_for_and_not_their_rounding():
    memory = Memory(32, [40])

    assert memory.alloc(30) == (0, 0)
    assert memory.alloc(9) == NO_ROOM
    assert memory.alloc(8) == (0, 32)


def test_a_larger_alignment_leaves_a_free_gap():
    memory = Memory(32, [None])
    memory.alloc(32)

    assert memory.alloc(32, alignment=128) == (0, 128)
    assert free_blocks(memory) == [(32, 128)]
    assert memory.alloc(96) == (0, 32)


def test_an_alignment_that_does_not_divide_keeps_the_memorys_own():
    memory = Memory(32, [None])
    memory.alloc(32)

    assert memory.alloc(1, alignment=48) == (0, 96)


def test_zero_bytes_take_and_give_nothing():
    memory = holes((0, 10))
    before = free_blocks(memory)

    assert memory.alloc(0) == (0, 0)
    memory.free(0, 500, 0)

    assert free_blocks(memory) == before


def test_a_reserved_range_is_never_handed_out():
    memory = Memory(32, [None])
    memory.reserve(0, 40, 10)

    assert memory.alloc(32) == (0, 0)
    assert memory.alloc(32) == (0, 64)
    assert memory.chunks.used[0] == 96
