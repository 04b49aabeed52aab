"""The judge decides from bytes and steps alone whether a plan keeps the bytes that a program needs.

    violations   defines the kinds of defect, and the record of one defect
    plain        judges interval by interval, in code that can be read in an evening; standard library only
    fast         gives the same results from columns, in seconds for a million ops; needs numpy

This file imports nothing, so that `violations` and `plain` can be imported without numpy.

This package does not examine the computations of kernels or the numbers in buffers.
"""
