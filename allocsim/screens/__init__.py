"""What speeds the judge up: compiled passes that say where the plain checks of `allocsim.checks`
have to look.

    reads        reads that may find other bytes than they must, of a whole session
    rectangles   buffers that may lie over each other while both live
    late         accesses of several streams that may race

A screen selects. It may point at too much and never at too little, and it says nothing of what is
wrong: every record, and every "clean" of `check(document, plain=True)`, is the plain checks' own.
`allocsim.checks.selector` is where the judge asks. Importing any of these modules imports numba.

What this package does not see: kinds of violation, and records.
"""
