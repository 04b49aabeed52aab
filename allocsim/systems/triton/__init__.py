"""Triton support: reads the shared memory plan of a kernel from the compiler's IR, without a GPU.

`ttgir_text` parses the text, and `scalar_arithmetic` computes the numbers in the text.
`shared_views` maps a memory descriptor to bytes, and `byte_classes` turns these bytes into
contiguous ranges. `block_threads` orders the accesses of threads, copies and barriers.
`kernel_walk` follows a kernel's control flow, and `memory_ops` has the effect of each op.
`triton_kernel` makes the document, and `ask_triton` calls the compiler to make the text.

What this package does not see: anything that only a run on a GPU shows.
"""
