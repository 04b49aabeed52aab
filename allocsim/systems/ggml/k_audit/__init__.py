"""Detector K on ggml's own kernels.

`library_audit` measures, `library_cases` has the calls, `allocator_reach` finds the aliases that
the allocator makes.
"""
