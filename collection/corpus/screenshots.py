"""Prompts of task, history and screenshot for runs without the agent's input, and the windows of points.

Public sets of agents that act on points of screenshots have neither page text nor prompts. What the policy
is shown in training is what an agent with the prompt style `screenshot` is shown.
"""

from __future__ import annotations

import io

from PIL import Image

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, PastStep, build_messages, screenshot_size
from collection.corpus.steps import view
from collection.llm.model import ImageSource
from rmsweb_jax.actions import parse_reply, points_of
from rmsweb_jax.actions.rules import inside
from rmsweb_jax.records.schema import Observation, SftSample, Step, Trajectory, Window

_STYLE = PromptConfig(style="screenshot")


def with_screenshot_prompts(run: Trajectory, images: ImageSource) -> Trajectory:
    """Replaces the prompts of a run; a step without a screenshot gets none."""
    history: list[PastStep] = []
    steps, outputs = [], ""
    for step in run.steps:
        state = AgentState(run.task, tuple(history), step.number, len(run.steps), read_state=outputs)
        page = step.observation
        messages = (
            build_messages(state, page, screenshot_size(page, images), _STYLE) if page.screenshot else ()
        )
        steps.append(step.model_copy(update={"messages": messages}))
        history.append(_past(step))
        outputs = "\n".join(result.output for result in step.results if result.output)
    return run.model_copy(update={"steps": tuple(steps)})


def _past(step: Step) -> PastStep:
    reply = view(step).reply
    results = tuple(f"Error: {one.text}" if one.error else one.text for one in step.results)
    if reply is None:
        return PastStep(step.number, error=step.error or "Unusable reply")
    texts = (reply.evaluation_previous_goal, reply.memory, reply.next_goal)
    return PastStep(step.number, *texts, results=results)


def with_window(sample: SftSample, page: Observation, images: ImageSource) -> SftSample:
    """Adds the window to a sample whose reply names points, with the boxes of elements around these."""
    points = [point for action in parse_reply(sample.response).actions for point in points_of(action)]
    if not points or page.screenshot is None:
        return sample
    boxes = [one.box for one in page.elements if one.box is not None]
    around = tuple(box for box in boxes if any(inside(box, point) for point in points))
    with Image.open(io.BytesIO(images.get(page.screenshot))) as image:
        window = Window(width=image.width, height=image.height, boxes=around)
    return sample.model_copy(update={"window": window})
