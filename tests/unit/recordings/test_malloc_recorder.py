"""A program's malloc, recorded: sound ones and C++'s operators are not accused, broken ones are."""

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allocsim.cli import main
from allocsim.errors import DocumentError
from allocsim.files.patience import Limit
from allocsim.recordings.malloc_log import HEAD, MAGIC, judge
from tests.mallocs import MALLOCS, built, needs_compilers, recorded, there, with_malloc

pytestmark = needs_compilers


EVERY_FORM = r"""
#include <new>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
struct alignas(64) Wide { char bytes[64]; Wide() {} };
struct Thrower { Thrower() { throw 1; } };
static void work(int rounds) {
    for (int i = 0; i < rounds; i++) {
        int *one = new int(1); int *many = new int[100];
        Wide *wide = new Wide; Wide *wides = new Wide[3];
        char *calm = new (std::nothrow) char[50]; int *calm_one = new (std::nothrow) int;
        void *raw = operator new(40); void *sized = operator new(48);
        void *aligned = operator new(100, std::align_val_t(128), std::nothrow);
        void *c = malloc(64); void *z = calloc(10, 10); c = realloc(c, 5000); c = realloc(c, 20);
        if (!one || !many || !wide || !wides || !calm || !calm_one || !aligned || !z) abort();
        try { new Thrower; } catch (int) {}
#ifndef CALM
        try { volatile size_t all = (size_t)-1 / 4; operator delete(operator new(all)); } catch (std::bad_alloc &) {}
        if (new (std::nothrow) char[(size_t)1 << 62]) abort();
#endif
        delete one; delete[] many; delete wide; delete[] wides; delete[] calm; delete calm_one;
        operator delete(raw); operator delete(sized, 48); operator delete(aligned, std::align_val_t(128));
        free(c); free(z); delete (int *)nullptr; operator delete(nullptr, 8);
    }
}
int main(int count, char **) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) threads.emplace_back(work, 100);
    for (auto &thread : threads) thread.join();
    work(100 * count);
    puts("done");
}
"""


@pytest.mark.parametrize("library", MALLOCS)
def test_every_form_of_new_and_delete_is_one_record_each_and_accuses_nobody(library: str, tmp_path: Path, capfd):
    calm = library.startswith("libmimalloc")  # as Debian builds it, it ends a program that asks new for too much
    program = str(built(tmp_path, EVERY_FORM, *["-DCALM"] * calm))
    status, first, findings = recorded(capfd, "-o", str(tmp_path / "log"), *with_malloc(library), "--", program)
    assert (status, findings) == (0, [])
    assert (library.split(".", maxsplit=1)[0] or "libc") in first["allocator"]
    unseen = first["assumed"].get("memory is given back that nobody saw given out", 0)
    assert unseen < 10  # what was there before the recorder
    rounds = 400  # 9 by new, one that throws, malloc, calloc, two moves; an exception, and another
    each = 2 * (12 + 2 + (1 if calm else 2))
    assert rounds * each <= first["records"] < rounds * (each + 2) + 600
    assert judge(tmp_path / "log").faults == []


@pytest.mark.parametrize("library", MALLOCS)
def test_memory_of_new_is_aligned_and_all_of_it_comes_back(library: str, tmp_path: Path, capfd):
    """The oracle is the program: it says which addresses it got, and they are in the log."""
    source = (
        "#include <new>\n#include <cstdio>\n"
        'int main() { for (int i = 0; i < 5; i++) { char *p = new char[777]; printf("%p\\n", (void *)p); delete[] p; } }'
    )
    program = str(built(tmp_path, source))
    assert main(["record", "malloc", "-o", str(tmp_path / "log"), *with_malloc(library), "--", program]) == 0
    said = [int(line, 16) for line in capfd.readouterr().out.splitlines() if line.startswith("0x")]
    data = (tmp_path / "log").read_bytes()
    rows = [struct.unpack_from("<4Q", data, HEAD.size + 32 * at) for at in range((len(data) - HEAD.size) // 32)]
    assert len(said) == 5
    assert [address for word, address, nbytes, _ in rows if word & 0xFF == 1 and nbytes == 777] == said
    gone = [address for word, address, _, _ in rows if word & 0xFF == 2]
    assert all(gone.count(address) >= said.count(address) for address in said)


OWN = r"""
#include <new>
#include <cstdio>
#include <cstdlib>
static char arena[1 << 16]; static size_t used; static int calls;
void *operator new(size_t n) {
    calls++;
#ifdef OVER_MALLOC
    char *p = (char *)malloc(n + 16); return p + 16;
#else
    void *p = arena + used; used = (used + n + 63) / 64 * 64 % 4096; return p;
#endif
}
void operator delete(void *p) noexcept {
    calls++;
#ifdef OVER_MALLOC
    if (p) free((char *)p - 16);
#endif
}
void operator delete(void *p, size_t) noexcept { operator delete(p); }
int main() {
    for (int i = 0; i < 200; i++) { int *a = new int; double *b = new double[20]; delete a; delete[] b; }
    printf("calls %d\n", calls);
}
"""


@pytest.mark.parametrize("library", MALLOCS)
@pytest.mark.parametrize("flags", [(), ("-DOVER_MALLOC",)])
def test_a_programs_own_operators_stay_its_own(flags: tuple[str, ...], library: str, tmp_path: Path, capfd):
    """An arena of its own gives the same bytes again and again: that is not malloc's, and not seen."""
    program = str(built(tmp_path, OWN, *flags))
    variables = {"LD_PRELOAD": library} if there(library) else {}
    alone = subprocess.run(
        [program], capture_output=True, text=True, check=True, env={**os.environ, **variables}
    ).stdout
    assert main(["record", "malloc", *with_malloc(library), "--", program]) == 0
    said = capfd.readouterr().out
    assert alone in said
    assert "operators new and delete are the program's own" in said


BROKEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
static char memory[1 << 24]; static size_t used = 64, calls;
static void *bump(size_t n) { void *p = memory + used; used += (n + 15) / 16 * 16 + 16; return p; }
void *malloc(size_t n) {
    static void *last; static size_t held;
    if (n == 4321 && last && FAULT == 1) { void *p = last; last = NULL; return p; }
    void *p = bump(n);
    if (n == 4321) last = p;
    if (n == 4322 && FAULT == 2) return (char *)p + 4;
    (void)held; (void)calls;
    return p;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { char *p = malloc(a * b); if (FAULT == 3 && a == 4323) p[9] = 1; return p; }
size_t malloc_usable_size(void *p) { (void)p; return 300; }
void *realloc(void *old, size_t n) {
    char *p = malloc(n);
    if (old && p) memcpy(p, old, n < 300 ? n : 300);
    if (FAULT == 4 && n == 4324) p[100] ^= 1;
    return p;
}
void *aligned_alloc(size_t a, size_t n) { used = (used + a - 1) / a * a; return bump(n); }
void *memalign(size_t a, size_t n) { return aligned_alloc(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { *p = aligned_alloc(a, n); return 0; }
"""

USER = r"""
#include <cstdlib>
#include <cstring>
int main(int count, char **) {
    char *a = (char *)malloc(4321), *b = (char *)malloc(4321), *c = (char *)malloc(4322), *d = (char *)calloc(4323, 1);
    char *e = (char *)malloc(200); memset(e, 7, 200); e = (char *)realloc(e, 4324);
    free(a); free(b); free(c); free(d); free(e);
    if (count > 1) free(e);
}
"""


@pytest.mark.parametrize(
    ("fault", "class_", "words"),
    [
        (0, None, ""),
        (1, "C11", "which nobody gave back"),
        (2, "C12", "is no multiple of 16"),
        (3, "C14", "byte 9 is not zero"),
        (4, "C10", "byte 100 is not what it was"),
    ],
)
def test_a_broken_malloc_is_convicted_under_a_real_program(fault, class_, words, tmp_path: Path, capfd):
    library = built(tmp_path, BROKEN, f"-DFAULT={fault}", "-fno-builtin", name="broken.so")
    program = built(tmp_path, USER)
    status, first, findings = recorded(capfd, "--with", str(library), "--", str(program))
    assert first["allocator"] == str(library)
    assert {(one["class"], one["party"]) for one in findings} == ({(class_, "plan")} if class_ else set())
    assert status == bool(class_)
    assert all(words in one["text"] for one in findings)
    status, _, findings = recorded(capfd, "--with", str(library), "--", str(program), "twice")
    assert ("C13", "caller") in {(one["class"], one["party"]) for one in findings}
    assert status == 1


def test_processes_that_a_program_begins_have_logs_of_their_own(tmp_path: Path, capfd):
    source = (
        "#include <cstdlib>\n#include <unistd.h>\n#include <sys/wait.h>\n"
        "int main() { void *p = malloc(99); if (!fork()) { free(p); free(malloc(77)); _exit(0); } wait(nullptr); free(p); }"
    )
    capfd.readouterr()
    assert main(["record", "malloc", "--json", "--", str(built(tmp_path, source))]) == 0
    parent, child = json.loads(capfd.readouterr().out)["processes"]
    assert not parent["assumed"]
    assert child["assumed"] == {"memory is given back that nobody saw given out": 1}


@pytest.mark.parametrize("library", MALLOCS)
def test_an_interpreter_runs_under_each_malloc_without_an_accusation(library: str, capfd, monkeypatch):
    """CPython with its own tests of JSON where they are installed, its objects by malloc alone."""
    script = (
        "import os, sys\nos.environ.pop('LD_PRELOAD')\n"
        "import unittest\n"
        "try:\n    from test.test_json import test_decode as tests\n"
        "except ImportError:\n    import json\n    json.loads(json.dumps(list(range(20000)), indent=1))\n"
        "else:\n    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)\n"
        "    assert unittest.TextTestRunner(stream=open(os.devnull, 'w')).run(suite).wasSuccessful()\n"
        "import numpy\nassert numpy.arange(100000).sum()\n"
    )
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    python = [sys.executable, "-X", "dev", "-c", script] if not library else [sys.executable, "-c", script]
    status, first, findings = recorded(capfd, *with_malloc(library), "--", *python)
    assert (status, findings) == (0, [])
    assert first["records"] > 10_000


ALONE = "import os\nos.environ.pop('LD_PRELOAD')\n"  # processes that the program begins are not recorded
JSON = """
import unittest
def flat(suite):
    return [suite] if isinstance(suite, unittest.TestCase) else [test for one in suite for test in flat(one)]
found = flat(unittest.defaultTestLoader.loadTestsFromName("test.test_json"))
suite = unittest.TestSuite(test for test in found if "test_tool" not in test.id())  # those begin processes
done = unittest.TextTestRunner(stream=open(os.devnull, "w")).run(suite)
assert done.wasSuccessful() and done.testsRun > 100, done
"""
STEP = """
from engine.models.mlp import mlp
from engine.training import Settings, fit
from engine.training.data import moons
fit(mlp((2, 16, 2)), moons(40), Settings(epochs=1, batch=10, hyper={"alpha": 0.01}))
"""


@pytest.fixture(scope="module")
def compiled() -> None:
    """Let the engine compile its kernels once, before that would be recorded."""
    subprocess.run([sys.executable, "-c", STEP], check=True)


@pytest.mark.parametrize("library", MALLOCS)
@pytest.mark.parametrize("program", [JSON, STEP], ids=["json", "step"])
@pytest.mark.usefixtures("compiled")
def test_real_programs_run_under_each_malloc_without_an_accusation(program: str, library: str, capfd):
    """All of CPython's own tests of JSON, and training steps of the engine; Python's small objects apart."""
    whole_programs(program, library, capfd, least=200_000)


@pytest.mark.campaign
@pytest.mark.parametrize("library", MALLOCS)
@pytest.mark.parametrize("program", [JSON, STEP], ids=["json", "step"])
@pytest.mark.usefixtures("compiled")
def test_the_same_with_every_object_of_python_by_malloc(program: str, library: str, capfd, monkeypatch):
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    whole_programs(program, library, capfd, least=4_000_000)


def whole_programs(program: str, library: str, capfd, *, least: int) -> None:
    if program == JSON and importlib.util.find_spec("test.test_json") is None:
        pytest.skip("a Python without its own tests")
    options = [*with_malloc(library), "--records", str(1 << 24)]
    status, first, findings = recorded(capfd, *options, "--", sys.executable, "-c", ALONE + program)
    assert (status, findings, first["unjudged"]) == (0, [], 0)
    assert first["records"] > least
    assert library in first["allocator"]


def log(tmp_path: Path, *rows: tuple[int, int, int, int], room: int = 100, own: int = 0, more: bytes = b"") -> Path:
    """Write a log of one thread."""
    head = HEAD.pack(MAGIC, len(rows), room, own, b"libc.so.6")
    path = tmp_path / "log"
    path.write_bytes(head + b"".join(struct.pack("<4Q", word and word | 7 << 8, *rest) for word, *rest in rows) + more)
    return path


def test_a_log_that_was_cut_is_judged_up_to_there(tmp_path: Path):
    rows = [(1, 4096, 64, 0), (0, 0, 0, 0), (1, 4096, 64, 0)]
    judged = judge(log(tmp_path, *rows))
    assert (judged.faults, judged.records, judged.unjudged) == ([], 1, 2)
    judged = judge(log(tmp_path, *rows[::2], room=1))
    assert (judged.faults, judged.records, judged.unjudged) == ([], 1, 1)
    whole = log(tmp_path, *rows[::2]).read_bytes()
    assert len(judge(tmp_path / "log").faults) == 1
    for length in range(len(whole)):
        (tmp_path / "log").write_bytes(whole[:length])
        if length < HEAD.size:
            with pytest.raises(DocumentError, match="is no log of a malloc"):
                judge(tmp_path / "log")
        else:
            assert judge(tmp_path / "log").faults == []


def test_what_cannot_be_seen_is_counted_and_not_judged(tmp_path: Path):
    again = [(1, 4096, 64, 0), (2, 4096, 0, 0), (2, 4096, 0, 0)]
    (fault,) = judge(log(tmp_path, *again)).faults
    assert (fault.class_, fault.party, fault.event) == ("C13", "caller", 2)
    judged = judge(log(tmp_path, *again, own=1))
    assert judged.faults == []
    assert len(judged.assumed) == 2
    assert judge(log(tmp_path, (2, 4096, 0, 0))).assumed.total() == 1


def test_a_realloc_that_fails_leaves_memory_where_it_was(tmp_path: Path):
    stays = [(1, 4096, 64, 0), (4, 4096, 0, 0), (3, 4096, (1 << 64) - 1, 256)]
    assert judge(log(tmp_path, *stays, (2, 4096, 0, 0))).faults == []
    (fault,) = judge(log(tmp_path, *stays, (1, 4128, 64, 0))).faults
    assert fault.class_ == "C11"


def test_misuse_ends_in_one_line(tmp_path: Path, capsys):
    (tmp_path / "no").write_text("{}")
    for arguments, said in (
        (["--log", str(tmp_path / "no")], "is no log of a malloc"),
        (["--", "/no/such/program"], "cannot be run"),
        ([], "give a program"),
    ):
        assert main(["record", "malloc", *arguments]) == 2
        assert said in capsys.readouterr().err


OTHER_NAMES = r"""
#include <cstdlib>
#include <malloc.h>
#include <dlfcn.h>
extern "C" void *reallocarray(void *, size_t, size_t);
int main() {
    auto sized = (void (*)(void *, size_t, int))dlsym(RTLD_DEFAULT, "sdallocx");
    for (int i = 0; i < 200; i++) {
        void *p = malloc(48);
        p = reallocarray(p, 50, 40);
        void *q = malloc(48);
        void *page = pvalloc(100);
        if (reallocarray(q, (size_t)-1, 16)) abort();
        if (sized) sized(q, 48, 0); else free(q);
        free(p);
        free(page);
    }
}
"""


@pytest.mark.parametrize("library", MALLOCS)
def test_other_names_by_which_memory_is_given_and_taken_back_are_seen(library: str, tmp_path: Path, capfd):
    program = str(built(tmp_path, OTHER_NAMES, "-ldl"))
    status, first, findings = recorded(capfd, *with_malloc(library), "--", program)
    assert (status, findings) == (0, [])
    assert first["records"] >= 200 * 8


def test_a_malloc_that_was_not_loaded_is_told_and_not_judged_as_another(tmp_path: Path, capfd):
    assert main(["record", "malloc", "--with", "libjemaloc.so.2", "--", "ls", "/"]) == 2
    assert "not of libjemaloc.so.2" in capfd.readouterr().err
    assert main(["record", "malloc", "--with", str(tmp_path / "a b.so"), "--", "true"]) == 2
    assert "a blank or a colon" in capfd.readouterr().err


def test_a_process_that_outlives_the_program_still_writes_into_its_log(tmp_path: Path, capfd):
    """What is read is a copy: the file under the other's mapping keeps its length."""
    go, done = tmp_path / "go", tmp_path / "done"
    source = (
        "#include <cstdlib>\n#include <cstdio>\n#include <unistd.h>\n"
        f'int main() {{ while (access("{go}", F_OK)) usleep(1000);\n'
        "for (int i = 0; i < 5000; i++) free(malloc(10));\n"
        f'fclose(fopen("{done}", "w")); }}'
    )
    program = built(tmp_path, source)
    log = tmp_path / "log"
    status = main(["record", "malloc", "-o", str(log), "--", "sh", "-c", f"{program} & sleep 0.3"])
    go.touch()
    limit = Limit(seconds=20.0, process=os.getpid())
    while not done.exists() and limit.left():
        time.sleep(0.01)
    assert status == 0
    assert done.exists()


def test_logs_that_lie_there_are_not_taken_for_those_of_this_program(tmp_path: Path, capfd):
    (tmp_path / "log.17").write_bytes(b"old")
    assert main(["record", "malloc", "-o", str(tmp_path / "log"), "--", "true"]) == 2
    assert "log.17" in capfd.readouterr().err
    assert (tmp_path / "log.17").read_bytes() == b"old"


def test_room_beyond_what_can_be_read_is_refused(capfd):
    assert main(["record", "malloc", "--records", str(1 << 60), "--", "true"]) == 2


def test_a_recorder_that_is_ended_ends_its_program_and_judges_what_it_did(tmp_path: Path):
    """SIGTERM to the command reaches the program, which waits for nobody's word; no process is left behind."""
    waits = "import os; print(os.getpid(), flush=True); input()"
    command = [sys.executable, "-m", "allocsim", "record", "malloc", "--", sys.executable, "-c", waits]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        number = int(run.stdout.readline())
        run.send_signal(signal.SIGTERM)
        said, errors = run.stdout.read(), run.stderr.read()
    assert run.returncode == 0
    assert "nothing found" in said
    assert "SIGTERM; what it did before is judged" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
