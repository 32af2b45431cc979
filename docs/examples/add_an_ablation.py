"""Add an ablation to the RL recipe: a reward and an objective of your own, as a variant of a config.

    python docs/examples/add_an_ablation.py PROMPTS WORKDIR [MODEL]

PROMPTS is a data set of RL prompts, such as runs/demo/mine/prompts after `make demo`; MODEL is the policy to
start from, such as runs/demo/sft/export. The same command again goes on where it stopped.
"""

import sys

from configs.rl import get_config
from rmsweb_jax import score_response, train_rl


def brief(reply: str, target: str) -> float:
    """The recipe's reward, and less of it for replies that are much longer than the verified one."""
    return score_response(reply, target) * min(1.0, 1.5 * len(target) / max(len(reply), 1))


if __name__ == "__main__":
    config = get_config("smoke")  # The sizes of a test; get_config("8b") has the paper's.
    config.prompts, workdir = sys.argv[1], sys.argv[2]
    config.model = sys.argv[3] if len(sys.argv) > 3 else "tiny_base"
    config.reward = "add_an_ablation:brief"
    config.objective.clip_high = 0.28  # DAPO's range instead of the paper's 0.32.
    config.objective.kl_coef = 0.0

    report = train_rl(config, workdir)
    for name in ("first", "final"):
        print(f"{name}: held-out reward {report[name].get('eval/reward')}")
    print(f"the trained policy is in {workdir}/export")
