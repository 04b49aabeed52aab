"""The documentation as a site: pages as they stand, a reference from docstrings, links that are checked.

    python docs/site/build.py [--out FOLDER] [--stage-only]

`DOORS` is the navigation: every page of the repository has a place in it, so each is one click from the first. Pages are
copied into `FOLDER/source` under the names that they have here, so that their links hold; a link to a file that is no page
(code, data) becomes a copy of that file. The reference has a page for each module of `REFERENCE`: signatures and docstrings
of its public names. zensical makes the site in `FOLDER/site`, without anything from the network. Then every link of every
page is followed: exit status 1, a line each, where one leads nowhere or leaves the site for a font, a script or a style.
"""

import argparse
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

DOORS: dict[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/tour.md", "docs/wishes.md", "docs/glossary.md"),
    "My planner or allocator": (
        *("docs/format.md", "docs/verdict.md", "docs/allocators.md", "docs/fuzzing.md", "docs/online.md"),
        *("docs/scenarios.md", "docs/power.md"),
    ),
    "My ggml program": ("docs/ggml.md", "docs/audit.md", "docs/upstream/README.md"),
    "My XLA, ExecuTorch, LiteRT, IREE program": ("docs/plans.md", "docs/systems.md", "docs/found.md"),
    "My PyTorch or own model": (
        *("docs/front.md", "docs/training.md", "docs/generation.md", "docs/sharding.md", "docs/autodiff.md"),
        *("docs/pytorch.md", "docs/ops.md", "docs/executors.md", "docs/texts.md", "examples/README.md"),
    ),
    "In my CI": ("docs/embedding.md", "docs/pictures.md", "SECURITY.md"),
    "How it works": (
        *("docs/theory.md", "docs/limits.md", "docs/differential.md", "docs/sanitizer.md", "CONTRIBUTING.md"),
        *("tests/README.md", "benchmarks/README.md", "CHANGELOG.md"),
    ),
}
"""Section -> pages. Pages below one that is listed (`docs/upstream`) are reached from it."""

REFERENCE = (
    *(
        "allocsim",
        "allocsim.model",
        "allocsim.programs.builder",
        "allocsim.verdict",
        "allocsim.cure",
        "allocsim.recordings",
    ),
    *("allocsim.fuzzing.strategies", "allocsim.online", "engine", "engine.front.functions", "engine.front.modules"),
    *("engine.training", "engine.generation", "engine.sharding", "repro"),
)
"""Modules whose public names have a page."""

LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def pages() -> Iterator[Path]:
    """Yield every page of the repository, by its place in it."""
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/*/*.md",
        "examples/*.md",
        "tests/*.md",
        "tests/*/README.md",
        "benchmarks/*.md",
        "benchmarks/results/*.md",
    ):
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT)


def stage(folder: Path) -> None:
    """Copy the pages, and each file that they link to, and write the reference."""
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        place = folder / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        for link in LINK.findall(text):
            source = ROOT / page.parent / link.partition("#")[0]
            if not re.match(r"[a-z]+:|#", link) and source.is_file() and source.suffix != ".md":
                target = folder / source.resolve().relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    (folder / "index.md").write_text((folder / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "README.md").unlink()
    for page in folder.rglob("*.md"):  # the first page is called index in a site
        text = page.read_text(encoding="utf-8")
        page.write_text(
            re.sub(r"\]\((\.\./)*README\.md", lambda found: found[0].replace("README", "index"), text), encoding="utf-8"
        )
    (folder / "reference").mkdir(exist_ok=True)
    for name in REFERENCE:
        (folder / "reference" / f"{name}.md").write_text(reference(name), encoding="utf-8")


def reference(name: str) -> str:
    """Return the page of a module: what it says of itself, then its public names, classes with their methods."""
    module = importlib.import_module(name)
    parts = [f"# {name}", fenced(inspect.getdoc(module) or "")]
    for public in sorted(getattr(module, "__all__", ())):
        thing = getattr(module, public)
        parts += [f"## {public}", *told(public, thing)]
        methods = vars(thing).items() if inspect.isclass(thing) else ()
        for method, function in methods:
            if not method.startswith("_") and inspect.isfunction(function):
                parts += [f"### {public}.{method}", *told(method, function)]
    return "\n\n".join(parts) + "\n"


def told(name: str, thing: object) -> list[str]:
    """Return how a public name is called, and its docstring."""
    if not (callable(thing) or inspect.ismodule(thing)):
        return []
    called = [f"```python\n{name}{signature(thing)}\n```"] if callable(thing) else []
    return [*called, fenced(inspect.getdoc(thing) or "")]


def signature(thing: object) -> str:
    """Return how a thing is called, a line for each argument where these are many; `(...)` where it does not tell."""
    try:
        found = inspect.signature(thing)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"
    whole = plain(str(found))
    if len(whole) < 80:
        return whole
    rows, kind = [], None
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and kind not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            rows.append("*")
        rows.append(plain(str(one)))
        kind = one.kind
    result = "" if found.return_annotation is found.empty else whole.rpartition(" -> ")[2]
    return "(\n" + "".join(f"    {row},\n" for row in rows) + ")" + (f" -> {result}" if result else "")


def plain(text: str) -> str:
    """Return a signature's text without the modules of its types and without addresses."""
    return re.sub(r"\b(?:[a-z_0-9]+\.)+(?=[A-Za-z])", "", re.sub(r" at 0x[0-9a-f]+", "", text)).replace("'", "")


def fenced(text: str) -> str:
    """Return text that is shown as it stands."""
    return f"```text\n{text}\n```" if text else ""


def title(page: Path) -> str:
    """Return the heading of a page."""
    return (ROOT / page).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def navigation() -> list[object]:
    """Return the sections as zensical has them."""
    made: list[object] = [
        {section: [{title(Path(page)): "index.md" if page == "README.md" else page} for page in listed]}
        for section, listed in DOORS.items()
    ]
    return [*made, {"Reference": [{name: f"reference/{name}.md"} for name in REFERENCE]}]


def configuration() -> str:
    """Return zensical's file, for the folder with `source` and `site`: no font, no script and no style that is not the site's own."""
    features = ["navigation.sections", "navigation.top", "search.highlight", "content.code.copy"]
    return "\n".join([
        "[project]",
        'site_name = "allocsim"',
        'docs_dir = "source"',
        'site_dir = "site"',
        "use_directory_urls = false",
        f"nav = {toml(navigation())}",
        "[project.theme]",
        "font = false",
        f"features = {json.dumps(features)}",
        "[project.markdown_extensions]",
        "tables = {}",
        "[project.markdown_extensions.toc]",
        "permalink = true",
        "[project.markdown_extensions.pymdownx.superfences]",
        "[project.markdown_extensions.pymdownx.highlight]",
    ]) + "\n"  # fmt: skip


def toml(value: object) -> str:
    """Return lists and tables of texts in TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


class Page(HTMLParser):
    """What a page links to, what it takes, and the places within it."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.links: list[str] = []
        self.taken: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one tag."""
        said = {name: value or "" for name, value in attrs}
        self.places |= {said[name] for name in ("id", "name") if name in said}
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        elif tag in ("script", "img", "source", "iframe") and "src" in said:
            self.taken.append(said["src"])
        elif tag == "link" and said.get("rel") not in ("canonical", "next", "prev", "alternate") and "href" in said:
            self.taken.append(said["href"])


def wrong(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each thing that a page takes from elsewhere."""
    known = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in known.items():
        here = path.relative_to(site)
        for link in [*page.links, *page.taken]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.taken:
                    found.append(f"{here}: takes {link} from elsewhere")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{here}: {link} leads nowhere")
            elif parts.fragment and target in known and unquote(parts.fragment) not in known[target].places:
                found.append(f"{here}: {link} names no place of {target.relative_to(site)}")
    return found


def main() -> int:
    """Build, and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "site")
    parser.add_argument("--stage-only", action="store_true", help="write the pages and make no site of them")
    asked = parser.parse_args()
    out = asked.out.resolve()
    source, site = out / "source", out / "site"
    for made in (source, site):  # what else lies there stays
        shutil.rmtree(made, ignore_errors=True)
    stage(source)
    if asked.stage_only:
        return 0
    place = out / "zensical.toml"
    place.write_text(configuration(), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "zensical", "build", "-f", str(place)], check=True)
    (site / "404.html").unlink(missing_ok=True)  # its links begin at the root of a server
    lines = wrong(site)
    for line in lines:
        print(line)
    print(f"{site}: {len(list(site.rglob('*.html')))} pages, {len(lines)} wrong links")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
