"""A chat-completions endpoint that answers by the plan written in the task: no model, no judgement.

A plan is a list of steps in the request, in square brackets: `[click 1; type 2 text; done]`.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_STEP = re.compile(r"<step_info>Step (\d+) of (\d+)")
_PLAN = re.compile(r"<user_request>[^\[]*\[([^\]]*)\]")
DONE = {"done": {"text": "Finished", "success": True}}
STOP = {"done": {"text": "Given up", "success": False}}


def action(step: str) -> dict[str, Any]:
    """Returns one step of a plan as an action."""
    verb, _, rest = step.partition(" ")
    number, _, text = rest.partition(" ")
    match verb:
        case "click":
            return {"click_element_by_index": {"index": int(number)}}
        case "type":
            return {"input_text": {"index": int(number), "text": text}}
        case "keys":
            return {"send_keys": {"keys": rest}}
        case "scroll":
            return {"scroll": {"down": True, "num_pages": 1.0}}
        case "open":
            return {"go_to_url": {"url": rest}}
        case "back":
            return {"go_back": {}}
        case "wait":
            return {"wait": {"seconds": int(number)}}
        case "find":
            return {"scroll_to_text": {"text": rest}}
        case "extract":
            return {"extract_structured_data": {"query": rest or "prices"}}
        case "look":
            return {"scroll_to_text": {"text": "nowhere on the page"}}
    return STOP if verb == "stop" else DONE


def answer(prompt: str) -> str:
    """Returns the reply to a prompt; other requests than an agent's step (extractions) get a sentence."""
    step, plan = _STEP.search(prompt), _PLAN.search(prompt)
    if step is None or plan is None:
        return "There is nothing to be said of this page."
    steps = [part.strip() for part in plan[1].split(";")]
    number, last = int(step[1]), int(step[2])
    given_up = "Only done is allowed" in prompt
    chosen = STOP if given_up or number == last else action(steps[min(number, len(steps)) - 1])
    return json.dumps(
        {"evaluation_previous_goal": "Unknown", "memory": "", "next_goal": "Next", "action": [chosen]}
    )


class PlanServer:
    """Attributes:
    base_url: what `config.actor.base_url` takes.
    prompts: every request's text as it came, pictures left out.
    """

    def __init__(self) -> None:
        self.prompts: list[bytes] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                texts = [_text(message) for message in json.loads(body)["messages"]]
                server.prompts.append("\n".join(texts).encode("utf-8", "surrogatepass"))
                choice = {"index": 0, "message": {"role": "assistant", "content": answer(texts[-1])}}
                usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
                reply = json.dumps({"choices": [choice | {"finish_reason": "stop"}], "usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> PlanServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
