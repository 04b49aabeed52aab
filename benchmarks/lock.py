"""The lock of what is installed, with hashes, and its bill of materials.

    python benchmarks/lock.py              # requirements.lock: what pip resolves below constraints.txt
    python benchmarks/lock.py --bill       # sbom.json (CycloneDX 1.5) from the lock; asks no index

The lock is of one system and one Python, which its first line names: a wheel for another one has another hash, and pip refuses it. `make venv-locked` installs
it with `--require-hashes`, so that what is installed is what was tested, byte by byte. Neither file carries an address of an index.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from allocsim.files import write_atomic

ROOT = Path(__file__).parents[1]
LOCK, BILL, CONSTRAINTS = ROOT / "requirements.lock", ROOT / "sbom.json", ROOT / "constraints.txt"
ROW = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$")


def resolved() -> str:
    """Return the lock that pip makes of the project's extras; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        asked = ["--dry-run", "--ignore-installed", "--quiet", "--report", report, "-c", CONSTRAINTS]
        subprocess.run([sys.executable, "-m", "pip", "install", *asked, f"{ROOT}[dev,ggml,peers]"], check=True)
        return lock_of(json.loads(report.read_text()))


def lock_of(report: dict) -> str:
    """Return the lines of a report of pip's: all but the project itself."""
    rows = []
    for entry in report["install"]:
        hashes = entry["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" in hashes:
            rows.append(f"{entry['metadata']['name']}=={entry['metadata']['version']} --hash=sha256:{hashes['sha256']}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    head = f"# For Python {version} on {platform.system()} {platform.machine()}; pip install --require-hashes --no-deps -r requirements.lock"
    return "\n".join([head, *sorted(rows, key=str.lower)]) + "\n"


def bill_of(lock: str) -> dict:
    """Return the CycloneDX document of a lock; the same for the same lock."""
    components = []
    for line in lock.splitlines()[1:]:
        found = ROW.match(line)
        assert found is not None, line
        name, version, digest = found.groups()
        url = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
        about = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
        components.append({**about, "hashes": [{"alg": "SHA-256", "content": digest}]})
    about = {"type": "application", "bom-ref": "allocsim", "name": "allocsim"}
    whole = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": about}}
    return {**whole, "components": components}


def main() -> None:
    """Write the lock, or the bill of the lock that is there."""
    parser = argparse.ArgumentParser(description="The lock with hashes, and its bill of materials.")
    parser.add_argument("--bill", action="store_true")
    if not parser.parse_args().bill:
        write_atomic(LOCK, resolved().encode())
    bill = json.dumps(bill_of(LOCK.read_text()), separators=(",", ":"))
    write_atomic(BILL, bill.replace('},{"type"', '},\n{"type"').encode() + b"\n")


if __name__ == "__main__":
    main()
