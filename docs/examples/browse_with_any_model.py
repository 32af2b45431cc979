"""Drive Chromium with any model behind a chat-completions endpoint.

    export OPENAI_API_KEY=...
    python docs/examples/browse_with_any_model.py https://example.org "What is this domain for?" \
        https://api.openai.com/v1 gpt-4o

The browser reaches that site alone; one of this machine or its network is named once more, as last argument.
"""

import os
import sys
import tempfile
from pathlib import Path

from collection import (
    Browser,
    EpisodeRunner,
    Guard,
    GuardConfig,
    LLMActor,
    ModelConfig,
    WebEnvironment,
    make_model,
)
from rmsweb_jax import ImageStore, Task

website, objective, base_url, name, *private = sys.argv[1:]
key = "OPENAI_API_KEY" if "OPENAI_API_KEY" in os.environ else ""
model = make_model(ModelConfig(kind="chat", base_url=base_url, model=name, api_key_env=key).resolve())
task = Task(task_id="example", website=website, objective=objective)
folder = Path(tempfile.mkdtemp())
images = ImageStore(folder)
reach = GuardConfig(task_site=True, private=tuple(private))

with Guard(reach) as guard, Browser(guard=guard) as browser:
    environment = WebEnvironment(browser, images, folder / "files")
    run = EpisodeRunner(environment, LLMActor(model), images).run_episode(task)
for step in run.steps:
    print(step.number, step.observation.url, step.error or [result.text for result in step.results])
print(f"{run.outcome}: {run.final_text}")
