"""`allocsim serve`: a page on this machine that judges documents in the browser.

What this module does not see: the page (`reports.serving`).
"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.output import print_line
from allocsim.files.folders import replace_files, working_in
from reports.serving.static_files import server, site


def serve(
    *,
    pyodide: Annotated[Path, typer.Option(metavar="DIR", help="Folder of Pyodide's npm package.")] = Path(
        "node_modules/pyodide"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: at a free one.")] = 8000,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Write the files there and serve nothing.")
    ] = None,
) -> int:
    """The judge runs in the browser: what is dropped on the page does not leave it.

    Example: allocsim serve --port 8001
    """
    files = site(pyodide)
    if out is not None:
        with working_in(out):
            replace_files(out, files)
        print_line(f"{out}: {len(files)} files, to be served as they are")
        return 0
    with server(files, port) as listening:
        print_line(f"http://127.0.0.1:{listening.server_address[1]}/ until interrupted")
        with suppress(KeyboardInterrupt):
            listening.serve_forever()
    return 0
