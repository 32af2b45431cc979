"""A judge of your own, without a model: it passes answers that the agent has seen on a page.

    python docs/examples/own_judge.py RUNS JUDGED

judges runs of collect, evaluate or import_runs after the fact, and writes them with its verdicts. The same
class decides while episodes are played, or next to other judges:

    PYTHONPATH=docs/examples python -m experiments.collect --config=configs/collect.py:web \
        --config.tasks_file=tasks.jsonl --config.judge.method=own_judge:Grounded --workdir=data/collect
    PYTHONPATH=docs/examples python -m experiments.judge --config=configs/judge.py:demo \
        --config.data=RUNS --config.judges="('recorded', 'own_judge:Grounded')" --workdir=data/judged
"""

import sys

from collection import Verdict, with_verdict
from rmsweb_jax import ImageStore, read_dataset, write_dataset


class Grounded:
    name = "grounded"

    def judge(self, trajectory, images):  # images.get(step.observation.screenshot) is a PNG.
        answer = trajectory.final_text.strip().casefold()
        for step in trajectory.steps:
            if answer and answer in step.observation.page_text.casefold():
                return Verdict(True, f"The answer is on the page of step {step.number}.")
        return Verdict(False, "The answer is on no page." if answer else "There is no answer.")


if __name__ == "__main__":
    runs, judged = sys.argv[1:]
    judge, images = Grounded(), ImageStore(runs)
    records = [with_verdict(run, judge, images) for run in read_dataset(runs)]
    write_dataset(judged, records, "trajectories", images=runs)
    for run in records:
        print(f"{run.trajectory_id}: {run.success} ({run.judge_text})")
