"""Detector K on ggml's own kernels.

`library_audit` runs each kernel in place and apart, `library_cases` has the calls, and
`allocator_reach` finds the in-place pairs that the allocator can choose.
"""
