"""Stage 1 and 4: tasks played in real browsers by a teacher or by our own policy.

python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect
"""

from __future__ import annotations

from pathlib import Path

from collection.fleet.config import CollectSettings
from experiments import cli
from rmsweb_jax.records.bucket import REPORT


def main(settings: CollectSettings, workdir: Path) -> None:
    # It starts browsers, whose packages take a second to import.
    from collection.fleet.collect import collect

    report = collect(settings, workdir)
    print(
        f"{report['successes']} of {report['trajectories']} episodes succeeded, at {report['solved_tasks']} "
        f"of {report['tasks']} tasks; {workdir / REPORT}"
    )


if __name__ == "__main__":
    cli.run(main, "configs/collect.py:demo", CollectSettings)
