/* An online allocator as a shared library: allocsim fuzz --online lib:./pool.so
 *
 * The device is asked, not told: record marks what a stream has been given so far, passed says
 * whether a stream has done all before a mark, wait puts a stream behind a mark, synchronize lets the
 * host wait for a stream, copy moves bytes inside the arena (realloc must).
 */
#ifndef ALLOCSIM_ONLINE_H
#define ALLOCSIM_ONLINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct allocsim_device {
    int64_t (*record)(int64_t stream);
    int64_t (*passed)(int64_t mark);
    void (*wait)(int64_t mark, int64_t stream);
    void (*synchronize)(int64_t stream);
    void (*copy)(int64_t source, int64_t target, int64_t nbytes);
};

/* capacity in bytes, -1 for unbounded; alignment a power of two */
void *allocsim_online_open(int64_t capacity, int64_t alignment, const struct allocsim_device *device);
/* an offset of nbytes free bytes; negative: no room */
int64_t allocsim_online_alloc(void *pool, int64_t nbytes, int64_t alignment, int64_t stream);
void allocsim_online_free(void *pool, int64_t address, int64_t stream);
void allocsim_online_close(void *pool);

/* optional */
int64_t allocsim_online_realloc(void *pool, int64_t address, int64_t nbytes);
void allocsim_online_record_stream(void *pool, int64_t address, int64_t stream);
/* above 0: the next alloc of at most so many bytes for that stream is not refused */
int64_t allocsim_online_reserve(void *pool, int64_t nbytes, int64_t stream);
void allocsim_online_trim(void *pool);

#ifdef __cplusplus
}
#endif
#endif
