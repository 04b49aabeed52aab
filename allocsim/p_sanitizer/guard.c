/* Page guards: whose access to which page, as a fact of the processor.
 *
 * A guard is a stretch of pages, [low, high), that a kernel is given. `guard_enter` takes all rights from what the
 * op before had and gives those of the next; an access beyond them is a fault, which the handler writes into the
 * guard's log and then allows, so that the op goes on; what was allowed is taken back with the op's own rights.
 * Pages that are to be written first (FIRST) get their rights, a stretch at a time, as they are touched; a fault is
 * logged there where that was a read. A fault anywhere else goes on to whoever handled it before (`faulthandler`, a debugger, the system).
 *
 * The handler calls nothing but mprotect and gettid. A log entry is whole once its `thread` is not 0. Where the log is
 * full, faults are counted only. What this module does not see: what lies on a page.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST = 64, AGAIN = 64, FIRST = 8, STRETCH = 64 };

struct fault { int64_t op, within, address, instruction, write, thread; };
struct guard {
    int64_t low, high, page, op, within, count, room, closed;
    const int64_t *starts, *spans; /* rows starts[op] to starts[op + 1] of (low, high, rights) */
    struct fault faults[];
};

static struct guard *guards[MOST];
static struct sigaction before;
static int installed;

static int64_t instruction_of(const ucontext_t *at) {
#if defined(__x86_64__)
    return (int64_t)at->uc_mcontext.gregs[REG_RIP];
#else
    return (int64_t)at->uc_mcontext.pc;
#endif
}

static int is_write(const ucontext_t *at) {
#if defined(__x86_64__)
    return (at->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    const unsigned char *record = (const unsigned char *)at->uc_mcontext.__reserved;
    for (;;) { /* records of (magic, size); that of the syndrome register has the bit WnR */
        uint32_t head[2];
        uint64_t syndrome;
        memcpy(head, record, sizeof head);
        if (head[0] == 0 || head[1] == 0) return 1;
        memcpy(&syndrome, record + 8, sizeof syndrome);
        if (head[0] == 0x45535201u) return (syndrome >> 6) & 1;
        record += head[1];
    }
#endif
}

static void hand_on(int number, siginfo_t *told, void *context) {
    struct sigaction usual;
    memset(&usual, 0, sizeof usual); /* SIG_DFL is 0 */
    if (before.sa_flags & SA_RESETHAND) sigaction(number, &usual, 0); /* as the system would have done */
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, told, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
    else { /* the instruction faults once more, or the signal comes once more, and ends the process */
        sigaction(number, &usual, 0);
        if (told->si_code <= 0) raise(number);
    }
}

static int set(int64_t low, int64_t high, int rights) {
    return low < high ? mprotect((void *)low, (size_t)(high - low), rights) : 0;
}

/* Allow an access; return whether that could be done. `first` is set where the page is to be written first. */
static int allow(const struct guard *g, int64_t at, int write, int *first) {
    int64_t low = at & -g->page, high = low + g->page;
    if (g->within)
        for (int64_t row = g->starts[g->op]; row < g->starts[g->op + 1]; row++) {
            const int64_t *span = g->spans + 3 * row;
            if (span[2] != FIRST || low < span[0] || low >= span[1]) continue;
            *first = 1;
            high = low + STRETCH * g->page < span[1] ? low + STRETCH * g->page : span[1];
            return set(low, high, PROT_READ | PROT_WRITE) == 0;
        }
    return set(low, high, write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

static void on_fault(int number, siginfo_t *told, void *context) {
    int kept = errno;
    int64_t at = (int64_t)told->si_addr;
    for (int i = 0; told->si_code > 0 && i < MOST; i++) {
        struct guard *g = guards[i];
        if (!g || at < g->low || at >= g->high) continue;
        int write = is_write(context), first = 0, allowed = allow(g, at, write, &first);
        if (!allowed) break;
        int64_t n = write && first ? g->room : __atomic_fetch_add(&g->count, 1, __ATOMIC_RELAXED);
        if (n < g->room) {
            struct fault *f = &g->faults[n];
            f->op = g->op, f->within = g->within, f->address = at, f->write = write;
            f->instruction = instruction_of(context);
            __atomic_store_n(&f->thread, (int64_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
        }
        errno = kept;
        return;
    }
    errno = kept;
    hand_on(number, told, context);
}

/* Take over faults, unless that is so; again after somebody else did. 0 where it could be done. */
static int install(void) {
    struct sigaction now, ours;
    if (sigaction(SIGSEGV, 0, &now)) return -1;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return 0;
    if (!installed) before = now; /* else it may hand on to us, and must not be handed to */
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    installed = 1;
    return sigaction(SIGSEGV, &ours, 0);
}

static void uninstall(void) {
    struct sigaction now;
    for (int i = 0; i < MOST; i++)
        if (guards[i]) return;
    if (installed && !sigaction(SIGSEGV, 0, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) {
        sigaction(SIGSEGV, &before, 0);
        installed = 0;
    }
}

/* Take all rights, also those that faults were given: of the last ones once more, since a thread may be late. */
int guard_leave(struct guard *g) {
    int bad = 0;
    if (g->within)
        for (int64_t row = g->starts[g->op]; row < g->starts[g->op + 1]; row++)
            bad |= set(g->spans[3 * row], g->spans[3 * row + 1], PROT_NONE);
    int64_t count = __atomic_load_n(&g->count, __ATOMIC_ACQUIRE);
    if (count > g->room) bad |= set(g->low, g->high, PROT_NONE);
    else
        for (int64_t n = g->closed > AGAIN ? g->closed - AGAIN : 0; n < count; n++) {
            int64_t page = g->faults[n].address & -g->page;
            if (page) bad |= set(page, page + g->page, PROT_NONE);
        }
    g->closed = count < g->room ? count : g->room;
    g->within = 0;
    return bad;
}

int guard_enter(struct guard *g, int64_t op) {
    int bad = 0;
    g->op = op, g->within = 1;
    for (int64_t row = g->starts[op]; row < g->starts[op + 1]; row++)
        if (g->spans[3 * row + 2] != FIRST)
            bad |= set(g->spans[3 * row], g->spans[3 * row + 1], (int)g->spans[3 * row + 2]);
    return bad;
}

int guard_arm(struct guard *g) {
    if (install()) return -1;
    for (int i = 0; i < MOST; i++)
        if (!guards[i] || guards[i] == g) {
            guards[i] = g;
            return set(g->low, g->high, PROT_NONE);
        }
    return -1;
}

/* Give all rights back. */
int guard_release(struct guard *g) {
    int bad = set(g->low, g->high, PROT_READ | PROT_WRITE);
    for (int i = 0; i < MOST; i++)
        if (guards[i] == g) guards[i] = 0;
    uninstall();
    return bad;
}
