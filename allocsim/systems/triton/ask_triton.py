"""Calls Triton's compiler to get the text that `triton_kernel` reads: the module with inserted
barriers.

    source = ASTSource(kernel, signature={"x": "*fp32", "n": "i32"})
    text = compiled(source, GPUTarget("cuda", 90, 32), {"num_stages": 3})

This module needs the package `triton` but no GPU, because the compiler stops after the pass that
inserts barriers. The list of passes is that of triton 3.9. A release with other names of passes
raises `AttributeError`.

What this module does not see: later stages of the compiler, such as `ptxas`, which is not run.
"""

from typing import Any


def compiled(source: Any, target: Any, options: dict[str, Any] | None = None) -> str:
    """Compile an `ASTSource` for a `GPUTarget`; return the module as text without locations."""
    from triton._C.libtriton import ir  # noqa: PLC0415 - heavy and optional
    from triton.compiler.compiler import make_backend  # noqa: PLC0415

    backend = make_backend(target)
    chosen = backend.parse_options({**(options or {}), **source.parse_options()})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(chosen)
    module = source.make_ir(target, chosen, functions, backend.get_module_map(), context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, chosen, source.language)
    told = {"target": target, **chosen.__dict__}
    for stage in ("ttir", "ttgir"):
        module = stages[stage](module, told)
    manager = ir.pass_manager(module.context)
    (_nvidia if target.backend == "cuda" else _amd)(manager, chosen, target)
    manager.run(module, "allocsim")
    return str(module.str_nodebug())


def _nvidia(manager: Any, chosen: Any, target: Any) -> None:
    from triton._C.libtriton import nvidia, passes  # noqa: PLC0415
    from triton.backends.nvidia.compiler import get_ptx_version_from_options  # noqa: PLC0415

    version = get_ptx_version_from_options(chosen, target.arch)
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager, False)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, target.arch, version)
    nvidia.passes.ttnvgpuir.add_allocate_tensor_memory(manager)
    nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(manager, target.arch)
    nvidia.passes.ttnvgpuir.add_tmem_barrier_insertion(manager)
    nvidia.passes.ttgpuir.add_membar(manager, target.arch, version)


def _amd(manager: Any, chosen: Any, _: Any) -> None:
    from triton._C.libtriton import amd, passes  # noqa: PLC0415

    amd.passes.ttgpuir.add_update_async_wait_count(manager, chosen.arch)
    amd.passes.ttgpuir.add_warp_pipeline_conversion(manager, chosen.arch)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    passes.convert.add_index_to_llvmir(manager)
    amd.passes.ttgpuir.add_allocate_shared_memory(manager, chosen.arch)
    amd.passes.ttgpuir.add_membar(manager, chosen.arch)


__all__ = ["compiled"]
