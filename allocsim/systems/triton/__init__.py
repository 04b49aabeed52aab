"""Triton: the shared memory of a kernel, judged from the IR of its compiler, without a GPU.

`ttgir_text` reads the text, `scalar_arithmetic` computes the numbers in it, `shared_views` says
which bytes a memory descriptor is, `byte_classes` which runs of bytes that is in a program,
`block_threads` orders what threads, copies and barriers do,
`kernel_walk` runs a kernel's control flow, `memory_ops` says what ops do, `triton_kernel` makes the
document, `ask_triton` has the compiler make the text.

What this package does not see: a GPU.
"""
