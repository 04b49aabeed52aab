"""Detector K (alias contracts of kernels) on ggml's own kernels.

`library_audit` runs each kernel with its result over a source and apart from all sources.
`library_cases` lists the kernel calls. `allocator_reach` finds the in-place pairs that ggml's
allocator can choose.
"""
