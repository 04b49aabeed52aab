"""The explorer's page: processor seconds and memory to make it, and what a browser takes to open it, hover and pan.

    python benchmarks/explorer.py [--counts N ...] [--moves N] [--folder DIR] [--out FILE]

The documents are those of `benchmarks/pictures.py` with the plan that is sound and the one that is faulty. A page is made by a process of its own, forked
once the document is there; its peak memory has the document in it. The browser is a headless Chromium that draws in software. `open_s` is from the start of
the navigation until the map is drawn, `hover_ms` and `pan_ms` from a pointer's move until the frame after it is done, `event_ms` the handler alone: medians
of `--moves`, as they were on a machine that may have had other work (`load`).
"""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests"), str(HERE)]

from browser import browser  # noqa: E402 - after the path above
from pictures import documents  # noqa: E402 - as above

from allocsim.model import Document  # noqa: E402 - as above
from reports.interactive import html  # noqa: E402 - as above

MOVES: Final = """
const moves = arguments[0], c = document.querySelector('#map canvas:last-child'), box = c.getBoundingClientRect();
const send = (kind, x, y) => c.dispatchEvent(
  new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true }));
const frame = () => new Promise((done) => requestAnimationFrame(() => {
  const after = new MessageChannel(); after.port1.onmessage = () => done(); after.port2.postMessage(0); }));
const middle = (a) => a.sort((x, y) => x - y)[a.length >> 1];
c.setPointerCapture = () => {};
const timed = async (place) => { const event = [], whole = []; for (let k = 0; k < moves; k += 1) {
  const t = performance.now(); send('pointermove', ...place(k)); event.push(performance.now() - t);
  await frame(); whole.push(performance.now() - t); } return [middle(event), middle(whole)]; };
return (async () => {
  const [event_ms, hover_ms] = await timed((k) => [100 + 600 / moves * k, 100 + 400 / moves * k]);
  send('pointerdown', 300, 300);
  const [, pan_ms] = await timed((k) => [300 + 3 * k, 300 + 2 * k]);
  send('pointerup', 300, 300);
  return { event_ms, hover_ms, pan_ms };
})();
"""


def made(document: Document, path: Path) -> dict[str, float]:
    """Make a page in a fork; return what that took."""
    out, into = os.pipe()
    if os.fork() == 0:
        begun = time.process_time()
        path.write_bytes(html({"scenario": path.stem}, document))
        took = {
            "cpu_s": time.process_time() - begun,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        os.write(into, json.dumps(took).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as told:
        took = json.load(told)
    os.wait()
    return {**took, "page_mib": path.stat().st_size / 2**20}


def looked_at(path: Path, moves: int) -> dict[str, Any]:
    """Open a page, move over it and pan."""
    with browser() as page:
        page.open(path)
        opened = page.run("return performance.getEntriesByName('drawn')[0].startTime") / 1000
        return {"open_s": opened, **page.run(MOVES, moves), "console": page.log()}


def main() -> None:
    """Print and write a row for each count and plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--moves", type=int, default=30)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "explorer.json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        for count in options.counts:
            for name, document in documents(count).items():
                path = folder / f"{name}-{count}.html"
                row = {"buffers": count, "plan": name, **made(document, path), **looked_at(path, options.moves)}
                rows.append(row | {"load": os.getloadavg()[0]})
                sys.stdout.write(f"{json.dumps(rows[-1])}\n")
    options.out.write_text(
        json.dumps({"machine": f"{platform.machine()}, {os.cpu_count()} processors", "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
