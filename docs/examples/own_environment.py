"""Write an environment of your own and run an episode in it: python docs/examples/own_environment.py"""

from collection import EpisodeRunner
from collection.environments.base import StepResults, View
from collection.llm.actor import ActorReply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Observation, Task


class Counter:  # A collection.environments.base.Environment.
    count, excluded_actions = 0, ()
    reset = redact = staticmethod(lambda unchanged: unchanged)
    finish = staticmethod(lambda done: ActionResult(action=done.name, text="Done"))

    def observe(self):
        text = f"[1]<button>Add one</button>\nThe counter is {self.count}."
        empty = {"tabs": (), "current_tab": "", "elements": ()}
        return View(Observation(url="", title="", page_text=text, fingerprint=text, **empty), page_stats="")

    def act(self, actions, extract, deadline):
        self.count += sum(action.name == "click_element_by_index" for action in actions)
        return StepResults(tuple(ActionResult(action=one.name, text="Clicked") for one in actions))

    def reward(self):
        return float(self.count == 3)


class Clicker:  # An actor without a model; collection.llm.actor.LLMActor asks one.
    name = "clicker"

    def reply(self, request):
        click, done = '{"click_element_by_index":{"index":1}}', '{"done":{"text":"It is 3.","success":true}}'
        thought = '"evaluation_previous_goal":"Success","memory":"","next_goal":"Count"'
        return ActorReply(f'{{{thought},"action":[{done if request.step > 3 else click}]}}')


task = Task(task_id="counter/3", website="counter", objective="Set the counter to 3.")
run = EpisodeRunner(Counter(), Clicker(), images=ImageStore(".")).run_episode(task)
print(f"{run.outcome} after {len(run.steps)} steps: reward {run.reward}, success {run.success}")
