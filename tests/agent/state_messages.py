"""State messages as the agent sends them, for tests without a browser."""

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, build_messages
from rmsweb_jax.records.schema import Observation, Tab, Task
from tests.trajectories import step

PAGE = """Username
[1]<input id=username value=keli />
Password
[2]<input id=password type=password />
[3]<input id=ch0 type=checkbox checked=true />
blue one
[4]<select id=options options=Sweden|Ghana value=Ghana />
*[5]<button aria-label=Close it now title=x />
[6]<li />
\t[7]<div />
\t[8]<span />
\t\tDeneen
\t\tand more
|SCROLL+9]<ul id=list /> (0.0 pages above, 1.0 pages below)
\tinside
[10]<textarea />"""


def observed(text: str, url: str = "http://a.test/", title: str = "A", below: float = 0.0) -> Observation:
    """A page without elements and screenshot."""
    tab = Tab(tab_id="0001", url=url, title=title)
    seen = step(1, page=text, url=url, elements=(), screenshot=None).observation
    return seen.model_copy(update={"title": title, "tabs": (tab,), "pages_below": below})


def state_text(page_text=PAGE, guidance="", history=(), notice="", below=0.0) -> str:
    task = Task(task_id="t", website="http://a.test/", objective="Do it.")
    state = AgentState(task, history, len(history) + 1, 9, notice=notice)
    page = observed(page_text, below=below)
    return build_messages(state, page, "3 links", PromptConfig(style="compact"), guidance)[-1].text
