"""State messages as the agent sends them, for tests without a browser."""

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, build_messages
from rmsweb_jax.records.schema import Observation, Tab, Task

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


def state_text(page_text=PAGE, guidance="", history=(), notice="", below=0.0) -> str:
    task = Task(task_id="t", website="http://a.test/", objective="Do it.")
    observation = Observation(
        url="http://a.test/",
        title="A",
        tabs=(Tab(tab_id="0001", url="http://a.test/", title="A"),),
        current_tab="0001",
        page_text=page_text,
        elements=(),
        fingerprint="f",
        pages_below=below,
    )
    state = AgentState(task, history, len(history) + 1, 9, notice=notice)
    return build_messages(state, observation, "3 links", PromptConfig(style="compact"), guidance)[-1].text
