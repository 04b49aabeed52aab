"""A conformance suite for other people's planners:
`pytest --pyargs allocsim.conformance --allocator my_package.planner:plan`.

One test for each property of `allocsim.fuzzing.PROPERTIES`, all judged on one seeded campaign
against the planner in a process of its own, and some cases by hand: the empty program, a capacity
that is too small. A property that fails shows the smallest case that breaks it, with the ops round
the fault, and a test file to paste. Properties a planner of the shelf does not promise are skipped;
a stranger's is held to all.

Options: `--allocator NAME` (needed), `--allocator-examples N`, `--allocator-seed N`,
`--allocator-seconds S` for one answer.

What this package does not see: how programs are made and judged (`allocsim.fuzzing`).
"""
