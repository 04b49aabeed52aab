"""The judge: whether a plan keeps what a program needs, seen from bytes and steps alone.

    violations   the kinds of defect, and the record of one
    plain        the judge that is read in an evening: interval by interval, standard library only
    fast         the same answers from columns, in seconds for a million ops; numpy

Nothing is imported here, so that these records are at hand where numpy is not installed.

What this package does not see: kernels and numbers.
"""
