"""The page that judges: what it needs of Python is the standard library, its answers are the judge's, and it works in Chromium."""

import io
import json
import os
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
from allocsim.serving import in_browser
from allocsim.serving.static_files import POLICY, PYODIDE, bundle, server, site

DATA = Path(__file__).parents[2] / "data"
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


def test_what_the_page_needs_is_in_the_bundle_and_is_the_standard_library(tmp_path):
    """It runs isolated, without any installed package, and answers as here."""
    zipfile.ZipFile(io.BytesIO(bundle())).extractall(tmp_path)
    text = (DATA / "cases/missed-reader.json").read_text()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from allocsim.serving import in_browser; print(in_browser.judged(sys.stdin.read()))"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], input=text, capture_output=True, text=True, check=True
    )

    assert json.loads(ran.stdout) == json.loads(in_browser.judged(text))
    found = json.loads(ran.stdout)
    assert [row["kind"] for row in found["rows"]] == ["LifetimeTooShort", "Overlap", "StaleRead"]
    names = zipfile.ZipFile(io.BytesIO(bundle())).namelist()
    assert not [name for name in names if name.startswith(("numpy", "msgspec")) or "/fast/" in name]


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
    for ask in (in_browser.sizes, in_browser.judged):
        found = json.loads(ask(text))
        assert list(found) == ["refused"]
        assert found["refused"]
        assert "\n" not in found["refused"]


def test_one_value_listed_twice_as_a_result_is_told():
    document = json.loads((DATA / "cases/missed-reader.json").read_text())
    op = document["programs"][0]["ops"][0]
    op["results"] = op["results"] * 2
    found = json.loads(in_browser.judged(json.dumps(document)))

    assert any(row["kind"] == "ResultsOverlap" and "lays value 0" in row["text"] for row in found["rows"])


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
def test_chromium_judges_a_document_and_takes_names_as_text():
    text = (DATA / "cases/missed-reader.json").read_text().replace('"h"', '"<img src=x onerror=alert(1)>"')
    put = (
        "const file = new File([arguments[0]], 'plan.json'), data = new DataTransfer(); data.items.add(file);"
        "const input = document.getElementById('file'); input.files = data.files; input.dispatchEvent(new Event('change'));"
    )
    with server(site(PACKAGE), 0) as listening, browser(width=1000, height=800) as page:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        page.ask("POST", "/url", {"url": f"http://127.0.0.1:{listening.server_address[1]}/"})
        page.until("document.getElementById('state').textContent === 'Ready.'")
        page.run(put, text)
        page.until("/judged in/.test(document.getElementById('state').textContent)")
        assert page.run("return document.getElementById('verdict').textContent") == "3 violations"
        assert "<img src=x" in page.run("return document.getElementById('rows').textContent")
        assert page.run("return document.querySelectorAll('#rows img').length") == 0
        page.run(
            "window.seen = new Set(); new MutationObserver(() => window.seen.add(document.getElementById('state').textContent))"
            ".observe(document.getElementById('state'), { childList: true, characterData: true, subtree: true })"
        )
        page.run(put, dumps(many_causes(1000)).decode())
        page.until("document.getElementById('verdict').textContent === '2000 violations'")
        assert any("Judging 3002 ops" in said for said in page.run("return [...window.seen]")), (
            "it tells of what it does"
        )
        page.run(put, "{")
        page.until("/Expecting/.test(document.getElementById('state').textContent)")
        assert page.log() == []
        listening.shutdown()
