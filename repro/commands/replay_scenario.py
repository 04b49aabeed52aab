"""`allocsim replay NAME`: judge and execute every replay case of a scenario.

Each case is executed and compared with the reference.

What this module does not see: how a scenario is replayed (`repro.r_replay`), and how the rows are
printed (`allocsim.cli.replay`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allocsim.cli.progress import stepping
from allocsim.cli.replay import Row, Rows
from allocsim.programs.fingerprints import fingerprint_of
from repro import scenarios
from repro.options import EngineOptions
from repro.pipeline import prepare
from repro.r_replay import replay as replayed


@contextmanager
def replay_scenario(name: str, allocator: str | None, sizes: dict[str, Any]) -> Iterator[tuple[Row, Rows]]:
    """Yield the head of the output, and a function that makes the rows of the replay cases.

    Raises UnknownNameError for a name that is neither a file nor a scenario.
    """
    scenario = scenarios.find_beside_files(name)
    with stepping(name) as progress:
        steps, chosen = max(2, scenario.least_steps), {} if allocator is None else {"allocator": allocator}
        options = EngineOptions(**(sizes | chosen | {"steps": steps}))
        experiment = prepare(scenario, options)
        plan = experiment.plans["default"]
        kernels = dict(sorted(experiment.workload.lowered.variants.items()))
        head = {
            "replay": 1,
            "planner": plan.source,
            "fingerprint": fingerprint_of(plan),
            "kernels": kernels,
            "sizes": sizes,
        }
        yield (
            head,
            lambda groups, limit, every, done: replayed(
                experiment, groups=groups, limit=limit, every=every, done=done, progress=progress
            ),
        )
