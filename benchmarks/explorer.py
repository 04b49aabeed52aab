"""The explorer's page: processor seconds and memory to make it, and what a browser takes to open it, hover, pan, zoom, step and choose.

    python benchmarks/explorer.py [--counts N ...] [--plans NAME ...] [--planner NAME] [--moves N] [--folder DIR] [--out FILE]

The documents are those of `benchmarks/pictures.py` with the plan that is sound and the one that is faulty, as files. A page is what `allocsim report` makes
of one, in a process of its own: its processor time and its peak memory, imports, reading and judging in them. The browser is a headless Chromium that draws
in software. `open_s` is from the start of the navigation until the map is drawn; the others are milliseconds from an event until the frame after it is done,
and `work_ms` what the scripts of the page take of it: medians of `--moves`, as they were on a machine that may have had other work (`load`).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests"), str(HERE)]

from browser import browser  # noqa: E402 - after the path above
from pictures import PLANNER, documents  # noqa: E402 - as above

import allocsim  # noqa: E402 - as above

MOVES: Final = """
const moves = arguments[0], c = document.querySelector('#map canvas:last-child'), box = c.getBoundingClientRect(), found = {};
const send = (kind, x, y) => c.dispatchEvent(
  new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true }));
const wheel = (by) => c.dispatchEvent(
  new WheelEvent('wheel', { deltaY: by, clientX: box.left + 400, clientY: box.top + 250, bubbles: true, cancelable: true }));
const key = (name) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
const next = window.requestAnimationFrame.bind(window), middle = (a) => a.sort((x, y) => x - y)[a.length >> 1];
const frame = () => new Promise((done) => next(() => {
  const after = new MessageChannel(); after.port1.onmessage = () => done(); after.port2.postMessage(0); }));
c.setPointerCapture = () => {};
const acts = {
  hover: (k) => send('pointermove', 100 + 600 / moves * k, 100 + 400 / moves * k),
  pan: (k) => { if (!k) send('pointerdown', 300, 300); send('pointermove', 300 + 3 * k, 300 + 2 * k); },
  zoom: (k) => { if (!k) send('pointerup', 300, 300); wheel(k < moves / 2 ? -100 : 100); },
  step: () => key('ArrowRight'), cause: () => key('n'),
};
return (async () => { for (const [name, act] of Object.entries(acts)) {
  const whole = [], work = [];
  for (let k = 0; k < moves; k += 1) {
    let spent = 0;
    window.requestAnimationFrame = (draw) => next((now) => { const t = performance.now(); draw(now); spent += performance.now() - t; });
    const t = performance.now(); act(k); spent += performance.now() - t;
    await frame(); whole.push(performance.now() - t); work.push(spent);
  }
  found[`${name}_ms`] = middle(whole); found[`${name}_work_ms`] = middle(work);
} return found; })();
"""

COMMAND: Final = (sys.executable, "-c", "import sys; from allocsim.cli import main; sys.exit(main())")


def made(file: Path, path: Path) -> dict[str, float]:
    """Make a page by the command; return what that took."""
    begun = subprocess.Popen(
        [*COMMAND, "report", str(file), "-o", str(path)], stdout=subprocess.DEVNULL, cwd=HERE.parent
    )
    _, status, used = os.wait4(begun.pid, 0)
    if status:
        raise SystemExit(f"{file}: no page was made of it")
    begun.returncode = 0
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
        "page_mib": path.stat().st_size / 2**20,
    }


def looked_at(path: Path, moves: int) -> dict[str, Any]:
    """Open a page and do what a reader does."""
    with browser() as page:
        page.open(path)
        opened = page.run("return performance.getEntriesByName('drawn')[0].startTime") / 1000
        causes = page.text("#causesHead")
        return {"causes": causes, "open_s": opened, **page.run(MOVES, moves), "console": page.log()}


def main() -> None:
    """Print and write a row for each count and plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--plans", nargs="+", choices=["sound", "faulty"], default=["sound", "faulty"])
    parser.add_argument("--planner", default=PLANNER, help="a million buffers need a quick one: skyline_by_area")
    parser.add_argument("--moves", type=int, default=30)
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "explorer.json", help="rows of other counts in it are kept"
    )
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        for count in options.counts:
            for name, document in documents(count, options.planner).items():
                if name not in options.plans:
                    continue
                file, path = (folder.resolve() / f"{name}-{count}.{suffix}" for suffix in ("json", "html"))
                allocsim.write(document, str(file))
                row = {"buffers": count, "plan": name, **made(file, path), **looked_at(path, options.moves)}
                row = {key: round(told, 2) if isinstance(told, float) else told for key, told in row.items()}
                rows.append(row | {"load": os.getloadavg()[0]})
                sys.stdout.write(f"{json.dumps(rows[-1])}\n")
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    rows += [row for row in kept["rows"] if row["buffers"] not in options.counts]
    rows.sort(key=lambda row: (row["buffers"], row["plan"]))
    machine = f"{platform.machine()}, {os.cpu_count()} processors"
    options.out.write_text(json.dumps({**kept, "machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
