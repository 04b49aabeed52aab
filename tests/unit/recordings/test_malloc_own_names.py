"""What mallocs do under names of their own is seen: nobody sound is accused, who is broken there is convicted."""

import re
from pathlib import Path

import pytest

from allocsim.cli import main
from allocsim.recordings.malloc_log import judge
from tests.mallocs import MALLOCS, built, needs_compilers, recorded, with_malloc

pytestmark = needs_compilers

CALLER = r"""
#include <cstdlib>
#include <cstring>
#include <cstdint>
#include <dlfcn.h>
template <class F> F *named(const char *name) { return (F *)dlsym(RTLD_DEFAULT, name); }
typedef void *Void;
#define HAS(result, name, ...) static auto name = named<result(__VA_ARGS__)>(#name)
static void jemalloc() {
    HAS(Void, mallocx, size_t, int); HAS(Void, rallocx, Void, size_t, int); HAS(size_t, xallocx, Void, size_t, size_t, int);
    HAS(void, dallocx, Void, int); HAS(void, sdallocx, Void, size_t, int);
    HAS(int, mallctl, const char *, Void, size_t *, Void, size_t);
    if (!mallocx) return;
    mallctl("epoch", nullptr, nullptr, nullptr, 0);
    void *p = mallocx(100, 0), *q = mallocx(100, 6 | 64), *r = malloc(100);
    memset(q, 1, 100);
    p = rallocx(p, 5000, 0); q = rallocx(q, 3000, 6); xallocx(q, 3500, 100, 6); xallocx(p, 1 << 24, 0, 0);
    dallocx(r, 0); free(p); sdallocx(q, 3000, 6);
}
static void mimalloc() {
    HAS(Void, mi_malloc, size_t); HAS(Void, mi_zalloc, size_t); HAS(Void, mi_calloc, size_t, size_t); HAS(Void, mi_realloc, Void, size_t);
    HAS(Void, mi_malloc_aligned, size_t, size_t); HAS(Void, mi_malloc_aligned_at, size_t, size_t, size_t); HAS(Void, mi_strdup, const char *);
    HAS(Void, mi_recalloc, Void, size_t, size_t); HAS(Void, mi_expand, Void, size_t); HAS(Void, mi_new_n, size_t, size_t);
    HAS(void, mi_free, Void); HAS(void, mi_free_size, Void, size_t); HAS(Void, mi_reallocn, Void, size_t, size_t);
    HAS(Void, mi_heap_new); HAS(Void, mi_heap_malloc, Void, size_t); HAS(Void, mi_heap_zalloc, Void, size_t); HAS(void, mi_heap_delete, Void);
    HAS(Void, mi_heap_alloc_new, Void, size_t);
    HAS(int, mi_posix_memalign, Void *, size_t, size_t); HAS(int, mi_reallocarr, Void, size_t, size_t);
    if (!mi_malloc) return;
    void *h = mi_heap_new(), *z = mi_heap_zalloc(h, 300), *y = mi_heap_malloc(h, 48), *x = (mi_heap_alloc_new ? mi_heap_alloc_new : mi_heap_malloc)(h, 90);
    mi_heap_delete(h);
    void *p = mi_malloc(40), *q = mi_zalloc(500), *r = mi_calloc(5, 9), *s = mi_strdup("a text"), *t = malloc(77), *u = mi_new_n(3, 8);
    void *v = mi_malloc_aligned_at(100, 64, 8), *w = nullptr;
    if (((uintptr_t)v + 8) % 64 || mi_posix_memalign(&w, 128, 300)) abort();
    p = mi_realloc(p, 4000); q = mi_recalloc(q, 100, 10); mi_expand(r, 46); t = mi_reallocn(t, 10, 10); mi_reallocarr(&u, 30, 8);
    if (mi_reallocn(t, (size_t)-1, 16)) abort();
    mi_free(p); free(q); mi_free_size(r, 46); free(s); mi_free(t); mi_free(u); free(v); mi_free(w); mi_free(x); mi_free(y); free(z);
}
static void tcmalloc() {
    HAS(Void, tc_malloc, size_t); HAS(Void, tc_calloc, size_t, size_t); HAS(Void, tc_realloc, Void, size_t); HAS(void, tc_free, Void);
    HAS(Void, tc_new, size_t); HAS(void, tc_delete, Void); HAS(Void, tc_newarray_aligned, size_t, size_t);
    HAS(void, tc_deletearray_aligned, Void, size_t); HAS(Void, tc_memalign, size_t, size_t);
    if (!tc_malloc) return;
    void *p = tc_malloc(30), *q = tc_calloc(30, 30), *r = tc_new(24), *s = tc_newarray_aligned(100, 64), *t = tc_memalign(512, 9), *u = malloc(8);
    p = tc_realloc(p, 9000);
    free(p); tc_free(q); tc_delete(r); tc_deletearray_aligned(s, 64); tc_free(t); tc_free(u);
}
int main() {
    for (int i = 0; i < 300; i++) {
        jemalloc(), mimalloc(), tcmalloc();
        void *p = malloc(100), *q = calloc(500, 1), *r = malloc(4000);
        free(p); free(q); free(r);
    }
}
"""

SEEN = {"": 6, "libjemalloc.so.2": 14 + 6, "libmimalloc.so.2": 34 + 6, "libtcmalloc_minimal.so.4": 14 + 6}
"""Records of one round; a move is two."""


@pytest.mark.parametrize("library", MALLOCS)
def test_names_of_its_own_are_seen_where_a_malloc_has_them(library: str, tmp_path: Path, capfd):
    program = str(built(tmp_path, CALLER, "-ldl"))
    status, first, findings = recorded(capfd, "-o", str(tmp_path / "log"), *with_malloc(library), "--", program)
    assert (status, findings) == (0, [])
    unknown = "memory is given back that nobody saw given out"
    assert first["assumed"].keys() <= {unknown}
    assert first["assumed"].get(unknown, 0) < 30  # of what there was before the recorder
    assert 300 * SEEN[library] <= first["records"] < 300 * (SEEN[library] + 2) + 200  # a heap may be a block, too
    assert judge(tmp_path / "log").most < 1 << 20  # nothing stays that was given back


OWN = r"""
#include <stddef.h>
#include <string.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t c, size_t e) { return __libc_calloc(c, e); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { *p = __libc_memalign(a, n); return 0; }
void free(void *p) { __libc_free(p); }
size_t malloc_usable_size(void *p) { (void)p; return 64; }
static char heap[1 << 16];
void *mallocx(size_t n, int flags) {
    if (FAULT == 1 && n == 4321) return heap;
    char *p = __libc_memalign(flags & 63 ? 1 << (flags & 63) : 16, n + 16);
    if (flags & 64) memset(p, FAULT == 3, n);
    return p + (FAULT == 2 && n == 4322 ? 8 : 0);
}
void *rallocx(void *p, size_t n, int flags) { (void)flags; char *q = __libc_realloc(p, n); if (FAULT == 4) q[7] ^= 1; return q; }
void dallocx(void *p, int flags) { (void)flags; if ((char *)p != heap) __libc_free(p); }
void *mi_malloc(size_t n) { return __libc_malloc(n); }
void mi_free(void *p) { __libc_free(p); }
void *mi_heap_malloc(void *h, size_t n) { (void)h, (void)n; return heap; }
void mi_heap_destroy(void *h) { (void)h; }
int mallctlnametomib(const char *name, size_t *at, size_t *length) { *at = 1, at[1] = 0, at[2] = name[8], *length = 3; return 0; }
int mallctlbymib(const size_t *at, size_t length, void *o, size_t *on, void *n, size_t nn) { (void)at, (void)length, (void)o, (void)on, (void)n, (void)nn; return 0; }
"""

USER = r"""
#include <cstddef>
#include <cstdlib>
#include <cstring>
extern "C" { void *mallocx(size_t, int), *rallocx(void *, size_t, int), *mi_heap_malloc(void *, size_t); void dallocx(void *, int), mi_heap_destroy(void *);
int mallctlnametomib(const char *, size_t *, size_t *), mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t); }
static void whole(const char *word) {
    size_t at[3] = {}, length = 3;
    if (!strcmp(word, "heap")) return mi_heap_destroy(nullptr);
    mallctlnametomib(word, at, &length);
    at[1] = 9;
    mallctlbymib(at, length, nullptr, nullptr, nullptr, 0);
}
int main(int count, char **words) {
    char *a = (char *)mallocx(4321, 0), *b = (char *)mallocx(4321, 0), *c = (char *)mallocx(4322, 5), *d = (char *)mallocx(99, 64);
    memset(d, 3, 99);
    d = (char *)rallocx(d, 200, 0);
    for (int i = 0; i < 9; i++) { void *p = mallocx(300, 0); free(p); p = malloc(300); dallocx(p, 0); }
    if (count > 1) for (int i = 0; i < 3; i++) { mi_heap_malloc(nullptr, 10); whole(words[1]); }
    dallocx(a, 0); dallocx(b, 0); free(d); (void)c;
}
"""


@pytest.mark.parametrize(
    ("fault", "class_", "words"),
    [
        (0, None, ""),
        (1, "C11", "which nobody gave back"),
        (2, "C12", "is no multiple of 32"),
        (3, "C14", "byte 0 is not zero"),
        (4, "C10", "byte 7 is not what it was"),
    ],
)
def test_a_malloc_that_is_broken_under_its_own_names_is_convicted(fault, class_, words, tmp_path: Path, capfd):
    library = built(tmp_path, OWN, f"-DFAULT={fault}", "-fno-builtin", name="own.so")
    program = built(tmp_path, USER, "-Wl,--no-as-needed", str(library))
    status, first, findings = recorded(capfd, "--with", str(library), "--", str(program))
    assert first["assumed"].keys() <= {"memory is given back that nobody saw given out"}
    assert {(one["class"], one["party"]) for one in findings} == ({(class_, "plan")} if class_ else set())
    assert all(words in one["text"] for one in findings)
    assert status == bool(class_)


@pytest.mark.parametrize("word", ["heap", "arena.0.reset", "arena.0.destroy"])
def test_what_cannot_be_seen_one_by_one_is_counted_and_accuses_nobody(word, tmp_path: Path, capfd):
    """Blocks that go with their heap, by name or by number, and a library with names of its own that nobody named."""
    library = built(tmp_path, OWN, "-DFAULT=0", "-fno-builtin", name="own.so")
    program = built(tmp_path, USER, "-Wl,--no-as-needed", str(library))
    for arguments, said in ((["--with", str(library)], "all at once"), ([], "`--with` names its library")):
        status, first, findings = recorded(capfd, *arguments, "--", str(program), word)
        assert (status, findings) == (0, [])
        assert any(said in text for text in first["assumed"])
        assert first["assumed"]["memory is given out that nobody was seen to give back"] > 1


def test_a_name_is_not_there_because_of_the_recorder(tmp_path: Path, capfd):
    """Programs look whether `mallocx` is there, and call it if it is."""
    names = set(re.findall(r"\b(?:[a-z]*allocx|mi_\w+|tc_\w+)\b", CALLER))
    source = "#include <dlfcn.h>\n#include <cstdio>\nint main() {\n" + "".join(
        f'if (dlsym(RTLD_DEFAULT, "{name}")) puts("FOUND");\n' for name in sorted(names)
    )
    program = built(tmp_path, source + "}", "-ldl")
    capfd.readouterr()
    assert main(["record", "malloc", "--", str(program)]) == 0
    assert "FOUND" not in capfd.readouterr().out
    assert len(names) > 20
