"""Score replies of your own: by the action reward, and by the probability that a policy gives them.

    python docs/examples/score_a_reply.py [MODEL]

The reward needs no model: it compares the actions of a reply with those of a verified one. MODEL is a model
folder, or tiny_base, the small model that is in the package.
"""

import sys

from rmsweb_jax import score_response

REPLY = '{{"evaluation_previous_goal":"Start","memory":"","next_goal":"Press it","action":[{}]}}'
PROMPT = 'Your task: press "Accept".\n[1]<button>Accept</button>\n[2]<button>Decline</button>'
target = REPLY.format('{"click_element_by_index":{"index":1}}')
replies = {
    "the same action": target,
    "another element": REPLY.format('{"click_element_by_index":{"index":2}}'),
    "another action": REPLY.format('{"go_back":{}}'),
    "no reply of an agent": "Press the first button.",
}

policy = None
if len(sys.argv) > 1:
    from rmsweb_jax import Policy  # It loads jax.

    policy = Policy.load(sys.argv[1])
for name, reply in replies.items():
    print(f"{name:22} reward {score_response(reply, target):.1f}", end="\n" if policy is None else "")
    if policy is not None:
        score = policy.score(PROMPT, reply)
        print(f"  log-probability {score.total:8.1f} ({score.total / len(score.tokens):.2f} a token)")
