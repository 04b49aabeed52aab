"""What CONTRIBUTING says a new op, allocator, importer, kind of violation or scenario costs is what it costs.

A copy of the tree gets one of each, with edits in no other file than those that the table "Where things go" names, and the tests
that concern it pass there. They are few and narrow: what each of them asks is held elsewhere.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest
from planting import JUDGES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TABLE = TEXT[TEXT.index("## Where things go") : TEXT.index("Four layers")]


@dataclass(frozen=True, kw_only=True)
class Door:
    """One addition: what is edited, what is new, and the tests that it concerns."""

    row: str
    """How its row of the table begins."""
    edits: dict[str, tuple[tuple[str, str], ...]]
    """File -> what is put behind a piece of text that stands there once."""
    files: dict[str, str] = field(default_factory=dict)
    """New file -> its text."""
    tests: tuple[str, ...]
    made: tuple[str, ...] = ()
    """Pages that are made from tables, with `ALLOCSIM_UPDATE=1`."""


OP = Door(
    row="an op",
    edits={
        "engine/ops/element_functions.py": (
            ('    "log": "div(g, x)",\n', '    "exp2": "scale(mul(g, r), s=0.6931471805599453)",\n'),
        ),
        "engine/kernels/__init__.py": (('    "log": (np.log,),\n', '    "exp2": (np.exp2,),\n'),),
        "engine/ops/op_reference.py": (('"expm1": "e ** x - 1", ', '"exp2": "2 ** x", '),),
        "tests/engine_oracle.py": (('    "log": np.log,\n', '    "exp2": lambda x: 2**x,\n'),),
    },
    tests=(
        "tests/unit/engine/kernels/test_kernels.py::test_computes_what_the_oracle_computes[exp2-numpy-f8]",
        "tests/unit/engine/ops/test_derivatives.py::test_every_derivative_of_the_table_has_a_case",
        "tests/unit/engine/ops/test_derivatives.py::test_every_derivative_is_asked_for_no_element_and_for_one",
        "tests/unit/engine/ops/test_derivatives.py::test_ops_without_derivatives_are_listed",
        "tests/unit/engine/ops/test_derivatives.py::test_gradient_is_that_of_hips_autograd[exp2-3x5-False]",
        "tests/unit/engine/ops/test_op_reference.py",
        "tests/unit/engine/graph/test_graph.py::test_every_op_but_views_has_a_kernel",
    ),
    made=("docs/ops.md",),
)

ALLOCATOR = Door(
    row="an allocator",
    edits={
        "allocsim/allocators/__init__.py": (
            ("    exact,\n", "    first_named,\n"),
            (
                '("best_fit", best_fit.place, BOUNDED, "best fit in order of birth; Knuth, TAOCP 1, 2.5"),\n',
                '                ("first_named", first_named.place, BOUNDED, "first fit in order of the names"),\n',
            ),
        ),
    },
    files={
        "allocsim/allocators/first_named.py": """
            '''First fit in the order of the buffers' names.'''

            import numpy as np

            from allocsim.allocators.fitting import place_in_order
            from allocsim.model import Plan, Problem


            def place(problem: Problem) -> Plan:
                '''Place by name.'''
                names = problem.program.buffers.names
                return place_in_order(
                    "first_named", problem, lambda _, rows: np.array(sorted(rows, key=lambda b: names[b]), dtype=np.int64), best=False
                )
        """
    },
    tests=(
        "tests/unit/allocators/test_shelf.py::test_alignment_arenas_pins_and_fixed_offsets_are_heeded_together[first_named]",
        "tests/unit/allocators/test_shelf.py::test_what_does_not_fit_is_refused_in_one_line[first_named]",
        "tests/unit/allocators/test_shelf.py::test_a_buffer_nobody_needs_has_no_slot[first_named]",
    ),
)

IMPORTER = Door(
    row="a system",
    edits={
        "allocsim/systems/__init__.py": (
            (
                "from allocsim.systems.executorch import pte_program\n",
                "from allocsim.systems.envelope import envelope_file\n",
            ),
            (
                "SYSTEMS: Final[dict[str, System]] = {\n    row.name: row\n    for row in (\n",
                (
                    '        System(name="envelope", page="plans.md", formats=(Format(name="envelope", what="a document in an envelope",'
                    " matches=envelope_file.looks_like, loads=envelope_file.loads),)),\n"
                ),
            ),
        ),
        "tests/samples.py": (
            (
                "SAMPLES: Final = {\n",
                (
                    '    "envelope": Samples(clean=Sample(path="plans/envelope/clean.txt"), convicted=Sample(path="plans/envelope/convicted.txt"),'
                    ' cause=("C12", "plan"), damaged=cut("plans/envelope/clean.txt")),\n'
                ),
            ),
        ),
        "pyproject.toml": (('layers = ["executorch | ', "envelope | "),),
    },
    files={
        "allocsim/systems/envelope/__init__.py": '"""Documents in an envelope."""\n',
        "allocsim/systems/envelope/envelope_file.py": """
            '''A native document behind one line, its last byte first.'''

            from allocsim import document
            from allocsim.model import Document

            HEAD = b"envelope\\n"


            def looks_like(head: bytes) -> bool:
                '''Whether a file begins with the line.'''
                return head.startswith(HEAD)


            def loads(data: bytes, source: str) -> Document:
                '''Return the document behind the line; raises DocumentError.'''
                return document.loads(data.removeprefix(HEAD)[::-1], source)
        """,
        "tests/data/plans/envelope/clean.txt": "envelope\n{cases/kv-pages.json}",
        "tests/data/plans/envelope/convicted.txt": "envelope\n{cases/two-slots-overlap.json}",
    },
    tests=(
        "tests/unit/systems/test_samples.py::test_a_clean_a_convicted_and_a_damaged_sample_are_judged[envelope]",
        "tests/unit/systems/test_samples.py::test_every_room_is_a_row",
        "tests/unit/systems/test_samples.py::test_what_a_row_names_is_there",
        "tests/unit/test_layers.py::test_the_import_contracts_hold_and_cover_every_package",
    ),
)

KIND = Door(
    row="a kind of violation",
    edits={
        "allocsim/judge/violations.py": (
            (
                '    "Undersized": ("violation", "a slot is smaller than its buffer"),\n',
                '    "Oversized": ("warning", "a slot is larger than its buffer"),\n',
            ),
        ),
        "allocsim/diagnostics/sentences.py": (
            (
                '    "Undersized": _undersized,\n',
                '    "Oversized": lambda r: f"{r.buffer()} has a slot of more bytes",\n',
            ),
        ),
        "allocsim/judge/fast/s_slots.py": (
            (
                '        ("Undersized", placed & (plan.nbytes < _sizes(trial)), partial(_slot, "Undersized")),\n',
                '        ("Oversized", placed & (plan.nbytes > _sizes(trial)), partial(_slot, "Oversized")),\n',
            ),
        ),
        "allocsim/judge/plain/plan_rules.py": (
            (
                '        yield placed and slot.nbytes < sizes[buffer], "Undersized", buffer, None\n',
                '        yield placed and slot.nbytes > sizes[buffer], "Oversized", buffer, None\n',
            ),
        ),
        "tests/oracle.py": (
            (
                '        if nbytes < needed:\n            yield "Undersized", {}\n',
                '        if nbytes > needed:\n            yield "Oversized", {}\n',
            ),
        ),
        "tests/sensitivity/test_planted_faults.py": (
            (
                "    return Document.of(Plan(program=made.program, arena=made.arena, offset=made.offset, nbytes=short))\n",
                (
                    '\n\n@plant("Oversized")\ndef a_slot_is_a_byte_long(planted):\n    made = chained({})\n'
                    "    long = made.nbytes + [0, 0, 1] if planted else made.nbytes\n"
                    "    return Document.of(Plan(program=made.program, arena=made.arena, offset=made.offset, nbytes=long))\n"
                ),
            ),
        ),
        "docs/format.md": (
            (
                "| `LifetimeTooLong` (warning) | a believed lifetime, without its gaps, has a step outside all segments, unless the buffer is pinned or no op accesses it |\n",
                "| `Oversized` (warning) | a slot is larger than its buffer |\n",
            ),
        ),
    },
    tests=(
        *(
            f"tests/sensitivity/test_planted_faults.py::{test}[a_slot_is_a_byte_long-{judge}]"
            for test in ("test_the_planted_kinds_fire_and_no_other", "test_the_unplanted_twin_is_clean")
            for judge in JUDGES
        ),
        "tests/sensitivity/test_planted_faults.py::test_every_kind_is_planted",
        "tests/sensitivity/test_planted_faults.py::test_every_kind_fires_alone_somewhere",
    ),
)

SCENARIO = Door(
    row="a scenario",
    edits={
        "repro/scenarios/__init__.py": (
            ('    "double-free": "double_free",\n', '    "on-the-first": "on_the_first",\n'),
        )
    },
    files={
        "repro/scenarios/on_the_first.py": '''
            """A second buffer lies on the first."""

            from repro import SmallDocument, SmallScenario

            SCENARIO = SmallScenario(
                name="on-the-first",
                title="a second buffer lies on the first",
                source="https://example.com/on/the/first",
                story="Two buffers that are both needed share bytes.",
                sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="a=0 b=64"),
                place="placement",
                change={"slots": "a=0 b=0"},
                expected=(("C12", "plan"),),
                reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
                not_run="H R",
                caught="A replay of the plan.",
            )
        '''
    },
    tests=(
        "tests/unit/repro/test_small_scenarios.py::test_every_detector_answers_as_expected_and_the_twin_is_clean[on-the-first]",
        "tests/unit/repro/test_small_scenarios.py::test_a_scenario_has_the_name_of_its_row_and_no_name_is_taken_twice",
        "tests/unit/repro/test_small_scenarios.py::test_the_gallery_is_what_the_tables_say",
    ),
    made=("docs/scenarios.md",),
)

DOORS = {"op": OP, "allocator": ALLOCATOR, "importer": IMPORTER, "kind": KIND, "scenario": SCENARIO}


def places(row):
    """Return the files and folders that a row of the table names."""
    (line,) = [line for line in TABLE.splitlines() if line.startswith(f"| {row}")]
    return re.findall(r"`((?:allocsim|engine|repro|tests|docs)/[\w/.]+|pyproject\.toml)`", line)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_what_is_edited_is_what_the_table_names(door):
    named = places(door.row)
    touched = {*door.edits, *door.made, *(path for path in door.files if not path.startswith("tests/data/"))}
    assert [path for path in touched if not any(path.startswith(place) for place in named)] == []
    assert [place for place in named if not any(path.startswith(place) for path in touched)] == []
    assert all(len(edits) <= MOST_PLACES for edits in door.edits.values())


MOST_PLACES = 3
"""Places in one file: a function, its import and its row."""


def opened(door, tree):
    """Make the edits of a door in a tree."""
    for path, text in door.files.items():
        place = tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        filled = re.sub(
            r"\{([\w/-]+\.json)\}",
            lambda found: (ROOT / "tests/data" / found[1]).read_text(encoding="ascii")[::-1],
            dedent(text),
        )
        place.write_text(filled.lstrip("\n"), encoding="utf-8")
    for path, edits in door.edits.items():
        text = (tree / path).read_text(encoding="utf-8")
        for before, added in edits:
            assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
            text = text.replace(before, before + added)
        (tree / path).write_text(text, encoding="utf-8")


@pytest.fixture
def copied(tmp_path):
    """A copy of the tree, machine code that is kept beside the source too."""
    for folder in ("allocsim", "engine", "reports", "repro", "tests", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for path in ROOT.iterdir():
        if path.suffix in {".md", ".toml"}:
            shutil.copy2(path, tmp_path / path.name)
    return tmp_path


def test_what_is_added_by_these_edits_passes_the_tests_that_concern_it(copied):
    """All at once, since most of the time goes into starting."""
    for door in DOORS.values():
        opened(door, copied)
    asked = [test for door in DOORS.values() for test in door.tests]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *asked]
    environment = {**os.environ, "PYTHONPATH": str(copied), "ALLOCSIM_UPDATE": "1"}
    done = subprocess.run(command, cwd=copied, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
    made = [page for door in DOORS.values() for page in door.made]
    assert all((copied / page).read_bytes() != (ROOT / page).read_bytes() for page in made)
