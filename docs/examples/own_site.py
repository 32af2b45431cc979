"""A site of your own with tasks, which the actor of own_actor.py plays.

    python docs/examples/own_site.py WORKDIR

Evaluation and online training take it by the same key, --config.applications="('own_site:Counter',)".
"""

import sys

from collection import Environment, StepResults, View, collect
from rmsweb_jax import ActionResult, Observation, Task


class Counter(Environment):  # With a parameter `browser`, its __init__ would get one.
    @staticmethod
    def tasks(seed):
        goal = f"Set the counter to {seed % 3 + 1}"
        return [Task(task_id=f"counter/{seed}", website="counter", objective=goal)]

    def reset(self, task):
        self.count, self.goal = 0, int(task.objective.split()[-1])
        return task

    def observe(self):
        text = f"[1]<button>Add one</button>\nThe counter is {self.count}."
        return View(Observation(url="", title="", page_text=text, fingerprint=text))

    def act(self, actions, extract, deadline):
        self.count += sum(action.name == "click_element_by_index" for action in actions)
        return StepResults(tuple(ActionResult(action=one.name, text="Clicked") for one in actions))

    def reward(self):
        return float(self.count == self.goal)


if __name__ == "__main__":
    played = {"applications": ("own_site:Counter",), "seeds": 3, "rounds": 1, "fleet": {"workers": 1}}
    report = collect({**played, "actor": {"kind": "own_actor:Clicker"}}, sys.argv[1])
    print(f"{report['solved_tasks']} of {report['tasks']} tasks solved in {report['steps']} steps")
