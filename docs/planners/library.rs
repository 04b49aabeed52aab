// Every buffer after the one before it in its arena, as a shared library for `--allocator lib:./library.so`:
// rustc -O --crate-type cdylib -C panic=abort -o library.so library.rs (docs/allocators.md).
use std::ffi::c_void;
use std::slice::from_raw_parts;

#[repr(C)]
pub struct Problem {
    buffers: i64, steps: i64, arenas: i64, pairs: i64, gaps: i64,
    start: *const i64, stop: *const i64, nbytes: *const i64, alignment: *const i64,
    arena: *const i64, fixed: *const i64, order: *const i64, pinned: *const u8, own: *const u8,
    may_share: *const i64, gap: *const i64, capacity: *const i64, granule: *const i64,
}

#[no_mangle]
pub extern "C" fn allocsim_open(version: i64) -> *mut c_void {
    if version == 1 { Box::into_raw(Box::new(0u64)) as *mut c_void } else { std::ptr::null_mut() }
}

#[no_mangle]
pub extern "C" fn allocsim_why(_planner: *mut c_void) -> *const u8 {
    b"the buffers do not fit side by side\0".as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn allocsim_close(planner: *mut c_void) {
    drop(Box::from_raw(planner as *mut u64));
}

#[no_mangle]
pub unsafe extern "C" fn allocsim_plan(_planner: *mut c_void, problem: *const Problem, offset: *mut i64) -> i64 {
    let p = &*problem;
    let (buffers, arenas) = (p.buffers as usize, p.arenas as usize);
    let nbytes = from_raw_parts(p.nbytes, buffers);
    let alignment = from_raw_parts(p.alignment, buffers);
    let arena = from_raw_parts(p.arena, buffers);
    let fixed = from_raw_parts(p.fixed, buffers);
    let own = from_raw_parts(p.own, buffers);
    let capacity = from_raw_parts(p.capacity, arenas);
    let offset = std::slice::from_raw_parts_mut(offset, buffers);
    let mut end = vec![0i64; arenas];
    for b in 0..buffers {
        if fixed[b] >= 0 { end[arena[b] as usize] = end[arena[b] as usize].max(fixed[b] + nbytes[b]); }
    }
    for b in 0..buffers {
        let here = arena[b] as usize;
        if own[b] != 0 { offset[b] = -1; continue; }
        if fixed[b] >= 0 { offset[b] = fixed[b]; } else {
            offset[b] = (end[here] + alignment[b] - 1) / alignment[b] * alignment[b];
            end[here] = offset[b] + nbytes[b];
        }
        if capacity[here] >= 0 && offset[b] + nbytes[b] > capacity[here] { return 1; }
    }
    0
}
