"""Online rollouts: a policy plays whole episodes, and all of its turns are trained on by how they ended."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32

from rmsweb_jax.actions.reward import EXACT, score_response
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Message, SampledTokens, Step, Trajectory
from rmsweb_jax.rl.config import OnlineConfig
from rmsweb_jax.rl.functions import find_gate
from rmsweb_jax.rl.gates import COMPETENT_REWARD, gate_group
from rmsweb_jax.rl.prompts import Prompt, RlData
from rmsweb_jax.rl.remote.generator import Endpoint, version_of
from rmsweb_jax.rl.rollout import Group, Rollouts
from rmsweb_jax.training.mesh import from_all_processes, is_first

# Fate of a group in which fewer episodes have a reward; the other fates are those of the gates.
_LEAST_EPISODES, TOO_FEW = 2, "too_few"
# Ends of episodes that say nothing about the policy.
_FAULTS = {
    "crashed": "browser or application lost",
    "unreachable": "start page not reached",
    "blocked": "refused by the site",
    "captcha": "refused by the site",
    "timeout": "time limit of the machine",
}


# What a prompt says of the page, without the history before it.
_PAGE = re.compile(r"<browser_state>.*</browser_state>", re.DOTALL)
# Actions with which the policy names the address that it wants.
_BY_ADDRESS = ("go_to_url", "search_engine")


class Playing(Protocol):
    """Episodes that are being played."""

    def wait(self) -> Path:
        """Returns their data set, whose steps have their tokens, once all have ended.

        Raises:
          UserError: no episode can be played.
        """
        ...

    def stop(self) -> None:
        """Stops them; those that have ended are kept."""
        ...


class Begun(NamedTuple):
    """Tasks that an earlier run has begun to play.

    Attributes:
      policy: name of the adapters that play.
      complete: all episodes have ended.
    """

    policy: str
    complete: bool


class EpisodeSource(Protocol):
    """What plays episodes, on any browsers."""

    def task_ids(self, first: int, count: int) -> list[str]:
        """Returns the ids of the tasks `first` to `first + count - 1` of the run's order."""
        ...

    def begin(self, first: int, count: int, samples: int, policy: str) -> Playing:
        """Begins `samples` episodes of each of the tasks `first` to `first + count - 1` of the run's order.

        The same call of a run that was killed goes on with the episodes that had ended.

        Args:
          policy: name of the adapters at the server.

        Raises:
          UserError: they cannot be begun.
        """
        ...

    def begun(self, first: int) -> Begun | None:
        """Returns what an earlier run has begun at the task `first`, by its newest policy."""
        ...


class Turn(NamedTuple):
    """One call of the policy in an episode."""

    name: str
    messages: tuple[Message, ...]
    prompt_tokens: int
    sampled: SampledTokens | None


def turns_of(trajectory: Trajectory) -> list[Turn]:
    """Returns an episode's calls: its decisions, and what it read from pages."""
    turns = []
    for step in trajectory.steps:
        name = f"{trajectory.trajectory_id}/{step.number}"
        turns.append(Turn(name, step.messages, step.usage.prompt_tokens, step.sampled))
        for number, one in enumerate(step.extractions, 1):
            turns.append(Turn(f"{name}/{number}", one.messages, one.usage.prompt_tokens, one.sampled))
    return turns


def masked(trajectory: Trajectory, first_page: str = "") -> str:
    """Returns why an episode has no reward; "" if it has one.

    A fault of the browser, an application, the network, the guard or a judge is not the policy's.

    Args:
      first_page: fingerprint of the page that the task begins with; "" is any.
    """
    if first_page and trajectory.steps and trajectory.steps[0].observation.fingerprint != first_page:
        return "another first page"
    if trajectory.success:
        return ""
    if trajectory.outcome in _FAULTS:
        return _FAULTS[trajectory.outcome]
    # Pages of our own that pay nothing were left unfinished; others have a judge, which may have failed.
    live, answered = trajectory.task.environment == "web", trajectory.outcome == "done"
    if live and answered and trajectory.reward is None and not trajectory.judge:
        return "no verdict"
    return "refused by the guard" if any(map(_refused, trajectory.steps)) else ""


def _refused(step: Step) -> bool:
    """Returns True if the guard refused something that the policy has not itself asked for by its address."""
    named = any(result.action in _BY_ADDRESS for result in step.results)
    return not named and any(incident.kind == "refused" for incident in step.incidents)


def _page_of(messages: Sequence[Message]) -> str:
    """Returns what a prompt says of the page; "" if nothing."""
    content = messages[-1].content
    texts = [content] if isinstance(content, str) else [part.text for part in content if part.type == "text"]
    found = _PAGE.search("".join(texts))
    return found[0] if found else ""


@dataclasses.dataclass(frozen=True)
class EpisodeGroup:
    """K episodes of one task, with the interface of `rl.rollout.Group` that sampling and metrics use.

    Attributes:
      rewards: of the episodes that have one.
      faults: why the others have none.
      turns: a group for each prompt, of the turns with that prompt; empty if it is not trained on. In a
        rejected group without success, prompts with verified replies to the task come last.
      left_out: the same of turns that are not trained on, because `config.negative_weight` is 0.
      fate: "accepted", the gate that rejected it, or `TOO_FEW`.
      version: of the policy.
      steps: number of steps of each episode with a reward.
      too_long: turns left out because their prompts are too long.
    """

    task_id: str
    rewards: Float64[np.ndarray, " episodes"]
    faults: tuple[str, ...]
    turns: tuple[Group, ...]
    fate: str
    version: int
    steps: tuple[int, ...] = ()
    too_long: int = 0
    left_out: tuple[Group, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.fate == "accepted"

    @property
    def _all_turns(self) -> tuple[Group, ...]:
        return (*self.turns, *self.left_out)

    @property
    def responses(self) -> tuple[Int32[np.ndarray, " _"], ...]:
        return tuple(response for turn in self._all_turns for response in turn.responses)

    @property
    def log_probs(self) -> tuple[Float32[np.ndarray, " _"], ...]:
        return tuple(values for turn in self._all_turns for values in turn.log_probs)

    @property
    def truncated(self) -> Bool[np.ndarray, " responses"]:
        return np.concatenate([np.zeros(0, bool), *(turn.truncated for turn in self._all_turns)])

    def release(self) -> None:
        for turn in self.turns:
            turn.release()


class _Batch(NamedTuple):
    """Tasks under way; the first process plays them, or has failed to begin."""

    policy: str
    playing: Playing | None
    failed: UserError | None

    @property
    def version(self) -> int:
        return version_of(self.policy)


class EpisodeRollouts(Rollouts):
    """The groups of an online run, task by task; takes the place of `Rollouts` in dynamic sampling.

    With `config.max_staleness` the tasks of the next batch are played while the policy is updated.

    Args:
      source: plays the episodes.
      endpoint: the server that the episodes' actor asks, with the policy loaded.
      data: mined prompts: those of a task that no episode solves serve as salvage targets.
      position: tasks that earlier runs have played.
    """

    def __init__(
        self,
        source: EpisodeSource,
        endpoint: Endpoint,
        data: RlData,
        config: OnlineConfig,
        position: int = 0,
    ):
        super().__init__(
            endpoint,
            data,
            config.sampling,
            _no_score,
            find_gate(config.gate, config.num_samples),
            config.seed,
            position=position,
        )
        self._source, self._endpoint, self._config = source, endpoint, config
        self._batch: _Batch | None = None
        # By which a killed run has begun the next tasks; None before the first policy is loaded.
        self._earlier: str | None = None
        self._salvage: defaultdict[str, list[int]] = defaultdict(list)
        for number in data.train:
            self._salvage[data.sizes[number].task_id].append(number)

    def load(self, model: Qwen3VL, version: int) -> None:
        begun = self._begun_before(version) if self._earlier is None else None
        if begun is not None and not begun.complete:
            self._endpoint.held.add(begun.policy)
        super().load(model, version)
        there = begun is not None and (begun.complete or begun.policy in self._endpoint.policies)
        self._earlier = begun.policy if begun is not None and there else ""

    def _begun_before(self, version: int) -> Begun | None:
        """Returns what a killed run has begun to play by a policy that is not too old."""
        found = self._source.begun(self.position) if self._config.max_staleness and is_first() else None
        given = json.loads(from_all_processes(json.dumps(found).encode())[0])
        begun = Begun(*given) if given else None
        oldest = version - self._config.max_staleness
        return begun if begun and oldest <= version_of(begun.policy) < version else None

    def take(self, count: int, oldest: int = 0) -> list[Any]:
        """Plays the next tasks and returns a group for each, in order.

        Raises:
          UserError: too many episodes have no reward, the policy never acts, or tokens are not its own.
        """
        batch = self._batch or self._begin_batch(count, self._earlier or self._endpoint.policy)
        self._batch, self._earlier = None, ""
        folder = _wait(batch)
        self._endpoint.held.discard(batch.policy)
        try:
            groups = self._groups(folder, batch)
        except UserError:
            # It is played again once the cause is corrected.
            _set_aside(folder)
            raise
        self.position += count
        self.limit = self.position
        if self._config.max_staleness and self.version + 1 < self._config.iterations:
            self._batch = self._begin_batch(count, self._endpoint.policy)
        return groups

    def close(self) -> None:
        if self._batch is not None and self._batch.playing is not None:
            self._batch.playing.stop()
        super().close()

    def _begin_batch(self, count: int, policy: str) -> _Batch:
        playing, failed = None, None
        if is_first():
            try:
                playing = self._source.begin(self.position, count, self._config.num_samples, policy)
            except UserError as error:
                failed = error
        self._endpoint.held.add(policy)
        return _Batch(policy, playing, failed)

    def _groups(self, folder: Path, batch: _Batch) -> list[EpisodeGroup]:
        episodes: defaultdict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in read_dataset(folder, Trajectory):
            episodes[trajectory.task.task_id].append(trajectory)
        encoder = Encoder(self._data.encoder.processor, ImageStore(folder))
        # Data sets are sorted by task: of surplus groups always those of the same pages would be left out.
        order = sorted(episodes, key=lambda task_id: stable_hash(self._seed, task_id))
        groups = [self._group(task_id, episodes[task_id], encoder, batch) for task_id in order]
        check_faults(groups, self._config.max_masked, folder)
        steps = [step for runs in episodes.values() for run in runs for step in run.steps]
        if steps and not any(step.results for step in steps):
            raise UserError(
                f"{folder}: no reply had an action that could be carried out: train config.model by SFT first"
            )
        return groups

    def _begin(self) -> None:
        """Does nothing: prompts of the run are not drawn one by one; those of the evaluation are."""

    def _group(
        self, task_id: str, runs: Sequence[Trajectory], encoder: Encoder, batch: _Batch
    ) -> EpisodeGroup:
        config = self._config
        # Live pages differ from one visit to the next.
        same = [run for run in runs if run.steps and run.task.environment != "web"]
        pages = Counter(run.steps[0].observation.fingerprint for run in same)
        first_page = max(pages, key=lambda page: pages[page], default="")
        faults = [masked(run, first_page) if config.mask_faults else "" for run in runs]
        scored = [run for run, fault in zip(runs, faults, strict=True) if not fault]
        # By the environment's check or a judge.
        rewards = np.asarray([float(run.success) for run in scored])
        group = EpisodeGroup(
            task_id,
            rewards,
            tuple(fault for fault in faults if fault),
            (),
            TOO_FEW,
            batch.version,
            tuple(len(run.steps) for run in scored),
        )
        if len(scored) < _LEAST_EPISODES:
            return group
        fate, advantages = gate_group(self._gate, rewards)
        advantages = np.where(advantages < 0, config.negative_weight * advantages, advantages)
        turns, too_long = self._turns(scored, rewards, advantages, fate, encoder, batch)
        left_out: list[Group] = []
        if not config.negative_weight:
            left_out = [_select(turn, turn.advantages <= 0) for turn in turns]
            turns = [_select(turn, turn.advantages > 0) for turn in turns]
            turns, left_out = ([turn for turn in some if turn.responses] for some in (turns, left_out))
        if fate != "accepted" and rewards.max() < COMPETENT_REWARD:
            turns += [self._target(number, fate, batch) for number in self._salvage[task_id]]
        return dataclasses.replace(
            group, turns=tuple(turns), left_out=tuple(left_out), fate=fate, too_long=too_long
        )

    def _turns(
        self,
        runs: Sequence[Trajectory],
        rewards: Float64[np.ndarray, " episodes"],
        advantages: Float64[np.ndarray, " episodes"],
        fate: str,
        encoder: Encoder,
        batch: _Batch,
    ) -> tuple[list[Group], int]:
        """Returns a group for each different prompt of the episodes, and the number of turns left out."""
        # Episodes of a task begin at the same page: what they share is computed once.
        together: defaultdict[tuple[Message, ...], list[tuple[int, Turn]]] = defaultdict(list)
        counts = []
        for episode, run in enumerate(runs):
            turns = turns_of(run)
            counts.append(len(turns) if self._config.credit == "episode" else 1)
            for turn in turns:
                together[turn.messages].append((episode, turn))
        groups, too_long = [], 0
        for members in together.values():
            prompt = self._prompt(members[0][1], runs[0].task.task_id, encoder)
            # The server refuses what is too long for it, and counts nothing.
            unread = members[0][1].sampled is None and not members[0][1].prompt_tokens
            if unread or prompt.size.prompt_length > self._config.max_prompt_tokens:
                too_long += len(members)
                continue
            tokens = [self._checked(turn, prompt, batch.policy) for _, turn in members]
            which = [episode for episode, _ in members]
            responses = tuple(np.asarray(one.tokens, np.int32) for one in tokens)
            end = encoder.processor.end_id
            groups.append(
                Group(
                    prompt,
                    responses,
                    tuple(np.asarray(one.log_probs, np.float32) for one in tokens),
                    np.asarray([one[-1] != end for one in responses]),
                    rewards[which],
                    advantages[which] + self._bonuses(prompt, responses),
                    fate,
                    batch.version,
                    weights=tuple(1 / counts[episode] for episode in which),
                )
            )
        return groups, too_long

    def _prompt(self, turn: Turn, task_id: str, encoder: Encoder) -> Prompt:
        size = encoder.prompt_size(turn.name, task_id, turn.messages)
        return Prompt(size, lambda: encoder.prompt(turn.name, turn.messages), "", turn.messages)

    def _bonuses(
        self, prompt: Prompt, responses: Sequence[Int32[np.ndarray, " _"]]
    ) -> Float64[np.ndarray, " responses"]:
        """Returns `config.step_bonus` for responses with the verified action of a decision on this page."""
        bonuses, page = np.zeros(len(responses)), _page_of(prompt.messages)
        if not self._config.step_bonus:
            return bonuses
        mined = [self._data.prompt(number) for number in self._salvage[prompt.size.task_id]]
        targets = [one.target for one in mined if _page_of(one.messages) == page]
        for place, response in enumerate(responses):
            reply = self._data.decode(response)
            if any(score_response(reply, target) == EXACT for target in targets):
                bonuses[place] = self._config.step_bonus
        return bonuses

    def _checked(self, turn: Turn, prompt: Prompt, policy: str) -> SampledTokens:
        """Returns the tokens of a turn.

        Raises:
          UserError: they are missing, or were drawn by another policy, or for another prompt.
        """
        sampled, config = turn.sampled, self._config
        if sampled is None:
            raise UserError(
                f"{turn.name}: the reply came without its tokens; serve the policy with our own server, or "
                "with vLLM 0.10.2 or newer"
            )
        if sampled.policy != policy:
            raise UserError(
                f"{turn.name}: {sampled.policy or 'an unnamed policy'} has replied, not {policy}: the server "
                "must name the adapters that a request asks for"
            )
        if turn.prompt_tokens != prompt.size.prompt_length:
            raise UserError(
                f"{turn.name}: {turn.prompt_tokens} prompt tokens at the server, {prompt.size.prompt_length} "
                "here; give it the same tokenizer, chat template and image sizes as config.model has"
            )
        if len(sampled.tokens) > config.max_response_tokens:
            raise UserError(
                f"{turn.name}: a reply of {len(sampled.tokens)} tokens, over config.max_response_tokens "
                f"({config.max_response_tokens})"
            )
        return sampled

    def _target(self, number: int, fate: str, batch: _Batch) -> Group:
        """Returns a mined prompt as a group without responses, for the salvage anchor."""
        none = np.zeros(0)
        prompt = self._data.prompt(number)
        return Group(prompt, (), (), none.astype(bool), none, none, fate, batch.version)


def _wait(batch: _Batch) -> Path:
    """Returns the data set of a batch, in all processes; its errors are raised in all of them."""
    outcome: dict[str, Any] = {"folder": "", "error": "", "exit_code": 0}
    if is_first():
        try:
            if batch.failed is not None:
                raise batch.failed
            assert batch.playing is not None
            outcome["folder"] = str(batch.playing.wait())
        except UserError as error:
            outcome |= {"error": str(error), "exit_code": error.exit_code}
    outcome = json.loads(from_all_processes(json.dumps(outcome).encode())[0])
    if outcome["error"]:
        failed = UserError(outcome["error"])
        failed.exit_code = outcome["exit_code"]
        raise failed
    return Path(outcome["folder"])


def _set_aside(folder: Path) -> None:
    """Renames a data set that cannot be trained on, so that the same command plays its tasks again."""
    from_all_processes(b"")  # The others have read it.
    if is_first():
        number = sum(1 for _ in folder.parent.glob(f"{folder.name}-refused-*"))
        folder.rename(folder.with_name(f"{folder.name}-refused-{number + 1}"))


def _select(group: Group, where: Bool[np.ndarray, " responses"]) -> Group:
    """Returns a group with some of its responses."""
    chosen = np.flatnonzero(where).tolist()
    return dataclasses.replace(
        group,
        responses=tuple(group.responses[at] for at in chosen),
        log_probs=tuple(group.log_probs[at] for at in chosen),
        truncated=group.truncated[chosen],
        rewards=group.rewards[chosen],
        advantages=group.advantages[chosen],
        weights=tuple(group.weight(at) for at in chosen),
    )


def count_targets(source: EpisodeSource, data: RlData, config: OnlineConfig) -> dict[str, int]:
    """Counts the tasks that a run plays at least, and those with a verified reply in `config.prompts`.

    Raises:
      UserError: none has one, and the settings ask for the anchor or the step bonus, which need them.
    """
    tasks = source.task_ids(0, config.iterations * config.gen_batch_groups)
    known = {data.sizes[number].task_id for number in data.train}
    count = sum(task_id in known for task_id in tasks)
    line = f"{count} of the {len(tasks)} tasks that are played have a verified reply in {config.prompts}"
    if count:
        logging.info("%s", line)
    else:
        needs = {"objective.salvage_weight": config.objective.salvage_weight, "step_bonus": config.step_bonus}
        if wanted := [f"config.{name}={value:g}" for name, value in needs.items() if value]:
            raise UserError(
                f"{line}, without which {' and '.join(wanted)} can do nothing: set it to 0, or give "
                "config.prompts mined from these tasks"
            )
        logging.warning("%s: the salvage anchor cannot act", line)
    return {"tasks": len(tasks), "tasks_with_targets": count}


def _no_score(response: str, target: str) -> float:
    raise AssertionError("episodes are scored by their end")


def check_faults(groups: Sequence[EpisodeGroup], most: float, folder: Path) -> None:
    """Stops a run most of whose episodes say nothing about its policy.

    Args:
      most: largest share of episodes without a reward.

    Raises:
      UserError: there are more.
    """
    faults = Counter(fault for group in groups for fault in group.faults)
    episodes = sum(len(group.rewards) + len(group.faults) for group in groups)
    number = sum(faults.values())
    if not episodes:
        raise UserError(f"{folder}: no episode was played; see its log")
    if number:
        logging.warning("%d of %d episodes have no reward: %s", number, episodes, dict(faults.most_common()))
    if number > most * episodes:
        causes = ", ".join(f"{count} {cause}" for cause, count in faults.most_common())
        raise UserError(
            f"{folder}: {number} of {episodes} episodes have no reward, more than config.max_masked "
            f"({most:g}): {causes}; correct the cause, then run the same command again"
        )


def episode_metrics(groups: Iterable[EpisodeGroup]) -> Mapping[str, float]:
    """Computes counts and means over the episodes of an iteration."""
    groups = list(groups)
    faults = Counter(fault for group in groups for fault in group.faults)
    steps = [number for group in groups for number in group.steps]
    scored = sum(len(group.rewards) for group in groups)
    return {
        "episodes/scored": scored,
        "episodes/masked": sum(faults.values()),
        **{f"episodes/masked/{fault}": number for fault, number in sorted(faults.items())},
        "episodes/groups_too_few": sum(group.fate == TOO_FEW for group in groups),
        "episodes/steps": float(np.mean(steps)) if steps else 0.0,
        "episodes/turns": sum(len(group.responses) for group in groups),
        "episodes/turns_too_long": sum(group.too_long for group in groups),
    }
