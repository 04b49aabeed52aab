"""TVM: a reader of Relax modules after memory planning, as TVMScript (`tvm_script`).

What this package does not see: TVM's own decisions, because it runs no compiler.
"""
