/* What mallocs give out, move and take back under names of their own, beside those of C and C++.
 *
 * A family is compiled in where a library behind the recorder has it (JEMALLOC, MIMALLOC, TCMALLOC;
 * `malloc_recorder.py` asks): a program that looks whether `mallocx` is there must not find it where
 * it is not. One that gives memory, moves it or takes it back must be here, unless it calls another
 * that is: a block that was freed, and is given out again unseen, is freed twice as the log has it.
 *
 * Blocks that go all at once, with the heap that has them, are not seen one by one: that it happened
 * is said in the log.
 */

static void unseen(uint64_t what) {
    unseen_here |= what;
    if (log_head) atomic_fetch_or(&log_head->unseen, what);
}

static void left_inside(int *before) { inside = *before; }
#define INSIDE int was_inside __attribute__((cleanup(left_inside))) = inside++; /* C++ may throw */
#define REAL(name, result, parameters)                                                               \
    static void *held;                                                                               \
    result (*real) parameters = (result (*) parameters)real_operator(#name, &held);

#define GIVES(name, parameters, arguments, nbytes, alignment, zeroed)                                \
    void *name parameters {                                                                          \
        REAL(name, void *, parameters)                                                               \
        void *p = NULL;                                                                              \
        if (real) { INSIDE p = real arguments; }                                                     \
        if (p) gave(p, nbytes, alignment, zeroed);                                                   \
        return p;                                                                                    \
    }
#define MOVES(name, parameters, arguments, old, nbytes, alignment, stays)                            \
    void *name parameters {                                                                          \
        REAL(name, void *, parameters)                                                               \
        struct moving moving;                                                                        \
        leaves(&moving, old, nbytes);                                                                \
        void *p = NULL;                                                                              \
        if (real) { INSIDE p = real arguments; }                                                     \
        return arrives(&moving, p, nbytes, alignment, stays);                                        \
    }
#define TAKES(name, parameters, arguments, p)                                                        \
    void name parameters {                                                                           \
        REAL(name, void, parameters)                                                                 \
        if (!real || is_early(p)) return;                                                            \
        if (p != being_freed) note(FREE, p, 0, 0); /* an operator delete may call this */            \
        INSIDE real arguments;                                                                       \
    }
#define POSIX(name)                                                                                  \
    int name(void **p, size_t a, size_t n) {                                                         \
        REAL(name, int, (void **, size_t, size_t))                                                   \
        int failed = ENOMEM;                                                                         \
        if (real) { INSIDE failed = real(p, a, n); }                                                 \
        if (!failed) gave(*p, n, a, false);                                                          \
        return failed;                                                                               \
    }

#ifdef JEMALLOC
#define ALIGNED(flags) ((flags) & 63 ? (uint64_t)1 << ((flags) & 63) : 0)
GIVES(mallocx, (size_t n, int flags), (n, flags), n, ALIGNED(flags), flags & 64)
MOVES(rallocx, (void *old, size_t n, int flags), (old, n, flags), old, n, ALIGNED(flags), true)
TAKES(dallocx, (void *p, int flags), (p, flags), p)
TAKES(sdallocx, (void *p, size_t n, int flags), (p, n, flags), p)

size_t xallocx(void *old, size_t n, size_t extra, int flags) { /* it stays; its size is answered */
    REAL(xallocx, size_t, (void *, size_t, size_t, int))
    if (!real) return 0;
    struct moving moving;
    leaves(&moving, old, n);
    size_t size;
    { INSIDE size = real(old, n, extra, flags); }
    arrives(&moving, old, size, 1, true);
    return size;
}

int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size) {
    REAL(mallctl, int, (const char *, void *, size_t *, void *, size_t))
    if (!real) return ENOENT;
    size_t length = strlen(name);
    bool whole = (length > 6 && !strcmp(name + length - 6, ".reset")) || (length > 8 && !strcmp(name + length - 8, ".destroy"));
    if (whole && !strncmp(name, "arena.", 6)) unseen(AT_ONCE);
    return real(name, old, old_size, new, new_size);
}

int mallctlnametomib(const char *, size_t *, size_t *) __attribute__((weak));
int mallctlbymib(const size_t *at, size_t length, void *old, size_t *old_size, void *new, size_t new_size) { /* the same by numbers */
    REAL(mallctlbymib, int, (const size_t *, size_t, void *, size_t *, void *, size_t))
    if (!real) return ENOENT;
    static const char *const whole[] = {"arena.0.reset", "arena.0.destroy"};
    for (int one = 0; length == 3 && mallctlnametomib && one < 2; one++) {
        size_t named[3], many = 3;
        if (!mallctlnametomib(whole[one], named, &many) && at[0] == named[0] && at[2] == named[2]) unseen(AT_ONCE);
    }
    return real(at, length, old, old_size, new, new_size);
}
#endif

#ifdef MIMALLOC
#define LIST(...) __VA_ARGS__
#define GIVES_OF(name, parameters, arguments, nbytes, alignment, zeroed)                             \
    GIVES(mi_##name, parameters, arguments, nbytes, alignment, zeroed)                               \
    GIVES(mi_heap_##name, (void *h, LIST parameters), (h, LIST arguments), nbytes, alignment, zeroed)
#define MOVES_OF(name, parameters, arguments, nbytes, alignment, stays)                              \
    MOVES(mi_##name, (void *old, LIST parameters), (old, LIST arguments), old, nbytes, alignment, stays) \
    MOVES(mi_heap_##name, (void *h, void *old, LIST parameters), (h, old, LIST arguments), old, nbytes, alignment, stays)
#define N (size_t n), (n), n
#define NA (size_t n, size_t a), (n, a), n
#define NAO (size_t n, size_t a, size_t o), (n, a, o), n
#define CE (size_t c, size_t e), (c, e), product(c, e)
#define CEA (size_t c, size_t e, size_t a), (c, e, a), product(c, e)
#define CEAO (size_t c, size_t e, size_t a, size_t o), (c, e, a, o), product(c, e)
/* a row is expanded once more, so that the three words of its first part are three arguments */
#define ROW(macro, ...) macro(__VA_ARGS__)
ROW(GIVES_OF, malloc, N, 0, false)
ROW(GIVES_OF, malloc_small, N, 0, false)
ROW(GIVES_OF, mallocn, CE, 0, false)
ROW(GIVES_OF, zalloc, N, 0, true)
ROW(GIVES, mi_zalloc_small, N, 0, true)
ROW(GIVES_OF, calloc, CE, 0, true)
ROW(GIVES_OF, malloc_aligned, NA, a, false)
ROW(GIVES_OF, malloc_aligned_at, NAO, 1, false)
ROW(GIVES_OF, zalloc_aligned, NA, a, true)
ROW(GIVES_OF, zalloc_aligned_at, NAO, 1, true)
ROW(GIVES_OF, calloc_aligned, CEA, a, true)
ROW(GIVES_OF, calloc_aligned_at, CEAO, 1, true)
ROW(GIVES, mi_valloc, N, (size_t)sysconf(_SC_PAGESIZE), false)
ROW(GIVES, mi_pvalloc, N, (size_t)sysconf(_SC_PAGESIZE), false)
GIVES(mi_memalign, (size_t a, size_t n), (a, n), n, a, false)
GIVES(mi_aligned_alloc, (size_t a, size_t n), (a, n), n, a, false)
GIVES_OF(strdup, (const char *s), (s), strlen(s) + 1, 1, false)
GIVES_OF(strndup, (const char *s, size_t n), (s, n), strlen(p) + 1, 1, false)
ROW(GIVES, mi_new, N, of_size(n), false)
ROW(GIVES, mi_new_nothrow, N, of_size(n), false)
GIVES(mi_heap_alloc_new, (void *h, size_t n), (h, n), n, of_size(n), false)
GIVES(mi_heap_alloc_new_n, (void *h, size_t c, size_t e), (h, c, e), product(c, e), of_size(product(c, e)), false)
ROW(GIVES, mi_new_n, CE, of_size(product(c, e)), false)
ROW(GIVES, mi_new_aligned, NA, a, false)
ROW(GIVES, mi_new_aligned_nothrow, NA, a, false)
POSIX(mi_posix_memalign)

ROW(MOVES_OF, realloc, N, 0, true)
ROW(MOVES_OF, reallocn, CE, 0, true)
ROW(MOVES_OF, reallocf, N, 0, false)
ROW(MOVES_OF, rezalloc, N, 0, true)
ROW(MOVES_OF, recalloc, CE, 0, true)
ROW(MOVES_OF, realloc_aligned, NA, a, true)
ROW(MOVES_OF, realloc_aligned_at, NAO, 1, true)
ROW(MOVES_OF, rezalloc_aligned, NA, a, true)
ROW(MOVES_OF, rezalloc_aligned_at, NAO, 1, true)
ROW(MOVES_OF, recalloc_aligned, CEA, a, true)
ROW(MOVES_OF, recalloc_aligned_at, CEAO, 1, true)
MOVES(mi_expand, (void *old, size_t n), (old, n), old, n, 1, true)
MOVES(mi__expand, (void *old, size_t n), (old, n), old, n, 1, true)
MOVES(mi_reallocarray, (void *old, size_t c, size_t e), (old, c, e), old, product(c, e), 0, true)
MOVES(mi_aligned_recalloc, (void *old, size_t c, size_t e, size_t a), (old, c, e, a), old, product(c, e), a, true)
MOVES(mi_aligned_offset_recalloc, (void *old, size_t c, size_t e, size_t a, size_t o), (old, c, e, a, o), old, product(c, e), 1, true)
MOVES(mi_new_realloc, (void *old, size_t n), (old, n), old, n, 0, true)
MOVES(mi_new_reallocn, (void *old, size_t c, size_t e), (old, c, e), old, product(c, e), 0, true)
MOVES(reallocf, (void *old, size_t n), (old, n), old, n, 0, false)
#define REALLOCARR(name)                                                                             \
    int name(void *at, size_t c, size_t e) {                                                         \
        REAL(name, int, (void *, size_t, size_t))                                                    \
        struct moving moving;                                                                        \
        leaves(&moving, *(void **)at, product(c, e));                                                        \
        int failed = ENOMEM;                                                                         \
        if (real) { INSIDE failed = real(at, c, e); }                                                \
        arrives(&moving, failed ? NULL : *(void **)at, product(c, e), 0, true);                              \
        return failed;                                                                               \
    }
REALLOCARR(mi_reallocarr)
REALLOCARR(reallocarr)

TAKES(mi_free, (void *p), (p), p)
TAKES(mi_cfree, (void *p), (p), p)
TAKES(vfree, (void *p), (p), p)
TAKES(mi_free_size, (void *p, size_t n), (p, n), p)
TAKES(mi_free_aligned, (void *p, size_t a), (p, a), p)
TAKES(mi_free_size_aligned, (void *p, size_t n, size_t a), (p, n, a), p)

void mi_heap_destroy(void *heap) {
    REAL(mi_heap_destroy, void, (void *))
    unseen(AT_ONCE);
    if (real) real(heap);
}
#endif

#ifdef TCMALLOC
GIVES(tc_malloc, (size_t n), (n), n, 0, false)
GIVES(tc_malloc_skip_new_handler, (size_t n), (n), n, 0, false)
GIVES(tc_calloc, (size_t c, size_t e), (c, e), product(c, e), 0, true)
GIVES(tc_memalign, (size_t a, size_t n), (a, n), n, a, false)
GIVES(tc_valloc, (size_t n), (n), n, (size_t)sysconf(_SC_PAGESIZE), false)
GIVES(tc_pvalloc, (size_t n), (n), n, (size_t)sysconf(_SC_PAGESIZE), false)
POSIX(tc_posix_memalign)
MOVES(tc_realloc, (void *old, size_t n), (old, n), old, n, 0, true)
TAKES(tc_free, (void *p), (p), p)
TAKES(tc_cfree, (void *p), (p), p)
TAKES(tc_free_sized, (void *p, size_t n), (p, n), p)
#define EITHER(new, delete)                                                                          \
    GIVES(tc_##new, (size_t n), (n), n, of_size(n), false)                                           \
    GIVES(tc_##new##_nothrow, (size_t n, const void *t), (n, t), n, of_size(n), false)               \
    GIVES(tc_##new##_aligned, (size_t n, size_t a), (n, a), n, a, false)                             \
    GIVES(tc_##new##_aligned_nothrow, (size_t n, size_t a, const void *t), (n, a, t), n, a, false)   \
    TAKES(tc_##delete, (void *p), (p), p)                                                            \
    TAKES(tc_##delete##_sized, (void *p, size_t n), (p, n), p)                                       \
    TAKES(tc_##delete##_nothrow, (void *p, const void *t), (p, t), p)                                \
    TAKES(tc_##delete##_aligned, (void *p, size_t a), (p, a), p)                                     \
    TAKES(tc_##delete##_sized_aligned, (void *p, size_t n, size_t a), (p, n, a), p)                  \
    TAKES(tc_##delete##_aligned_nothrow, (void *p, size_t a, const void *t), (p, a, t), p)
EITHER(new, delete)
EITHER(newarray, deletearray)
#endif
