"""An actor of your own, without a model: it counts at own_site.py.

    PYTHONPATH=docs/examples python -m experiments.evaluate --config=configs/evaluate.py:apps \
        --config.actor.kind=own_actor:Clicker --config.applications="('own_site:Counter',)" \
        --config.seeds=3 --workdir=WORKDIR
"""

import json
import re

from collection import ActorModel, ActorReply


class Clicker(ActorModel):
    def reply(self, request):
        goal, count = re.findall(r"counter (?:to|is) (\d)", request.messages[-1].text)
        click, done = {"click_element_by_index": {"index": 1}}, {"done": {"text": count, "success": True}}
        thought = {"evaluation_previous_goal": "", "memory": "", "next_goal": f"Count to {goal}"}
        return ActorReply(json.dumps({**thought, "action": [done if count == goal else click]}))
