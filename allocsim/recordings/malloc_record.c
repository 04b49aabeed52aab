/* What a program asks of its malloc and of C++'s operators new and delete, written down: a library
 * that is loaded before all others (LD_PRELOAD), beside any malloc that stands behind it.
 *
 * The log is a file that is mapped: a record has its number by one atomic addition, nothing locks,
 * and what a killed program had written is there. A record is whole when its first word is. Beyond
 * ALLOCSIM_MALLOC_RECORDS records nothing is written, and how many there were is counted.
 *
 * Memory is written down behind the call that gives it and before the call that takes it back, so
 * that in the order of the log no block lies over another unless the allocator gave it so.
 *
 * An operator new that calls malloc is one record, that of malloc; one that does not (jemalloc,
 * tcmalloc) is one of its own, and so is an operator delete that does not call free. Where the
 * program has operators of its own, they stay what they are, and of operators nothing is written:
 * the malloc below them is seen. What a malloc does under names of its own is seen where a library
 * behind has them (`malloc_own_names.h`).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ALLOC = 1, FREE, MOVED, LEFT, ZEROED };
enum { OWN_OPERATORS = 1, NAMES = 2, AT_ONCE = 4 }; /* the program's operators; other names; blocks that go together */

struct record { _Atomic uint64_t word; uint64_t address, nbytes, more; };

struct head {
    char magic[8];
    _Atomic uint64_t records, room;
    _Atomic uint64_t unseen; /* what is not written down, by bit */
    char allocator[232]; /* the file whose malloc is called */
};
_Static_assert(sizeof(struct head) == 264, "the reader knows this size");

#define LOOKED 256 /* bytes that are looked at when memory moves */
#define THREAD __attribute__((tls_model("initial-exec"))) static __thread

static struct head *log_head;
static struct record *log_records;
static bool own_operators;
static uint64_t unseen_here;
THREAD void *last_given;  /* by malloc, in this thread */
THREAD void *being_freed; /* by an operator delete */
THREAD uint64_t thread_number;
THREAD int inside; /* calls of the real malloc that are under way: what it asks itself is its own */

static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static void *(*real_aligned_alloc)(size_t, size_t), *(*real_memalign)(size_t, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static size_t (*real_usable)(void *);

/* dlsym itself may ask for memory before malloc is known */
static _Alignas(16) char early[1 << 16];
static size_t early_used;
static bool is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + sizeof early; }
static void *early_alloc(size_t nbytes) {
    size_t low = early_used;
    early_used += (nbytes + 15) / 16 * 16;
    return early_used <= sizeof early ? early + low : NULL;
}

static void note(int what, const void *address, size_t nbytes, uint64_t more) {
    struct head *head = log_head;
    if (!head || !address || inside) return;
    uint64_t at = atomic_fetch_add_explicit(&head->records, 1, memory_order_relaxed);
    if (at >= head->room) return;
    if (!thread_number) thread_number = (uint64_t)syscall(SYS_gettid);
    struct record *record = &log_records[at];
    record->address = (uint64_t)(uintptr_t)address;
    record->nbytes = nbytes;
    record->more = more;
    atomic_store_explicit(&record->word, (uint64_t)what | thread_number << 8, memory_order_release);
}

static void given(int what, void *p, size_t nbytes, uint64_t more) {
    if (!inside) last_given = p;
    note(what, p, nbytes, more);
}

static size_t zeros(const char *p, size_t nbytes) { /* so many of the bytes that are looked at, from the first on */
    size_t at = 0;
    while (at < nbytes && at < LOOKED && !p[at]) at++;
    return at;
}

/* an alignment stands above the 16 bits of a count; 0: that of any object of this size */
static void gave(void *p, size_t nbytes, uint64_t alignment, bool zeroed) {
    given(zeroed ? ZEROED : ALLOC, p, nbytes, zeroed ? zeros(p, nbytes) | alignment << 16 : alignment);
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static void find_real(void) {
    static _Thread_local bool looking;
    if (looking || real_free) return;
    looking = true;
    real_malloc = next("malloc");
    real_calloc = next("calloc");
    real_realloc = next("realloc");
    real_aligned_alloc = next("aligned_alloc");
    real_memalign = next("memalign");
    real_posix_memalign = next("posix_memalign");
    real_usable = next("malloc_usable_size");
    Dl_info one, other; /* another library's knows nothing of these blocks */
    if (real_usable && (!dladdr((void *)real_usable, &one) || !dladdr((void *)real_malloc, &other) || one.dli_fbase != other.dli_fbase)) real_usable = NULL;
    real_free = next("free");
    looking = false;
}

static void open_log(void) {
    log_head = NULL;
    const char *path = getenv("ALLOCSIM_MALLOC");
    const char *most = getenv("ALLOCSIM_MALLOC_RECORDS");
    if (!path || !real_malloc) return;
    uint64_t room = most ? strtoull(most, NULL, 10) : 1u << 22;
    if (!room || room > 1u << 27) return;
    char mine[4096];
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 && errno == EEXIST) {
        snprintf(mine, sizeof mine, "%s.%ld", path, (long)getpid());
        file = open(mine, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        for (int again = 1; file < 0 && errno == EEXIST && again < 1000; again++) { /* a process that became another */
            snprintf(mine, sizeof mine, "%s.%ld%03d", path, (long)getpid(), again);
            file = open(mine, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        }
    }
    if (file < 0) return;
    size_t size = sizeof(struct head) + room * sizeof(struct record);
    void *mapped = ftruncate(file, (off_t)size) ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    struct head *head = mapped;
    Dl_info info;
    memcpy(head->magic, "allocsim", 8);
    head->room = room;
    head->unseen = unseen_here;
    if (dladdr((void *)real_malloc, &info) && info.dli_fname) strncpy(head->allocator, info.dli_fname, sizeof head->allocator - 1);
    log_records = (struct record *)(head + 1);
    log_head = head;
}

static void forked(void) { /* what the parent holds is not known here */
    if (log_head) munmap(log_head, sizeof(struct head) + log_head->room * sizeof(struct record));
    thread_number = 0;
    open_log();
}

/* C ------------------------------------------------------------------------------------------------ */

void *malloc(size_t nbytes) {
    if (!real_malloc) find_real();
    if (!real_malloc) return early_alloc(nbytes);
    inside++;
    void *p = real_malloc(nbytes);
    inside--;
    given(ALLOC, p, nbytes, 0);
    return p;
}

void *calloc(size_t count, size_t each) {
    if (!real_calloc) find_real();
    if (!real_calloc) return early_alloc(count * each);
    inside++;
    void *p = real_calloc(count, each);
    inside--;
    if (p) gave(p, count * each, 0, true);
    return p;
}

void free(void *p) {
    if (!p || is_early(p)) return;
    if (!real_free) find_real();
    if (p != being_freed) note(FREE, p, 0, 0);
    inside++;
    real_free(p);
    inside--;
}

struct moving { void *old; size_t known; unsigned char before[LOOKED]; };

static void leaves(struct moving *moving, void *old, size_t nbytes) {
    size_t known = old && real_usable ? real_usable(old) : 0;
    known = known < LOOKED ? known : LOOKED;
    moving->old = old;
    moving->known = known < nbytes ? known : nbytes;
    memcpy(moving->before, old, moving->known);
    if (old) note(LEFT, old, 0, 0);
}

static void *arrives(const struct moving *moving, void *p, size_t nbytes, uint64_t alignment, bool stays) {
    size_t kept = 0;
    while (p && kept < moving->known && ((unsigned char *)p)[kept] == moving->before[kept]) kept++;
    if (kept == moving->known) kept = LOOKED;
    if (p) given(moving->old ? MOVED : ALLOC, p, nbytes, moving->old ? kept | alignment << 16 : alignment);
    else if (moving->old && nbytes && stays) note(MOVED, moving->old, SIZE_MAX, LOOKED); /* where it was, as it was */
    return p;
}

void *realloc(void *old, size_t nbytes) {
    if (!real_realloc) find_real();
    if (!real_realloc || is_early(old)) {
        void *p = malloc(nbytes);
        size_t left = old ? (size_t)(early + sizeof early - (char *)old) : 0;
        if (p && old) memcpy(p, old, nbytes < left ? nbytes : left);
        return p;
    }
    struct moving moving;
    leaves(&moving, old, nbytes);
    inside++;
    void *p = real_realloc(old, nbytes);
    inside--;
    return arrives(&moving, p, nbytes, 0, true);
}

void *aligned_alloc(size_t alignment, size_t nbytes) {
    if (!real_free) find_real();
    inside++;
    void *p = real_aligned_alloc(alignment, nbytes);
    inside--;
    given(ALLOC, p, nbytes, alignment);
    return p;
}

void *memalign(size_t alignment, size_t nbytes) {
    if (!real_free) find_real();
    inside++;
    void *p = real_memalign(alignment, nbytes);
    inside--;
    given(ALLOC, p, nbytes, alignment);
    return p;
}

int posix_memalign(void **p, size_t alignment, size_t nbytes) {
    if (!real_free) find_real();
    inside++;
    int failed = real_posix_memalign(p, alignment, nbytes);
    inside--;
    if (!failed) given(ALLOC, *p, nbytes, alignment);
    return failed;
}

void *valloc(size_t nbytes) { return memalign((size_t)sysconf(_SC_PAGESIZE), nbytes); }

void *pvalloc(size_t nbytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return memalign(page, (nbytes + page - 1) / page * page);
}

static size_t product(size_t count, size_t each) {
    size_t nbytes;
    return __builtin_mul_overflow(count, each, &nbytes) ? SIZE_MAX : nbytes;
}

void *reallocarray(void *old, size_t count, size_t each) {
    if (product(count, each) != SIZE_MAX) return realloc(old, count * each);
    errno = ENOMEM;
    return NULL;
}

void cfree(void *p) { free(p); }
void free_sized(void *p, size_t nbytes) { (void)nbytes, free(p); }
void free_aligned_sized(void *p, size_t alignment, size_t nbytes) { (void)alignment, (void)nbytes, free(p); }

/* C++: each operator by its name, the real one found when it is first called ----------------------- */

static void *real_operator(const char *name, void **held) {
    if (*held) return *held;
    void *found = next(name);
    if (!found) { /* a C++ library that was opened for its owner alone */
        void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    return *held = found;
}

struct freeing { void *before; };
static void freed(struct freeing *held) { being_freed = held->before; }

/* the largest alignment that an object of just this size may need */
static size_t of_size(size_t n) { return !n ? 1 : (n & -n) < 16 ? n & -n : 16; }

/* what this library's own function is, whoever else has one of that name */
#define MINE(name) extern __typeof__(name) mine##name __attribute__((alias(#name), visibility("hidden")));
#define NEW(name, parameters, arguments, alignment)                                                  \
    void *name parameters {                                                                          \
        static void *held;                                                                           \
        void *(*real) parameters = (void *(*)parameters)real_operator(#name, &held);                 \
        if (!real) return alignment ? memalign(alignment, n) : malloc(n ? n : 1);                    \
        last_given = NULL;                                                                           \
        void *p = real arguments;                                                                    \
        if (p && p != last_given && !own_operators) given(ALLOC, p, n, alignment ? alignment : of_size(n)); \
        return p;                                                                                    \
    }                                                                                               \
    MINE(name)
#define DELETE(name, parameters, arguments)                                                          \
    void name parameters {                                                                           \
        static void *held;                                                                           \
        void (*real) parameters = (void (*)parameters)real_operator(#name, &held);                   \
        if (!real) { free(p); return; }                                                              \
        struct freeing outer __attribute__((cleanup(freed))) = {being_freed};                        \
        if (p && p != being_freed && !own_operators) note(FREE, p, 0, 0), being_freed = p;           \
        real arguments;                                                                              \
    }                                                                                               \
    MINE(name)
#define OPERATORS(EACH_NEW, EACH_DELETE)                                                                          \
    EACH_NEW(_Znwm, (size_t n), (n), 0)                                                                           \
    EACH_NEW(_Znam, (size_t n), (n), 0)                                                                           \
    EACH_NEW(_ZnwmRKSt9nothrow_t, (size_t n, const void *t), (n, t), 0)                                           \
    EACH_NEW(_ZnamRKSt9nothrow_t, (size_t n, const void *t), (n, t), 0)                                           \
    EACH_NEW(_ZnwmSt11align_val_t, (size_t n, size_t a), (n, a), a)                                               \
    EACH_NEW(_ZnamSt11align_val_t, (size_t n, size_t a), (n, a), a)                                               \
    EACH_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t n, size_t a, const void *t), (n, a, t), a)               \
    EACH_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t n, size_t a, const void *t), (n, a, t), a)               \
    EACH_DELETE(_ZdlPv, (void *p), (p))                                                                           \
    EACH_DELETE(_ZdaPv, (void *p), (p))                                                                           \
    EACH_DELETE(_ZdlPvm, (void *p, size_t n), (p, n))                                                             \
    EACH_DELETE(_ZdaPvm, (void *p, size_t n), (p, n))                                                             \
    EACH_DELETE(_ZdlPvRKSt9nothrow_t, (void *p, const void *t), (p, t))                                           \
    EACH_DELETE(_ZdaPvRKSt9nothrow_t, (void *p, const void *t), (p, t))                                           \
    EACH_DELETE(_ZdlPvSt11align_val_t, (void *p, size_t a), (p, a))                                               \
    EACH_DELETE(_ZdaPvSt11align_val_t, (void *p, size_t a), (p, a))                                               \
    EACH_DELETE(_ZdlPvmSt11align_val_t, (void *p, size_t n, size_t a), (p, n, a))                                 \
    EACH_DELETE(_ZdaPvmSt11align_val_t, (void *p, size_t n, size_t a), (p, n, a))                                 \
    EACH_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t a, const void *t), (p, a, t))               \
    EACH_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t a, const void *t), (p, a, t))
OPERATORS(NEW, DELETE)

/* names of mallocs' own ------------------------------------------------------------------------------ */

#include "malloc_own_names.h"

static bool elsewhere(const char *name) { /* whether others have it, and this library has not */
    Dl_info mine, first;
    void *found = dlsym(RTLD_DEFAULT, name);
    return found && dladdr((void *)note, &mine) && dladdr(found, &first) && mine.dli_fbase != first.dli_fbase;
}

#define OWN(name, parameters, ...) || dlsym(RTLD_DEFAULT, #name) != (void *)mine##name

__attribute__((constructor)) static void begin(void) {
    find_real();
    own_operators = false OPERATORS(OWN, OWN);
    unseen_here = (own_operators ? OWN_OPERATORS : 0) | (elsewhere("mallocx") || elsewhere("mi_malloc") || elsewhere("tc_malloc") ? NAMES : 0);
    pthread_atfork(NULL, NULL, forked);
    open_log();
}
