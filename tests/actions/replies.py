"""Replies and actions as the reward's tests write them."""

import json

from rmsweb_jax.actions import score_response


def reply(*actions, **extra):
    body = {"evaluation_previous_goal": "Success", "memory": "", "next_goal": "", "action": list(actions)}
    return json.dumps(extra | body)


def score(predicted, target):
    return score_response(reply(predicted), reply(target))


def one(name, /, **params):
    return {name: params}


def click(index, **more):
    return one("click_element_by_index", index=index, **more)


def typed(index, text, **more):
    return one("input_text", index=index, text=text, **more)


def url(address, **more):
    return one("go_to_url", url=address, **more)


def query(text, **more):
    return one("search_engine", query=text, **more)


def scroll(down, pages, frame=None):
    return one("scroll", down=down, num_pages=pages, frame_element_index=frame)


def done(text, success=None, **more):
    return one("done", text=text, success=success, **more)
