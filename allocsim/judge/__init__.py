"""The judge: whether a plan keeps what a program needs, seen from bytes and steps alone.

    violations   the kinds of defect, and the record of one defect
    plain        the judge that is read in an evening: interval by interval, standard library only
    fast         the same answers from columns, in seconds for a million ops; numpy

This header imports nothing, so that `violations` and `plain` can be imported without numpy.

What this package does not see: what kernels compute, and the numbers in buffers.
"""
