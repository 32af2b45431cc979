"""Online rollouts: a policy plays whole episodes, and all of its turns are trained on by how they ended."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import re
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float64, Int32

from rmsweb_jax.actions.reward import EXACT, score_response
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import FORK_LIST, FORKS, LEAST_EPISODES, TEACHER, Fork
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ExtractionCall, Message, SampledTokens, SftSample, Step, Trajectory
from rmsweb_jax.records.shards import MANIFEST
from rmsweb_jax.rl.config import OnlineConfig
from rmsweb_jax.rl.functions import find_gate
from rmsweb_jax.rl.gates import COMPETENT_REWARD, gate_group
from rmsweb_jax.rl.prompts import Prompt, RlData
from rmsweb_jax.rl.remote.generator import Endpoint, version_of
from rmsweb_jax.rl.rollout import Group, Rollouts, Turn
from rmsweb_jax.training.mesh import from_all_processes, is_first

# Fate of a group in which fewer than `LEAST_EPISODES` have a reward; the other fates are those of the gates.
TOO_FEW = "too_few"
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


class Begun(NamedTuple):
    """Tasks that an earlier run has begun to play.

    Attributes:
      policy: name of the adapters that play.
      complete: all episodes have ended.
    """

    policy: str
    complete: bool


class _Played(NamedTuple):
    """The episodes of a data set by task, and what encodes their prompts."""

    runs: defaultdict[str, list[Trajectory]]
    encoder: Encoder


class _Batch(NamedTuple):
    """Tasks that are played.

    Attributes:
      first: place of the first one in the run's order.
      policy: that plays.
      failed: why the first process could not begin them.
    """

    first: int
    policy: str
    failed: UserError | None


# Success rate of a template before it is played, and the weight of a task's in the mean.
FIRST_RATE, _NEWEST = 0.5, 0.3


class Tallied(NamedTuple):
    """What was played of a template.

    Attributes:
      tasks: number of tasks.
      rate: success rate, in which newer tasks weigh more; a group with too few rewards counts as 1.
    """

    tasks: int
    rate: float


# By template.
Tally = Mapping[str, Tallied]


def template_of(task_id: str) -> str:
    """Returns a page or a template of an application: a task's id without its seed."""
    return task_id.rpartition("/")[0]


class EpisodeSource(Protocol):
    """What plays episodes, on any browsers.

    Attributes:
      teaches: a teacher plays the tasks that no episode has solved; its data set is `TEACHER` in that of the
        episodes.
    """

    teaches: bool

    def task_ids(self, first: int, count: int) -> list[str]:
        """Returns the ids of the tasks `first` to `first + count - 1` of the run's order."""
        ...

    def begin(self, first: int, count: int, policy: str, tally: Tally) -> None:
        """Begins the episodes of the run's tasks `first` to `first + count - 1`; those begun before go first.

        A run that was killed goes on with the episodes that had ended, of the tasks that it had chosen.

        Args:
          policy: name of the adapters at the server.
          tally: what was played before.

        Raises:
          UserError: they cannot be begun.
        """
        ...

    def wait(self, first: int) -> Path:
        """Returns the data set of what was begun at `first`, whose steps have their tokens, once it is over.

        Raises:
          UserError: no episode can be played.
        """
        ...

    def stop(self) -> None:
        """Stops what was begun; episodes that have ended are kept."""
        ...

    def begun(self, first: int) -> Begun | None:
        """Returns what an earlier run has begun at the task `first`, by its newest policy."""
        ...


def calls_of(trajectory: Trajectory) -> list[tuple[str, Step | ExtractionCall]]:
    """Returns an episode's calls of the policy by name: its decisions, and what it read from pages."""
    calls: list[tuple[str, Step | ExtractionCall]] = []
    for step in trajectory.steps:
        name = f"{trajectory.trajectory_id}/{step.number}"
        calls.append((name, step))
        calls += [(f"{name}/{number}", one) for number, one in enumerate(step.extractions, 1)]
    return calls


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


class EpisodeRollouts(Rollouts):
    """The groups of an online run, task by task; takes the place of `Rollouts` in dynamic sampling.

    With `config.max_staleness` each policy begins the batch for the next iteration when it is loaded, by
    browsers that have nothing to do for the batch before.

    Args:
      source: plays the episodes.
      endpoint: the server that the episodes' actor asks, with the policy loaded.
      data: mined prompts: those of a task that no episode solves serve as salvage targets.
      position: tasks that earlier runs have played.
      tally: of these.
    """

    def __init__(
        self,
        source: EpisodeSource,
        endpoint: Endpoint,
        data: RlData,
        config: OnlineConfig,
        position: int = 0,
        tally: Tally = MappingProxyType({}),
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
        self.tally = dict(tally)
        self._playing: deque[_Batch] = deque()
        # The policy by which a killed run has begun the next batch; None before the first is loaded.
        self._earlier: str | None = None
        self._salvage: defaultdict[str, list[int]] = defaultdict(list)
        for number in data.train:
            self._salvage[data.sizes[number].task_id].append(number)

    def load(self, model: Qwen3VL, version: int) -> None:
        begun = self._begun_before(version) if self._earlier is None else None
        if begun is not None and not begun.complete:
            self._endpoint.held.add(begun.policy)
        super().load(model, version)
        # Complete episodes need no server.
        there = begun is not None and (begun.complete or begun.policy in self._endpoint.policies)
        self._earlier = begun.policy if begun is not None and there else ""
        self._play_ahead(0)

    def _begun_before(self, version: int) -> Begun | None:
        """Returns the next batch as a killed run has begun it by a policy that is not too old."""
        found = self._source.begun(self.position) if self._config.max_staleness and is_first() else None
        given = json.loads(from_all_processes(json.dumps(found).encode())[0])
        begun = Begun(*given) if given else None
        oldest = version - self._config.max_staleness
        return begun if begun and oldest <= version_of(begun.policy) < version else None

    def take(self, count: int, oldest: int = 0) -> list[Group]:
        """Plays the next tasks and returns a group for each, in order.

        Raises:
          UserError: too many episodes have no reward, the policy never acts, or tokens are not its own.
        """
        if not self._playing:
            self._play()
        batch = self._playing.popleft()
        folder = self._wait(batch)
        self._endpoint.held -= {batch.policy} - {one.policy for one in self._playing}
        try:
            groups = self._groups(folder, batch.policy)
        except UserError:
            # It is played again once the cause is corrected.
            _set_aside(folder)
            raise
        for task_id, group in groups.items():
            tasks, rate = self.tally.get(name := template_of(task_id), Tallied(0, FIRST_RATE))
            # A template that is lost again and again has as little to learn as one that is always solved.
            lost = len(group.rewards) < LEAST_EPISODES
            rate += _NEWEST * ((1.0 if lost else float(group.rewards.mean())) - rate)
            self.tally[name] = Tallied(tasks + 1, rate)
        self.position += count
        self.limit = self.position
        self._play_ahead(1)
        return list(groups.values())

    def close(self) -> None:
        if self._playing and is_first():
            self._source.stop()
        super().close()

    def _play_ahead(self, taken: int) -> None:
        """Begins the batches of this iteration, which has taken so many, and of the next, if there is one."""
        iterations = min(self._config.iterations - self.version, 2) if self._config.max_staleness else 0
        while len(self._playing) < iterations - taken:
            self._play()

    def _play(self) -> None:
        """Begins to play the next batch; the first process plays it."""
        count, failed = self._config.groups_at_once, None
        first = self.position + count * len(self._playing)
        policy, self._earlier = self._earlier or self._endpoint.policy, ""
        self._endpoint.held.add(policy)
        if is_first():
            try:
                self._source.begin(first, count, policy, self.tally)
            except UserError as error:
                failed = error
        self._playing.append(_Batch(first, policy, failed))

    def _wait(self, batch: _Batch) -> Path:
        """Returns the data set of a batch, in all processes; its errors are raised in all of them."""
        outcome: dict[str, Any] = {"folder": "", "error": "", "exit_code": 0}
        if is_first():
            try:
                if batch.failed is not None:
                    raise batch.failed
                outcome["folder"] = str(self._source.wait(batch.first))
            except UserError as error:
                outcome |= {"error": str(error), "exit_code": error.exit_code}
        outcome = json.loads(from_all_processes(json.dumps(outcome).encode())[0])
        if outcome["error"]:
            failed = UserError(outcome["error"])
            failed.exit_code = outcome["exit_code"]
            raise failed
        return Path(outcome["folder"])

    def _groups(self, folder: Path, policy: str) -> dict[str, Group]:
        """Returns the group of each task."""
        played, taught, forks = (self._played(one) for one in (folder, folder / TEACHER, folder / FORKS))
        episodes, places = played.runs, _forks_of(folder)
        # Data sets are sorted by task: of surplus groups always those of the same pages would be left out.
        order = sorted(episodes, key=lambda task_id: stable_hash(self._seed, task_id))
        groups = {}
        for task_id in order:
            group = self._group(task_id, episodes[task_id], played.encoder, policy)
            if group.accepted and task_id in places:
                group = self._by_fork(group, places[task_id], forks, policy)
            if _is_unsolved(group) and (runs := taught.runs[task_id]):
                turns = (*group.turns, *self._success(runs, taught.encoder))
                group = dataclasses.replace(group, turns=turns)
            groups[task_id] = group
        check_faults(list(groups.values()), self._config.max_masked, folder)
        steps = [step for runs in episodes.values() for run in runs for step in run.steps]
        if steps and not any(step.results for step in steps):
            raise UserError(
                f"{folder}: no reply had an action that could be carried out: train config.model by SFT first"
            )
        return groups

    def _played(self, folder: Path) -> _Played:
        runs: defaultdict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in read_dataset(folder, Trajectory) if (folder / MANIFEST).exists() else ():
            runs[trajectory.task.task_id].append(trajectory)
        return _Played(runs, Encoder(self._data.encoder.processor, ImageStore(folder)))

    def _begin(self) -> None:
        """Does nothing: prompts of the run are not drawn one by one; those of the evaluation are."""

    def _group(self, task_id: str, runs: Sequence[Trajectory], encoder: Encoder, policy: str) -> Group:
        config = self._config
        # Live pages differ from one visit to the next.
        same = [run for run in runs if run.steps and run.task.environment != "web"]
        pages = Counter(run.steps[0].observation.fingerprint for run in same)
        first_page = max(pages, key=lambda page: pages[page], default="")
        faults = [masked(run, first_page) if config.mask_faults else "" for run in runs]
        scored = [run for run, fault in zip(runs, faults, strict=True) if not fault]
        # By the environment's check or a judge.
        rewards = np.asarray([float(run.success) for run in scored])
        group = Group(
            (),
            rewards,
            TOO_FEW,
            version_of(policy),
            faults=tuple(fault for fault in faults if fault),
            steps=tuple(len(run.steps) for run in scored),
        )
        if len(scored) < LEAST_EPISODES:
            return group
        group = self._gated(group, scored, rewards, encoder, policy)
        targets: list[Turn] = []
        if _is_unsolved(group) and config.objective.salvage_weight:
            targets = [Turn.of_target(self._data.prompt(number)) for number in self._salvage[task_id]]
        if group.fate == "solved" and config.anchor_solved:
            targets = self._success(scored, encoder)
        return dataclasses.replace(group, turns=(*group.turns, *targets))

    def _gated(
        self,
        group: Group,
        runs: Sequence[Trajectory],
        rewards: Float64[np.ndarray, " episodes"],
        encoder: Encoder,
        policy: str,
    ) -> Group:
        """Returns the group with the turns of episodes, and what the gate decides on their rewards."""
        weight = self._config.negative_weight
        fate, advantages = gate_group(self._gate, rewards)
        advantages = np.where(advantages < 0, weight * advantages, advantages)
        turns, too_long = self._turns(runs, rewards, advantages, encoder, policy)
        left_out: list[Turn] = []
        if not weight:
            left_out = [_select(turn, turn.advantages <= 0) for turn in turns]
            turns = [_select(turn, turn.advantages > 0) for turn in turns]
            turns, left_out = ([turn for turn in some if turn.responses] for some in (turns, left_out))
        return dataclasses.replace(
            group, turns=tuple(turns), left_out=tuple(left_out), fate=fate, too_long=too_long
        )

    def _by_fork(
        self,
        group: Group,
        fork: Fork,
        forks: _Played,
        policy: str,
    ) -> Group:
        """Returns an accepted group with the replies at its fork in place of its episodes' turns.

        Without a contrast there the group stays as it is.
        """
        drawn = []
        for run in forks.runs[fork.task_id]:
            steps = run.steps[len(fork.replies) : len(fork.replies) + 1]
            there = steps and steps[0].observation.fingerprint == fork.page and steps[0].sampled is not None
            if there and not (self._config.mask_faults and masked(run)):
                alone = steps[0].model_copy(update={"extractions": ()})
                drawn.append(run.model_copy(update={"steps": (alone,)}))
        if len(drawn) < LEAST_EPISODES:
            return group
        rewards = np.asarray([float(run.success) for run in drawn])
        forked = self._gated(group, drawn, rewards, forks.encoder, policy)
        if not forked.accepted or not forked.turns:
            return group
        return dataclasses.replace(forked, forked=True, too_long=group.too_long + forked.too_long)

    def _success(self, runs: Sequence[Trajectory], encoder: Encoder) -> list[Turn]:
        """Returns the shortest success as targets of the anchor, without repaired or failed replies."""
        config, task = self._config, runs[0].task
        # Not one whose answer says that there is no answer, as in the SFT corpus.
        solved = [run for run in runs if run.success and run.declared_success is not False]
        shortest = min(solved, key=lambda run: len(run.steps)).steps if solved else ()
        turns = []
        for step in shortest:
            if step.error or step.repaired or any(result.error for result in step.results):
                continue
            name, given = (
                f"{task.task_id}/{step.number}",
                {"messages": step.messages, "response": step.response},
            )
            sample = SftSample(sample_id=name, task_id=task.task_id, site=task.site, kind="action", **given)
            size = encoder.size(sample)
            # What rows have room for.
            prompt, reply = config.max_prompt_tokens, config.max_response_tokens
            if size.prompt_length <= prompt and size.num_targets <= reply:
                encode = functools.partial(encoder.example, sample)
                turns.append(Turn.of_target(Prompt(size, encode, step.response, step.messages)))
        return turns

    def _turns(
        self,
        runs: Sequence[Trajectory],
        rewards: Float64[np.ndarray, " episodes"],
        advantages: Float64[np.ndarray, " episodes"],
        encoder: Encoder,
        policy: str,
    ) -> tuple[list[Turn], int]:
        """Returns a turn for each different prompt of the episodes, and the number of calls left out."""
        # Episodes of a task begin at the same page: what they share is computed once.
        together: defaultdict[tuple[Message, ...], list[tuple[int, str, Step | ExtractionCall]]]
        together = defaultdict(list)
        counts = []
        for episode, run in enumerate(runs):
            calls = calls_of(run)
            counts.append(1 if self._config.credit == "turn" else len(calls))
            for name, call in calls:
                together[call.messages].append((episode, name, call))
        turns, too_long = [], 0
        for members in together.values():
            _, name, first = members[0]
            prompt = self._prompt(name, first.messages, runs[0].task.task_id, encoder)
            # The server refuses what is too long for it, and counts nothing.
            unread = first.sampled is None and not first.usage.prompt_tokens
            if unread or prompt.size.prompt_length > self._config.max_prompt_tokens:
                too_long += len(members)
                continue
            tokens = [self._checked(name, call, prompt, policy) for _, name, call in members]
            which = [episode for episode, _, _ in members]
            responses = tuple(np.asarray(one.tokens, np.int32) for one in tokens)
            end = encoder.processor.end_id
            turns.append(
                Turn(
                    prompt,
                    responses,
                    tuple(np.asarray(one.log_probs, np.float32) for one in tokens),
                    np.asarray([one[-1] != end for one in responses]),
                    rewards[which],
                    advantages[which] + self._bonuses(prompt, responses),
                    version_of(policy),
                    weights=tuple(1 / counts[episode] for episode in which),
                )
            )
        return turns, too_long

    def _prompt(self, name: str, messages: tuple[Message, ...], task_id: str, encoder: Encoder) -> Prompt:
        size = encoder.prompt_size(name, task_id, messages)
        return Prompt(size, lambda: encoder.prompt(name, messages), "", messages)

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

    def _checked(self, name: str, call: Step | ExtractionCall, prompt: Prompt, policy: str) -> SampledTokens:
        """Returns the tokens of a call.

        Raises:
          UserError: they are missing, or were drawn by another policy, or for another prompt.
        """
        sampled, config = call.sampled, self._config
        if sampled is None:
            raise UserError(
                f"{name}: the reply came without its tokens; serve the policy with our own server, or "
                "with vLLM 0.10.2 or newer"
            )
        if sampled.policy != policy:
            raise UserError(
                f"{name}: {sampled.policy or 'an unnamed policy'} has replied, not {policy}: the server "
                "must name the adapters that a request asks for"
            )
        if call.usage.prompt_tokens != prompt.size.prompt_length:
            raise UserError(
                f"{name}: {call.usage.prompt_tokens} prompt tokens at the server, "
                f"{prompt.size.prompt_length} here; give it the same tokenizer, chat template and image "
                "sizes as config.model has"
            )
        if len(sampled.tokens) > config.max_response_tokens:
            raise UserError(
                f"{name}: a reply of {len(sampled.tokens)} tokens, over config.max_response_tokens "
                f"({config.max_response_tokens})"
            )
        return sampled


def _forks_of(folder: Path) -> dict[str, Fork]:
    """Returns the forks of a batch by task."""
    path = folder / FORK_LIST
    forks = json.loads(path.read_bytes()) if path.exists() else []
    return {one["task_id"]: Fork.model_validate(one) for one in forks}


def _is_unsolved(group: Group) -> bool:
    """Returns True for a group whose rewards are known, and none is a success."""
    rejected = group.fate not in ("accepted", TOO_FEW)
    return rejected and group.rewards.max() < COMPETENT_REWARD


def _set_aside(folder: Path) -> None:
    """Renames a data set that cannot be trained on, so that the same command plays its tasks again."""
    from_all_processes(b"")  # The others have read it.
    if is_first():
        number = sum(1 for _ in folder.parent.glob(f"{folder.name}-refused-*"))
        folder.rename(folder.with_name(f"{folder.name}-refused-{number + 1}"))


def _select(turn: Turn, where: Bool[np.ndarray, " responses"]) -> Turn:
    """Returns a turn with some of its responses."""
    chosen = np.flatnonzero(where).tolist()
    return dataclasses.replace(
        turn,
        responses=tuple(turn.responses[at] for at in chosen),
        log_probs=tuple(turn.log_probs[at] for at in chosen),
        truncated=turn.truncated[chosen],
        rewards=turn.rewards[chosen],
        advantages=turn.advantages[chosen],
        weights=tuple(turn.weight(at) for at in chosen),
    )


def _has_target(group: Group) -> bool:
    return any(turn.prompt.target for turn in group.turns)


def count_targets(source: EpisodeSource, data: RlData, config: OnlineConfig) -> dict[str, int]:
    """Counts the tasks that a run plays at least, and those with a verified reply in `config.prompts`.

    Raises:
      UserError: none has one, and the settings ask for the anchor or the step bonus, which need them.
    """
    tasks = source.task_ids(0, config.iterations * config.gen_batch_groups)
    known = {data.sizes[number].task_id for number in data.train}
    count = sum(task_id in known for task_id in tasks)
    line = f"{count} of the {len(tasks)} tasks that are played have a verified reply in {config.prompts}"
    # Of other targets nothing is known before.
    others = config.anchor_solved or source.teaches
    weight = 0 if others else config.objective.salvage_weight
    needs = {"objective.salvage_weight": weight, "step_bonus": config.step_bonus}
    if not count and (wanted := [f"config.{name}={value:g}" for name, value in needs.items() if value]):
        raise UserError(
            f"{line}, without which {' and '.join(wanted)} can do nothing: set it to 0, or give "
            "config.prompts mined from these tasks"
        )
    if count or source.teaches:
        logging.info("%s", line)
    else:
        logging.warning("%s: groups without success have no anchor", line)
    return {"tasks": len(tasks), "tasks_with_targets": count}


def _no_score(response: str, target: str) -> float:
    raise AssertionError("episodes are scored by their end")


def check_faults(groups: Sequence[Group], most: float, folder: Path) -> None:
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


def episode_metrics(groups: Sequence[Group], salvaged: Sequence[Group] = ()) -> Mapping[str, float]:
    """Computes counts and means over the episodes of an iteration.

    Args:
      salvaged: the rejected ones that are trained on.
    """
    faults = Counter(fault for group in groups for fault in group.faults)
    steps = [number for group in groups for number in group.steps]
    scored = sum(len(group.rewards) for group in groups)
    return {
        "episodes/scored": scored,
        "episodes/masked": sum(faults.values()),
        **{f"episodes/masked/{fault}": number for fault, number in sorted(faults.items())},
        "episodes/groups_forked": sum(group.forked for group in groups),
        "salvage/groups_unsolved": sum(map(_is_unsolved, groups)),
        "salvage/groups_with_target": sum(_is_unsolved(group) and _has_target(group) for group in groups),
        "salvage/groups_anchored": sum(_is_unsolved(group) and _has_target(group) for group in salvaged),
        "episodes/groups_too_few": sum(group.fate == TOO_FEW for group in groups),
        "episodes/steps": float(np.mean(steps)) if steps else 0.0,
        "episodes/turns": sum(len(turn.responses) for group in groups for turn in group.sampled),
        "episodes/turns_too_long": sum(group.too_long for group in groups),
    }
