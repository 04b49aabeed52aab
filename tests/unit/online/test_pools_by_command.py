"""Online allocators as commands: a sound one is driven and not accused, a hostile one ends in one
line that says what it did, and nothing that it began outlives the question.
"""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.cli import main
from allocsim.errors import AllocsimError, AskedError
from allocsim.files.asked_command import AskedCommand
from allocsim.online import Judge, Sequence, campaign, find
from allocsim.online.own_process import isolated
from allocsim.online.pools_by_command import command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups and their ends as Linux has them")

POOL = """
import os, sys, time
say = lambda text: os.write(1, text.encode() if isinstance(text, str) else text)
{start}
while line := sys.stdin.readline():
    word, *rest = line.split()
    answer = "ok"
    if word == "open":
        capacity, top, out, where = (1 << 40 if rest[0] == "none" else int(rest[0])), 0, 0, {{}}
        answer = "ok realloc"
    elif word == "alloc":
        low = -(-top // int(rest[1])) * int(rest[1])
        answer = "none"
        if low + int(rest[0]) <= capacity:
            top, out, answer = low + int(rest[0]), out + 1, str(low)
    elif word == "realloc":
        answer = "none"
    elif word == "free":
        out -= 1
        top = top if out else 0
    {fault}
    say(answer + "\\n")
"""

CALLS = (
    ("alloc", 0, 64, 8, 0),
    ("alloc", 1, 64, 8, 0),
    ("realloc", 0, 128),
    ("free", 0, False),
    ("alloc", 2, 4096, 8, 0),
    ("free", 1, False),
)
SEQUENCE = Sequence(shape="one", capacity=1 << 12, alignment=8, streams=2, calls=CALLS)


def pool(folder: Path, fault: str = "pass", *, start: str = "") -> list[str]:
    """Return a command: a rising end that goes back when nothing is out, and a fault."""
    path = folder / f"pool{len(list(folder.iterdir()))}.py"
    path.write_text(POOL.format(start=start, fault=fault.replace("\n", "\n    ")))
    return [sys.executable, "-S", str(path)]


def line(arguments: list[str]) -> str:
    return " ".join(arguments)


def ended(process: int) -> bool:
    """Wait for the end of a process that need not be a child; False where it does not come."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        return bool(poll.poll(20_000))
    finally:
        os.close(handle)


HANGS = {
    "never answers": ("if word == 'alloc': time.sleep(1000)", "", "hangs"),
    "half a line": ("if word == 'alloc': say('12'); time.sleep(1000)", "", "hangs"),
    "never reads": ("pass", "time.sleep(1000)", "hangs"),
    "hangs when it opens": ("if word == 'open': time.sleep(1000)", "", "hangs"),
    "closes its output": ("if word == 'alloc': os.close(1); time.sleep(1000)", "", "closes its output"),
    "closes all it has": ("if word == 'free': os.closerange(0, 3); time.sleep(1000)", "", "closes its output"),
    "asks on for ever": ("while word == 'free': say('record 0\\n'); sys.stdin.readline()", "", "the target"),
    "leaves its group": (
        "if word == 'free': os.setpgid(0, os.getpgid(os.getppid())); time.sleep(1000)",
        "",
        "hangs",
    ),
    "is stopped": ("if word == 'free': os.kill(os.getpid(), 19)", "", "hangs"),
}

HOSTILE = {
    "dies at its start": ("pass", "sys.exit(3)", "ends its process"),
    "dies at its start, with words": ("pass", "raise ValueError('no such pool')", "no such pool"),
    "dies in the middle": ("if word == 'free': os._exit(7)", "", "exit status 7"),
    "dies by a signal": ("if word == 'free': os.kill(os.getpid(), 11)", "", "SIGSEGV"),
    "dies with half an answer": ("if word == 'alloc': say('12'); os._exit(0)", "", "after half an answer, '12'"),
    "ends well too early": ("if word == 'realloc': os._exit(0)", "", "exit status 0"),
    "dies, and its child holds its output": (
        "if word == 'free':\n    if not os.fork(): time.sleep(1000)\n    os._exit(4)",
        "",
        "exit status 4",
    ),
    "a traceback": ("if word == 'realloc': raise KeyError('block 7')", "", "KeyError: 'block 7'"),
    "many words before its end": (
        "if word == 'alloc':\n    os.write(2, b'x' * 10_000_000 + b'\\nlast words\\n')\n    os._exit(1)",
        "",
        "last words",
    ),
    "garbage": ("if word == 'alloc': answer = '{]'", "", "answers what is no answer"),
    "NUL": ("if word == 'alloc': answer = '4\\0'", "", "answers what is no answer"),
    "bytes that are no text": (
        "if word == 'alloc': say(b'\\xff\\xfe\\n'); continue",
        "",
        r"'\\\\xff\\\\xfe' to",
    ),
    "an empty line": ("if word == 'free': answer = ''", "", "answers what is no answer"),
    "a number of another kind": ("if word == 'alloc': answer = '6.4e1'", "", "answers what is no answer"),
    "other digits": ("if word == 'alloc': answer = '\\u0664'", "", "answers what is no answer"),
    "digits without end": ("if word == 'alloc': answer = '9' * 5000", "", "answers what is no answer"),
    "pages where addresses are": ("if word == 'alloc': answer = '1,2'", "", "answers what is no answer"),
    "a terminal's codes": ("if word == 'alloc': answer = '\\033[2J'", "", "answers what is no answer"),
    "a line of 100 MB": (
        "if word == 'alloc':\n    for _ in range(100): say('x' * 1_000_000)",
        "",
        "answers a line without end",
    ),
    "an answer too many": ("if word == 'alloc': answer += '\\nok'", "", "writes beside its answers"),
    "speaks before it is asked": ("if word == 'open': answer += '\\nready'", "", "writes beside its answers"),
    "greets": ("pass", "say('hello\\n')", "hello"),
    "says that it failed": ("if word == 'realloc': answer = 'error no memory map'", "", "says that it failed"),
    "can what nobody knows": ("if word == 'open': answer = 'ok teleport'", "", "answers what is no answer"),
    "pages of no bytes": ("if word == 'open': answer = 'ok page=-4'", "", "page is -4"),
    "asks for a stream that is not": ("if word == 'free': answer = 'record 9'", "", "asks the device for"),
    "asks the device nonsense": ("if word == 'free': answer = 'wait x y'", "", "answers what is no answer"),
    "asks the device too little": ("if word == 'free': answer = 'wait 1'", "", "answers what is no answer"),
    "does not take the end": ("if word == 'close': answer = 'no'", "", "'no' to 'close'"),
    "dies at the end": ("if word == 'close': os._exit(5)", "", "exit status 5"),
    "an address beyond all": ("if word == 'alloc': answer = '9' * 19", "", "a number beyond 2^62"),
    "an address below all": ("if word == 'alloc': answer = '-8'", "", "lies outside"),
}


@pytest.mark.parametrize("name", [*HANGS, *HOSTILE])
def test_a_hostile_command_is_a_finding_or_a_refusal_of_one_line(name: str, tmp_path: Path):
    fault, start, expected = HANGS.get(name) or HOSTILE[name]
    make = command(line(pool(tmp_path, fault, start=start)), seconds=0.5 if name in HANGS else 30.0)
    try:
        broken = Judge(make=make).judge(SEQUENCE)
    except AllocsimError as error:  # the attributes of a target that is none
        said = str(error)
    else:
        assert broken is not None
        said = f"{broken.cause}: {broken.sentence}"
    assert expected in said.replace("\\\\", "\\\\\\\\") or expected in said
    assert "\n" not in said
    assert said.isprintable()
    assert len(said) < 600


def test_a_sound_command_is_not_accused_and_begins_once(tmp_path: Path):
    log = tmp_path / "begun"
    arguments = pool(tmp_path, start=f"open({str(log)!r}, 'a').write('begun\\n')")
    found = campaign(Judge(make=find(f"cmd:{line(arguments)}"), deterministic=True), examples=60)
    assert found.findings == []
    assert found.words["realloc"]
    assert log.read_text().count("begun") <= 3  # as many as are asked at the same time


def test_a_planted_fault_of_a_command_is_found_and_made_small(tmp_path: Path):
    arguments = pool(tmp_path, "if word == 'free' and out == 1: top = 0")
    (found, *_) = campaign(Judge(make=command(line(arguments))), examples=60).findings
    assert found.broken.property == "disjoint"
    assert len(found.sequence.calls) <= 4


def test_pages_marks_and_steps_go_by_lines(tmp_path: Path):
    """A pool of pages that are given again once the stream of their step has passed its mark."""
    (tmp_path / "pages.py").write_text(
        "import sys\n"
        "def ask(line):\n    print(line, flush=True)\n    return sys.stdin.readline().strip()\n"
        "while line := sys.stdin.readline():\n"
        "    word, *rest = line.split()\n"
        "    answer = 'ok'\n"
        "    if word == 'open':\n"
        "        free, waits, answer = list(range(int(rest[0]) // 16)), [], 'ok page=16 streams count'\n"
        "    elif word == 'alloc':\n"
        "        for mark, pages in list(waits):\n"
        "            if ask(f'passed {mark}') == 'yes':\n"
        "                free += pages\n"
        "                waits.remove((mark, pages))\n"
        "        count = -(-int(rest[0]) // 16)\n"
        "        answer = ','.join(map(str, free[:count])) if count <= len(free) else 'none'\n"
        "        free = free[count:] if count <= len(free) else free\n"
        "    elif word == 'free':\n"
        "        waits.append((ask(f'record {rest[1]}'), [int(page) for page in rest[0].split(',')]))\n"
        "    elif word == 'count':\n"
        "        answer = '1'\n"
        "    print(answer, flush=True)\n"
    )
    name = f"cmd:{sys.executable} -S {tmp_path / 'pages.py'}"
    found = campaign(Judge(make=find(name)), examples=80)
    assert found.findings == []
    assert found.words["count"]
    assert found.words["part"]
    text = (tmp_path / "pages.py").read_text().replace("if ask(f'passed {mark}') == 'yes':", "if True:")
    (tmp_path / "pages.py").write_text(text)
    assert "ordered" in {each.broken.property for each in campaign(Judge(make=find(name)), examples=80).findings}


def test_an_end_behind_the_last_answer_is_not_counted_against_the_next_pool(tmp_path: Path):
    arguments = pool(tmp_path, "if word == 'close': say('ok\\n'); os._exit(3)")
    assert campaign(Judge(make=command(line(arguments))), examples=30).findings == []


def test_a_question_is_told_whole_to_a_command_that_answers_before_it_has_read_it(tmp_path: Path):
    (tmp_path / "early.py").write_text(
        "import os\n"
        "os.read(0, 1)\n"
        "os.write(1, b'early\\n')\n"
        "read = b'x'\n"
        "while not read.endswith(b'\\n'):\n    read += os.read(0, 1)\n"  # its own line, and no byte of the next
        "question = b''\n"
        "while not question.endswith(b'\\n'):\n    question += os.read(0, 1)\n"
        "os.write(1, b'%d %s' % (len(read), question))\n"
    )
    asked = AskedCommand([sys.executable, "-S", str(tmp_path / "early.py")])
    assert asked.ask("x" * 70_000) == "early"
    assert asked.ask("next") == "70001 next"
    asked.close()


def test_early_answers_of_a_pool_accuse_nobody(tmp_path: Path):
    (tmp_path / "early.py").write_text(
        "import os\n"
        "top = 0\n"
        "while word := os.read(0, 1):\n"  # o, a, f: enough to know
        "    os.write(1, b'ok\\n' if word != b'a' else b'%d\\n' % top)\n"
        "    top = (word != b'o') * (top + 4096 * (word == b'a'))\n"
        "    while os.read(0, 1) != b'\\n':\n        pass\n"
    )
    judge = Judge(make=command(f"{sys.executable} -S {tmp_path / 'early.py'}"))
    calls = (("alloc", 0, 64, 8, 0), ("alloc", 1, 64, 8, 0), ("free", 0, False), ("alloc", 2, 64, 8, 0))
    sequence = Sequence(shape="one", capacity=None, alignment=8, streams=1, calls=calls)
    assert [judge.judge(sequence, again=False) for _ in range(20)] == [None] * 20


def test_what_waits_to_be_read_is_bounded():
    """A command that answers without reading is asked no more than so many bytes."""
    script = "import os\nwhile True:\n    os.write(1, b'ok\\n')\n    os.read(0, 1)\n"
    asked = AskedCommand([sys.executable, "-S", "-c", script])

    def ask_on() -> None:
        for _ in range(20):
            asked.ask("x" * 100_000)

    with pytest.raises(AskedError, match=r"writes beside|does not read"):
        ask_on()


def test_nothing_is_left_of_a_command_that_was_asked(tmp_path: Path):
    fault = "if word == 'alloc':\n    answer = str(os.fork())\n    if answer == '0': time.sleep(1000)"
    asked = AskedCommand(pool(tmp_path, fault))
    asked.ask("open none 8 1")
    child = int(asked.ask("alloc 64 8 0 a"))
    asked.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(asked.process.pid, os.WNOHANG)  # reaped
    assert ended(child)
    asked.close()
    with pytest.raises(AskedError, match="after it had ended"):
        asked.ask("free 0 0")


def test_numbers_of_files_beyond_a_thousand_are_no_limit(tmp_path: Path):
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1040)]
    try:
        asked = AskedCommand(pool(tmp_path))
        assert asked.ask("open none 8 1") == "ok realloc"
        asked.close()
    finally:
        for handle in held:
            os.close(handle)


def test_a_command_ends_with_the_process_that_asks_it(tmp_path: Path):
    script = (
        "import sys\nfrom allocsim.files.asked_command import AskedCommand\n"
        f"asked = AskedCommand({pool(tmp_path)!r})\nprint(asked.process.pid, flush=True)\nasked.ask('open none 8 1')\n"
        "print('open', flush=True)\nsys.stdin.readline()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    number = int(process.stdout.readline())
    assert process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert ended(number)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


ORPHAN = """if word == 'alloc':
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.closerange(0, 3)
            open({log!r}, 'a').write(str(os.getpid()) + chr(10))
            time.sleep(1000)
        os._exit(0)
    os.wait()"""


@pytest.mark.parametrize("hangs", [False, True])
def test_orphans_of_a_command_are_a_finding_and_end_with_the_campaign(tmp_path: Path, hangs: bool):
    log = tmp_path / "orphans"
    fault = ORPHAN.format(log=str(log)) + ("\n    time.sleep(1000)" if hangs else "")
    options = {"examples": 2, "seed": 0, "shrink": False, "deterministic": False, "waste": None}
    result = isolated(
        f"cmd:{line(pool(tmp_path, fault))}", {**options, "seconds": None}, seconds=0.5 if hangs else 10.0
    )
    (finding,) = result.findings
    assert finding.broken.cause == ("the target hangs" if hangs else "the target leaves processes")
    assert all(ended(int(number)) for number in log.read_text().split())


def test_what_the_command_line_runs_once_more_leaves_nothing_either(tmp_path: Path, capsys):
    """The command itself adopts nobody: what shows a finding as a document is run in the campaign's process."""
    log = tmp_path / "orphans"
    arguments = line(pool(tmp_path, ORPHAN.format(log=str(log))))
    assert main(["fuzz", "--online", f"cmd:{arguments}", "--examples", "2"]) == 1
    assert "leaves processes" in capsys.readouterr().out
    begun = log.read_text().split()
    assert begun
    assert all(ended(int(number)) for number in begun)


def test_a_command_that_hangs_does_not_take_its_time_for_each_sequence(tmp_path: Path):
    make = command(line(pool(tmp_path, "if word == 'free': time.sleep(1000)")), seconds=0.2)
    found = campaign(Judge(make=make), examples=200)
    assert [each.broken.cause for each in found.findings] == ["the target hangs"]
    assert found.stopped.endswith("after 4 hung")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cmd:", "names no program"),
        ("cmd:/no/such/pool", "names no program"),
        ("cmd:'pool", "is no command"),
        (f"cmd:{sys.executable} -c pass", "ends its process: exit status 0"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(name: str, said: str, capsys):
    assert main(["fuzz", "--online", name, "--examples", "3"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_the_command_line_says_what_a_command_broke(tmp_path: Path, capsys):
    arguments = pool(tmp_path, "if word == 'free' and out == 1: top = 0")
    assert main(["fuzz", "--online", f"cmd:{line(arguments)}", "--examples", "60"]) == 1
    said = capsys.readouterr().out
    assert "disjoint: memory that is still held" in said
    assert "as a document: C12, fault of the plan" in said
