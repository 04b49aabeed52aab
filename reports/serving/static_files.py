"""The files of the page that judges, and a server of them.

    files = site(Path("node_modules/pyodide"))      # path below the root -> bytes
    server(files, 8000).serve_forever()             # until interrupted

The page judges by Pyodide (Python compiled to WebAssembly, from its npm package); the
document is read there and goes nowhere. Its policy allows scripts and fetches of its own files and
WebAssembly, nothing else. What the browser's Python needs of this project is in `bundling`; the
explorer is that of a report, its template, style and script as they are there.

What this module does not see: what the judge finds.
"""

from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Final

from allocsim.errors import AllocsimError, NotInstalledError, OutputError
from allocsim.files.gate import CEILINGS, content, refused_with
from reports.interactive.assets import module, read
from reports.serving.bundling import bundle

HERE: Final = Path(__file__).parent
PAGE: Final = ("page.js", "worker.js", "page.css")
PYODIDE: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
"""Files of Pyodide's npm package that a page needs."""

POLICY: Final = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

TYPES: Final = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
    ".wasm": "application/wasm", ".zip": "application/zip", ".json": "application/json",
}  # fmt: skip


def site(pyodide: Path) -> dict[str, bytes]:
    """Return every file of the page by its path, with Pyodide's from its package's folder.

    Raises NotInstalledError where the folder lacks one.
    """
    made = {name: (HERE / name).read_bytes() for name in PAGE}
    page = Template((HERE / "index.html").read_text(encoding="utf-8"))
    made["index.html"] = page.substitute(explorer=read("explorer.html")).encode()
    made["explorer.js"], made["explorer.css"] = module().encode(), read("page.css").encode()
    for name in PYODIDE:
        if not (pyodide / name).is_file():
            rule = f"{pyodide} has no {name}; `npm install pyodide` makes node_modules/pyodide, and --pyodide names another folder"
            raise NotInstalledError(rule)
        made[f"pyodide/{name}"] = content(pyodide / name, CEILINGS["stream"], refusal=refused_with(AllocsimError))
    return {**made, "allocsim.zip": bundle()}


def server(files: Mapping[str, bytes], port: int) -> ThreadingHTTPServer:
    """Return a server of these files on this machine alone; port 0 takes a free one.

    Raises OutputError where the port cannot be had.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(body=True)

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def answer(self, *, body: bool) -> None:
            name = self.path.partition("?")[0].lstrip("/") or "index.html"
            data, kind = files.get(name), TYPES.get(Path(name).suffix, "text/plain")
            with suppress(ConnectionError):  # whoever asked has gone
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Type", "text/plain" if data is None else kind)
                self.send_header("Content-Security-Policy", POLICY)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"" if body else b"")

        def log_message(self, *_: object) -> None:
            """Say nothing of single requests."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise OutputError(f"port {port} cannot be listened at: {error}") from None
