"""The action space: schema, strict parsing, canonical text, and the polarized reward. Imports no jax."""

from rmsweb_jax.actions.parse import (
    ReplyError,
    action_span,
    normalize_action,
    parse_reply,
    render_reply,
    repair_reply,
)
from rmsweb_jax.actions.reward import Explanation, Target, explain_actions, explain_response, score_response
from rmsweb_jax.actions.schema import (
    ACTIONS,
    Action,
    ActionParams,
    Reply,
    action_catalogue,
    composition,
    points_of,
)
from rmsweb_jax.actions.tolerant import read_reply, recorded_reply

__all__ = [
    "ACTIONS",
    "Action",
    "ActionParams",
    "Explanation",
    "Reply",
    "ReplyError",
    "Target",
    "action_catalogue",
    "action_span",
    "composition",
    "explain_actions",
    "explain_response",
    "normalize_action",
    "parse_reply",
    "points_of",
    "read_reply",
    "recorded_reply",
    "render_reply",
    "repair_reply",
    "score_response",
]
