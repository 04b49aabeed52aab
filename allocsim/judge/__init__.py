"""The judge decides from bytes and steps alone whether a plan keeps the bytes that a program needs.

    violations   the kinds of defect, and the record of one defect
    plain        the judge that is read in an evening: interval by interval, standard library only
    fast         the same answers from columns, in seconds for a million ops; numpy

This file imports nothing, so that `violations` and `plain` can be imported without numpy.

This package does not examine the computations of kernels and the numbers in buffers.
"""
