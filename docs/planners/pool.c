/* An online allocator in C: a rising end that goes back when nothing is out.
 *   cc -shared -fPIC -O2 -o pool.so pool.c && allocsim fuzz --online lib:./pool.so
 */
#include "allocsim_online.h"
#include <stdlib.h>

#ifndef RESET_AT
#define RESET_AT 0 /* 1 is a bug: the last block is still out */
#endif

struct pool { int64_t capacity, top, out; };

void *allocsim_online_open(int64_t capacity, int64_t alignment, const struct allocsim_device *device) {
    (void)alignment; (void)device;
    struct pool *pool = calloc(1, sizeof *pool);
    pool->capacity = capacity < 0 ? INT64_MAX / 2 : capacity;
    return pool;
}

int64_t allocsim_online_alloc(void *held, int64_t nbytes, int64_t alignment, int64_t stream) {
    struct pool *pool = held;
    (void)stream;
    int64_t low = (pool->top + alignment - 1) / alignment * alignment;
    if (low + nbytes > pool->capacity) return -1;
    pool->top = low + nbytes;
    pool->out++;
    return low;
}

void allocsim_online_free(void *held, int64_t address, int64_t stream) {
    struct pool *pool = held;
    (void)address; (void)stream;
    if (--pool->out == RESET_AT) pool->top = 0;
}

void allocsim_online_close(void *pool) { free(pool); }
