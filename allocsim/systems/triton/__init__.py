"""Triton: the shared memory of a kernel, judged from the IR of its compiler, without a GPU.

`ttgir_text` parses the text, `scalar_arithmetic` computes the numbers in it, `shared_views` maps a
memory descriptor to bytes, `byte_classes` turns these into runs of bytes of a program,
`block_threads` orders the accesses of threads, copies and barriers,
`kernel_walk` runs a kernel's control flow, `memory_ops` has the effect of each op, `triton_kernel`
makes the document, `ask_triton` has the compiler make the text.

What this package does not see: it runs nothing on a GPU.
"""
