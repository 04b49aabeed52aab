"""TVM: a Relax module after memory planning, read from TVMScript (`tvm_script`).

What this package does not see: a compiler that runs.
"""
