"""The episodes of a run: in one journal while it goes on, and a data set at the end.

One process writes the journal. Each line is an episode (`Trajectory`), a reflection on one, or a task that
was set aside. A later record of an episode, with its verdict or as it was played again, takes the place of an
earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import orjson

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import UNFINISHED, write_dataset
from rmsweb_jax.records.files import make_folder, write_atomic
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import iter_journal, read_record
from rmsweb_jax.records.schema import Record, Reflection, Trajectory
from rmsweb_jax.records.shards import MANIFEST, Manifest

EPISODES, REFLECTIONS = "episodes.jsonl", "reflections.jsonl"
# Data sets in that of a batch of online RL: the teacher's episodes at tasks that the policy has not solved,
# and those that go on from a `Fork`, of which the batch has a list.
TEACHER, FORKS, FORK_LIST = "teacher", "forks", "forks.json"
# Episodes of a task without a fault that make a group.
LEAST_EPISODES = 2
# Beginnings of the lines that are no episodes.
REFLECTION, SET_ASIDE = b'{"reflection":', b'{"set_aside":'
# Episodes with their prompts are large, and a shard of them is in memory when it is written.
_SHARD_RECORDS = 128


class Fork(Record):
    """Where the episodes of a task part: the first step at which they act differently.

    Attributes:
      replies: those before.
      errors: why they could not be used; "" if they could.
      page: fingerprint of the page there.
    """

    task_id: str
    replies: tuple[str, ...]
    errors: tuple[str, ...]
    page: str


def has_not_ended(folder: Path) -> bool:
    """Returns whether a folder's episodes are in its journal alone, also after a kill in the final write."""
    if not (folder / EPISODES).exists():
        return False
    return not (folder / MANIFEST).exists() or (folder / UNFINISHED).exists()


def find_episodes(path: Path) -> tuple[dict[str, tuple[str, int]], dict[tuple[str, int], Reflection]]:
    """Finds the newest record of each episode in a journal; one may be appended to it meanwhile.

    Returns:
      Trajectory id -> its task's id and its place in the file; and (task id, attempt) -> reflection.

    Raises:
      UserError: a line is of another version.
    """
    episodes: dict[str, tuple[str, int]] = {}
    reflections: dict[tuple[str, int], Reflection] = {}
    try:
        for place, record in iter_journal(path):
            if record.startswith(REFLECTION):
                one = Reflection.model_validate(orjson.loads(record)["reflection"])
                reflections[one.task_id, one.attempt] = one
            elif not record.startswith(SET_ASIDE):
                head = orjson.loads(record)
                episodes[head["trajectory_id"]] = head["task"]["task_id"], place
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: written by another version ({error}); use another --workdir") from error
    return episodes, reflections


def write_episodes(
    journal: Path,
    folder: Path,
    provenance: dict[str, Any],
    tasks: Collection[str] | None = None,
    images: ImageStore | None = None,
) -> Manifest:
    """Writes what a journal holds as a data set, sorted by id, and `reflections.jsonl` if there are any.

    Args:
      provenance: gets the number of reflections.
      tasks: ids of those that count; None: all.
      images: screenshots that are not put into `folder`.

    Raises:
      UserError: as `find_episodes`; or there is no episode.
    """
    episodes, reflections = find_episodes(journal)
    known = [one for (task, _), one in sorted(reflections.items()) if tasks is None or task in tasks]
    places = [place for _, (task, place) in sorted(episodes.items()) if tasks is None or task in tasks]
    records = (Trajectory.model_validate_json(read_record(journal, place)) for place in places)
    if len(places) < len(episodes) and (folder / MANIFEST).exists():
        others = {place for _, place in episodes.values()}.difference(places)
        _keep_screenshots(ImageStore(folder), journal, others)
    if known:
        make_folder(folder)
        lines = "".join(one.model_dump_json() + "\n" for one in known)
        write_atomic(folder / REFLECTIONS, lines.encode())
    about = {**provenance, "reflections": len(known)}
    return write_dataset(folder, records, "trajectories", about, _SHARD_RECORDS, images)


def _keep_screenshots(store: ImageStore, journal: Path, places: Iterable[int]) -> None:
    """Makes files of the screenshots of some episodes: the shards that have them are about to be replaced."""
    for place in places:
        for name in record_images(Trajectory.model_validate_json(read_record(journal, place))):
            if not store.path(name).exists() and name in store:
                store.put(store.get(name))
