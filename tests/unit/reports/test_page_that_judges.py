"""The page that judges: what it needs of Python is the standard library, its answers are the judge's, and it works in Chromium."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
import zipfile
from pathlib import Path

import pytest
from browser import CHROMIUM, DRIVER, NEEDED, browser
from page_documents import many_causes

from allocsim.diagnostics import worded
from allocsim.diagnostics.document_facts import DocumentFacts
from allocsim.diagnostics.plain_facts import PlainFacts
from allocsim.document import dumps, loads
from allocsim.errors import NotInstalledError, OutputError
from allocsim.judge.plain import judge, read
from allocsim.verdict import judge as reached
from allocsim.verdict.evidence import Evidence
from reports.interactive.boxes import exhibit
from reports.serving import in_browser
from reports.serving.bundling import STAND_INS, bundle, needed
from reports.serving.static_files import POLICY, PYODIDE, server, site

DATA = Path(__file__).parents[2] / "data"
TOUR = Path(__file__).parents[3] / "examples/tour/step.json"
CASES = sorted((DATA / "cases").glob("*.json"))
PACKAGE = Path(os.environ.get("PYODIDE", "node_modules/pyodide"))


def native(path):
    text = path.read_text(encoding="utf-8")
    return text if '"allocsim' in text[:2000] else None


@pytest.mark.parametrize("path", [path for path in CASES if native(path)], ids=lambda path: path.stem)
def test_sentences_from_records_are_those_from_columns(path):
    text = native(path)
    record, document = read(json.loads(text)), loads(text, path.name)
    report = judge(record)

    assert worded(report, PlainFacts(record)) == worded(report, DocumentFacts(document))


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from reports.serving import in_browser
asked = ("sizes", "judged", "explained", "cured")
for path in sys.argv[2:]:
    print(json.dumps([json.loads(getattr(in_browser, name)(open(path, encoding="utf-8").read())) for name in asked]))
print(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
"""


@pytest.fixture(scope="module")
def browsers_python(tmp_path_factory):
    """Return what a Python that has the bundle alone answers of files: a list of four answers for each, and what it imported."""
    folder = tmp_path_factory.mktemp("bundle")
    zipfile.ZipFile(io.BytesIO(bundle())).extractall(folder)

    def answers(*paths):
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM, folder, *paths], capture_output=True, text=True, check=True
        )
        *said, imported = ran.stdout.splitlines()
        return [json.loads(line) for line in said], imported

    return answers


def test_what_the_page_needs_is_in_the_bundle_and_is_plain_python(browsers_python):
    """It runs isolated, without any installed package; what stands for numpy and msgspec is the bundle's."""
    path = DATA / "cases/missed-reader.json"
    ((_, found, _, _),), imported = browsers_python(path)

    assert found == json.loads(in_browser.judged(path.read_text()))
    assert [row["kind"] for row in found["rows"]] == ["LifetimeTooShort", "Overlap", "StaleRead"]
    assert imported == "['__main__', 'allocsim', 'lazy_loader', 'msgspec', 'numpy', 'reports']"


def test_the_stand_in_has_what_is_asked_of_numpy_and_no_function_beside():
    """But what planners ask that are compiled, and so not there."""
    modules = {place: file.read_text(encoding="utf-8") for place, file in needed().items()}
    asked = {name for text in modules.values() for name in re.findall(r"(?<!\w)np\.(\w+)", text)}
    told = (STAND_INS / "numpy/__init__.py").read_text(encoding="utf-8")
    stand_in = vars(module_from(STAND_INS / "numpy/__init__.py"))
    there = {name for name in asked if name in stand_in} | {"sum", "max", "min", "any", "all", "abs", "ndarray"}
    assert asked - there <= {"fill_diagonal", "frexp", "norm", "random", "typing"}  # `norm`: an example of lazy_loader
    functions = re.findall(r"^def ([a-z]\w*)", told, re.MULTILINE)
    assert [name for name in functions if name not in asked and told.count(f"{name}(") < 2] == []


def module_from(path):
    """Return what a file holds as a module of another name."""
    spec = importlib.util.spec_from_file_location("stand_in", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_planners_that_are_not_compiled_plan_in_the_browser_as_with_numpy(tmp_path):
    zipfile.ZipFile(io.BytesIO(bundle())).extractall(tmp_path)
    path = DATA / "cases/missed-reader.json"
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.document import loads
program = loads(open(sys.argv[2], encoding="utf-8").read()).programs[0]
for name in ("tlsf", "slot_sharing", "caching", "buddy"):
    plan = ALLOCATORS[name].place(ALLOCATORS[name].believe(program, Constraints.of(program)))
    print(name, plan.offset.tolist(), plan.peak_bytes)
"""
    said = [
        subprocess.run([sys.executable, *bare, "-c", program, folder, path], capture_output=True, text=True, check=True)
        for bare, folder in ((("-I", "-S"), tmp_path), ((), Path(__file__).parents[3]))
    ]
    assert said[0].stdout == said[1].stdout
    assert len(said[0].stdout.splitlines()) == 4


def test_the_judge_answers_before_anything_that_needs_columns_is_imported():
    ran = subprocess.run(
        [sys.executable, "-c", "import sys, reports.serving.in_browser; print({'numpy', 'msgspec'} & {*sys.modules})"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == "set()\n"


def test_verdict_causes_cure_and_explorer_in_the_browser_are_those_of_numpy(browsers_python, monkeypatch):
    """Of every native case, and of the tour's plan: the stand-ins change nothing."""
    monkeypatch.setitem(sys.modules, "numba", None)  # a browser has none: planners that are compiled do not plan anew
    paths = [path for path in CASES if native(path)] + [TOUR]
    said, _ = browsers_python(*paths)
    causes = 0
    for path, (_, _, explained, cured) in zip(paths, said, strict=True):
        text = path.read_text(encoding="utf-8")
        assert explained == json.loads(in_browser.explained(text)), path.stem
        assert cured == json.loads(in_browser.cured(text)), path.stem
        causes += len(explained["head"].get("causes", ()))
    assert causes > 40


def test_the_explorer_in_the_browser_is_the_one_of_a_report():
    """The same head and the same columns, with the causes by the same numbers."""
    document, text = loads(TOUR.read_bytes()), TOUR.read_text()
    verdict = reached(Evidence(document=document))
    head, block = exhibit(document, report=verdict.report, causes=verdict.causes, verdict=verdict.as_json())
    explained, cured = json.loads(in_browser.explained(text)), json.loads(in_browser.cured(text))
    assert explained["block"] == block.encoded()
    for cause in explained["head"]["causes"]:
        cause["cure"] = cured["cures"][str(cause["number"])]
    assert explained["head"] == json.loads(json.dumps(head))
    assert cured["clauses"] == list(verdict.clauses)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        '{"format": "allocsim"}',
        "[" * 5000,
        '{"format": "allocsim", "version": 9}',
        "NaN",
        '"\ud800"',
    ],
)
def test_what_is_no_document_is_refused_in_one_line(text):
    for ask in (in_browser.sizes, in_browser.judged, in_browser.explained, in_browser.cured):
        found = json.loads(ask(text))
        assert list(found) == ["refused"]
        assert found["refused"]
        assert "\n" not in found["refused"]


def test_one_value_listed_twice_as_a_result_is_told():
    document = json.loads((DATA / "cases/missed-reader.json").read_text())
    op = document["programs"][0]["ops"][0]
    op["results"] = op["results"] * 2
    found = json.loads(in_browser.judged(json.dumps(document)))

    assert any(row["kind"] == "ResultsOverlap" and "puts value 0" in row["text"] for row in found["rows"])


@pytest.mark.parametrize(
    ("without", "title"), [((), "3 violations"), (("problems", "plans", "session"), "no plan here")]
)
def test_the_page_says_no_more_than_was_examined(without, title):
    document = json.loads((DATA / "cases/missed-reader.json").read_text())
    text = json.dumps({key: said for key, said in document.items() if key not in without})
    assert json.loads(in_browser.judged(text))["title"] == title


def test_what_is_clean_is_so_without_kernels():
    text = next(text for path in CASES if (text := native(path)) and not judge(read(json.loads(text))).count)
    assert json.loads(in_browser.judged(text))["title"] == "no violation found; kernels not examined"


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in PYODIDE:
        (folder / name).write_bytes(b"not really")
    return folder


def test_the_server_gives_its_files_their_policy_and_nothing_else(package):
    files = site(package)
    with server(files, 0) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{listening.server_address[1]}"
        with urllib.request.urlopen(f"{root}/") as answer:
            assert answer.headers["Content-Security-Policy"] == POLICY
            assert b"page.js" in answer.read()
        with urllib.request.urlopen(f"{root}/pyodide/pyodide.asm.wasm") as answer:
            assert answer.headers["Content-Type"] == "application/wasm"
        for wrong in ("/../etc/passwd", "/etc/passwd", "/%2e%2e/x", "/serving/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(root + wrong)
        with pytest.raises(OutputError, match="cannot be listened at"):
            server(files, listening.server_address[1])
        listening.shutdown()
    page = files["index.html"].decode()
    assert "http" not in page.replace("http-equiv", "")
    assert " style=" not in page
    assert " on" not in page.partition("<body>")[2].replace(" one", "").replace(" on ", "")


def test_a_folder_without_pyodide_is_refused_by_what_is_missing(package, tmp_path):
    (package / "pyodide.asm.wasm").unlink()
    with pytest.raises(NotInstalledError, match=r"has no pyodide.asm.wasm; `npm install pyodide`"):
        site(package)


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=NEEDED)
@pytest.mark.skipif(
    not (PACKAGE / "pyodide.asm.wasm").exists(), reason="needs Pyodide's npm package: PYODIDE names its folder"
)
def test_chromium_shows_verdict_causes_explorer_and_cure_and_takes_names_as_text():
    hostile = "<img src=x onerror=alert(1)>"
    text = (DATA / "cases/missed-reader.json").read_text().replace('"h"', f'"{hostile}"')
    put = (
        "const file = new File([arguments[0]], 'plan.json'), data = new DataTransfer(); data.items.add(file);"
        "const input = document.getElementById('file'); input.files = data.files; input.dispatchEvent(new Event('change'));"
    )
    done = "/: done in/.test(document.getElementById('state').textContent)"
    with server(site(PACKAGE), 0) as listening, browser(width=1000, height=800) as page:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        page.ask("POST", "/url", {"url": f"http://127.0.0.1:{listening.server_address[1]}/"})
        page.until("document.getElementById('state').textContent === 'Ready.'")
        page.run(
            "window.seen = new Set(); new MutationObserver(() => window.seen.add(document.getElementById('state').textContent))"
            ".observe(document.getElementById('state'), { childList: true, characterData: true, subtree: true })"
        )
        page.run(put, text)
        page.until(done)
        assert page.text("#verdict") == "3 violations"
        assert hostile in page.text("#rows")
        assert page.run("return document.querySelectorAll('main img').length") == 0
        clauses = page.run("return [...document.querySelectorAll('#clauses li')].map((one) => one.textContent)")
        assert clauses == json.loads(in_browser.cured(text))["clauses"]
        assert clauses[-1].startswith("cure: ")
        page.press("n")
        told = page.text("#told")
        assert told.startswith("1. C01 plan")
        assert "cure: " in told
        assert hostile in told
        said = page.run("return [...window.seen]")
        assert any("Judging" in one for one in said), "it tells of what it does"
        assert any("looking for cures" in one for one in said)

        page.run(put, (DATA / "cases/both-plans-faulty.json").read_text())
        page.until(f"{done} && document.getElementById('clauses').textContent.includes('cure')")
        assert page.text("#causesHead").startswith("2 causes")
        assert page.run("return document.querySelectorAll('#explorer').length") == 1
        page.press("n")
        assert page.text("#told").startswith("1. "), "one key, one explorer that hears it"

        page.run(put, dumps(many_causes(1000)).decode())
        page.until("document.getElementById('verdict').textContent === '2000 violations'")
        page.run(put, "{")  # what is looked for is let go
        page.until("/Expecting/.test(document.getElementById('state').textContent)")
        assert page.run("return document.getElementById('report').hidden")
        assert page.log() == []
        listening.shutdown()
