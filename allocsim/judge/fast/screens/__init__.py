"""What speeds the judge up: compiled passes that say where its checks have to look.

    reads        reads that may find other bytes than they must, of a whole session
    rectangles   buffers that may lie over each other while both live
    late         accesses of several streams that may race

A screen selects. It may point at too much and never at too little, and it says nothing of what is
wrong: every record, and every "clean" of `check(document, plain=True)`, is the checks' own.
The judge asks in `selector`, beside this folder. Importing any of these modules imports numba.

What this package does not see: kinds of violation, and records.
"""
