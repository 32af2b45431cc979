"""Mutants: each breaks one rule of the recipe, and the tests named with it must fail.

    python -m tests.mutants [NAME ...]

Run it in a checkout of its own, since it changes files while it runs: `git worktree add ../mutants`. A test
may go when all are still killed; a rule that moves takes its mutant along.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of one rule.

    Attributes:
      name: of the mutant.
      breaks: what is then wrong.
      file: the module.
      old, new: its text before, which it has once, and after.
      tests: what is run until one fails.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: str

    def apply(self) -> tuple[Path, str]:
        """Changes the file; returns it and its text before."""
        path = ROOT / self.file
        text = path.read_text()
        assert text.count(self.old) == 1, (
            f"{self.name}: {self.file} has the text {text.count(self.old)} times"
        )
        path.write_text(text.replace(self.old, self.new))
        return path, text


MUTANTS = (
    Mutant(
        "until_off_by_one",
        "a query sees the token at which its branch ends",
        "rmsweb_jax/qwen/tree_attention/rule.py",
        "return (query >= query.T) & (query < until[:, None, :])",
        "return (query >= query.T) & (query <= until[:, None, :])",
        "tests/qwen",
    ),
    Mutant(
        "block_skipped",
        "attention skips a block that it needs",
        "rmsweb_jax/qwen/tree_attention/rule.py",
        "ends.max(2)[:, None] > query * block",
        "ends.max(2)[:, None] > (query + 1) * block",
        "tests/qwen",
    ),
    Mutant(
        "branch_sees_sibling",
        "a reply sees the replies packed after it",
        "rmsweb_jax/data/batching.py",
        "tokens[number, place], until[number, place] = branch.tokens, place.stop",
        "tokens[number, place], until[number, place] = branch.tokens, width",
        "tests/data tests/rl tests/qwen",
    ),
    Mutant(
        "first_token_index",
        "a reply's first token is scored from another place",
        "rmsweb_jax/data/batching.py",
        "index[:1] = own.stop - 1",
        "index[:1] = at - 1",
        "tests/data tests/rl",
    ),
    Mutant(
        "row_overfull",
        "rows take more tokens than they have",
        "rmsweb_jax/data/packing.py",
        "return size.tokens <= self.tokens and len(size.patches) <= self.images",
        "return len(size.patches) <= self.images",
        "tests/data tests/rl",
    ),
    Mutant(
        "epoch_same",
        "each epoch has the same order",
        "rmsweb_jax/data/sources.py",
        "rng = np.random.default_rng((self.seed, epoch))",
        "rng = np.random.default_rng(self.seed)",
        "tests/data tests/sft",
    ),
    Mutant(
        "held_out_leak",
        "half of the held-out tasks are trained on",
        "rmsweb_jax/data/sources.py",
        "return stable_hash(*parts) < share * 2**31",
        "return stable_hash(*parts) < share * 2**30",
        "tests/data tests/rl tests/sft",
    ),
    Mutant(
        "anchor_counts_all",
        "the salvage anchor counts tokens that are no action",
        "rmsweb_jax/rl/step.py",
        "anchor = token_weights(example.action_mask, num_anchored)",
        "anchor = token_weights(np.ones_like(example.action_mask), num_anchored)",
        "tests/rl",
    ),
    Mutant(
        "kl_denominator",
        "the KL term has the denominator of the accepted groups",
        "rmsweb_jax/rl/step.py",
        "total_weight / turn.weight(sample)",
        "accepted_weight / turn.weight(sample)",
        "tests/rl",
    ),
    Mutant(
        "salvage_not_rounded",
        "salvaged groups do not fill mini-batches",
        "rmsweb_jax/rl/rollout.py",
        "salvaged = min(len(rejected), config.max_salvage_groups) // mini * mini",
        "salvaged = min(len(rejected), config.max_salvage_groups)",
        "tests/rl",
    ),
    Mutant(
        "stale_kept",
        "groups that are one version too old are trained on",
        "rmsweb_jax/rl/rollout.py",
        "if group.version < oldest:",
        "if group.version < oldest - 1:",
        "tests/rl",
    ),
    Mutant(
        "seed_ignores_version",
        "all policies draw with the same seeds",
        "rmsweb_jax/rl/rollout.py",
        "seed = stable_hash(self._seed, self.version, epoch)",
        "seed = stable_hash(self._seed, epoch)",
        "tests/rl",
    ),
    Mutant(
        "fault_is_failure",
        "a lost episode counts as a failure",
        "rmsweb_jax/rl/episodes.py",
        "if trajectory.outcome in _FAULTS:",
        "if False:",
        "tests/rl",
    ),
    Mutant(
        "other_policy_accepted",
        "episodes of another policy are trained on",
        "rmsweb_jax/rl/episodes.py",
        "if sampled.policy != policy:",
        "if False:",
        "tests/rl",
    ),
    Mutant(
        "lane_keeps_counts",
        "a lane keeps the length of the reply before",
        "rmsweb_jax/decoding/programs.py",
        "lengths=jnp.where(begins, 0, lanes.lengths),",
        "lengths=lanes.lengths,",
        "tests/decoding",
    ),
    Mutant(
        "key_by_step",
        "a token's random key depends on its batch",
        "rmsweb_jax/decoding/programs.py",
        "step_keys = jax.vmap(jax.random.fold_in)(keys, lanes.lengths)",
        "step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, lanes.step)",
        "tests/decoding",
    ),
    Mutant(
        "prompt_read_twice",
        "the engine counts padding as prompt",
        "rmsweb_jax/decoding/engine.py",
        "prompt.read += min(size, prompt.left)",
        "prompt.read += size",
        "tests/decoding",
    ),
    Mutant(
        "first_version",
        "the first token has no version",
        "rmsweb_jax/decoding/engine.py",
        "versions[0] = prompt.version",
        "pass",
        "tests/decoding",
    ),
    Mutant(
        "special_tokens_parsed",
        "a page can write control tokens",
        "rmsweb_jax/qwen/processor.py",
        "tokenizer.encode_special_tokens = True",
        "tokenizer.encode_special_tokens = False",
        "tests/qwen",
    ),
    Mutant(
        "image_on_black",
        "transparent screenshots are black",
        "rmsweb_jax/qwen/processor.py",
        'Image.new("RGBA", image.size, "white")',
        'Image.new("RGBA", image.size, "black")',
        "tests/qwen",
    ),
    Mutant(
        "lora_scale",
        "merging forgets the scale of adapters",
        "rmsweb_jax/qwen/lora.py",
        "return (kernel.astype(jnp.float32) + scale * (a @ b)).astype(kernel.dtype)",
        "return (kernel.astype(jnp.float32) + (a @ b)).astype(kernel.dtype)",
        "tests/qwen",
    ),
    Mutant(
        "rslora_ignored",
        "adapters of rsLoRA have the wrong scale",
        "rmsweb_jax/qwen/lora.py",
        'scale = math.sqrt(settings["r"]) if settings.get("use_rslora") else 1.0',
        "scale = 1.0",
        "tests/qwen",
    ),
    Mutant(
        "loss_by_token",
        "SFT weighs long replies more",
        "rmsweb_jax/sft/step.py",
        'loss = -jnp.sum(scores.log_probs * scored.values["weight"])',
        "loss = -jnp.sum(scores.log_probs * mask)",
        "tests/sft",
    ),
    Mutant(
        "resume_from_zero",
        "a resumed SFT draws the first steps' dropout",
        "rmsweb_jax/sft/train.py",
        "step_key = jax.random.fold_in(key, step)",
        "step_key = jax.random.fold_in(key, step - loop.first)",
        "tests/sft",
    ),
    Mutant(
        "key_unchecked",
        "the server takes any key",
        "rmsweb_jax/serve/http.py",
        'if hmac.compare_digest(headers.get(b"authorization", b""), self._expected):',
        'if headers.get(b"authorization"):',
        "tests/serve",
    ),
    Mutant(
        "stop_text_kept",
        "a stop text stays in the reply",
        "rmsweb_jax/serve/replies.py",
        'reply.text, reply.finish = text[: min(found)], "stop"',
        'reply.text, reply.finish = text, "stop"',
        "tests/serve",
    ),
    Mutant(
        "wrong_index_exact",
        "an action on another element gets the full reward",
        "rmsweb_jax/actions/rules.py",
        'return (CORE, "while_holding_ctrl") if p.index == t.index else (TYPE, "index")',
        'return (CORE, "while_holding_ctrl")',
        "tests/actions",
    ),
)


def killer(mutant: Mutant) -> str:
    """Runs its tests; returns the test that fails, or "" if none does."""
    path, text = mutant.apply()
    # The cache of compiled modules goes by time and size, which a mutant may keep.
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *mutant.tests.split(),
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    finally:
        path.write_text(text)
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    failed = [test.partition(" - ")[0] for what, _, test in lines if what in ("FAILED", "ERROR")]
    assert done.returncode in (0, 1) and len(failed) == done.returncode, done.stdout
    return failed[0] if failed else ""


def main(names: Sequence[str]) -> None:
    print("| mutant | what it breaks | killed by |", "| --- | --- | --- |", sep="\n", flush=True)
    for mutant in MUTANTS:
        if not names or mutant.name in names:
            print(f"| {mutant.name} | {mutant.breaks} | {killer(mutant) or 'SURVIVES'} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
