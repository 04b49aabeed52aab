// An online allocator in Rust: a rising end that goes back when nothing is out.
//   rustc --crate-type cdylib -O -o pool.so pool.rs && allocsim fuzz --online lib:./pool.so
use std::ffi::c_void;

struct Pool {
    capacity: i64,
    top: i64,
    out: i64,
}

#[no_mangle]
pub extern "C" fn allocsim_online_open(capacity: i64, _alignment: i64, _device: *const c_void) -> *mut c_void {
    let capacity = if capacity < 0 { i64::MAX / 2 } else { capacity };
    Box::into_raw(Box::new(Pool { capacity, top: 0, out: 0 })) as *mut c_void
}

#[no_mangle]
pub unsafe extern "C" fn allocsim_online_alloc(held: *mut c_void, nbytes: i64, alignment: i64, _stream: i64) -> i64 {
    let pool = &mut *(held as *mut Pool);
    let low = (pool.top + alignment - 1) / alignment * alignment;
    if low + nbytes > pool.capacity {
        return -1;
    }
    pool.top = low + nbytes;
    pool.out += 1;
    low
}

#[no_mangle]
pub unsafe extern "C" fn allocsim_online_free(held: *mut c_void, _address: i64, _stream: i64) {
    let pool = &mut *(held as *mut Pool);
    pool.out -= 1;
    if pool.out == 0 {
        pool.top = 0;
    }
}

#[no_mangle]
pub unsafe extern "C" fn allocsim_online_close(held: *mut c_void) {
    drop(Box::from_raw(held as *mut Pool));
}
