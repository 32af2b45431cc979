"""Checkpoints of a training loop: arrays, data position and counters, whole or absent (Orbax)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain.python as grain
import jax
import orbax.checkpoint as ocp

from rmsweb_jax.errors import UserError


class Checkpoints:
    """The numbered checkpoints of one run; a kill at any moment leaves the last finished one.

    Args:
      folder: made when missing.
      keep: how many of the latest are kept.
    """

    def __init__(self, folder: Path, keep: int = 2):
        self._folder = folder.resolve()
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                cleanup_tmp_directories=True,
                # On CPU an asynchronous writer would read the very buffers that the next step donates.
                enable_async_checkpointing=jax.default_backend() != "cpu",
            ),
        )

    def latest_step(self) -> int | None:
        """The step of the newest finished checkpoint, None when there is none."""
        return self._manager.latest_step()

    def save(
        self, step: int, state: Any, extra: dict[str, Any], iterator: grain.DatasetIterator | None = None
    ) -> None:
        """Saves `state` (pytree of arrays), `extra` (JSON) and the position of the data `iterator`.

        A checkpoint of the same step is left as it is.
        """
        if step == self.latest_step():
            return
        items: dict[str, Any] = {"state": ocp.args.StandardSave(state), "extra": ocp.args.JsonSave(extra)}
        if iterator is not None:
            items["data"] = grain.PyGrainCheckpointSave(iterator)  # pyright: ignore[reportCallIssue]
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(
        self, step: int, abstract_state: Any, iterator: grain.DatasetIterator | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reads a checkpoint and moves `iterator` to where it was.

        Args:
          abstract_state: the state's structure, with a `jax.ShapeDtypeStruct` (and sharding) per array.

        Returns:
          The state and the extra values.

        Raises:
          UserError: the checkpoint does not fit, for example since the model has changed.
        """
        items: dict[str, Any] = {
            "state": ocp.args.StandardRestore(abstract_state),
            "extra": ocp.args.JsonRestore(),
        }
        if iterator is not None:
            items["data"] = grain.PyGrainCheckpointRestore(iterator)  # pyright: ignore[reportCallIssue]
        try:
            restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        except (ValueError, KeyError, FileNotFoundError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{self._folder}/{step}: this checkpoint does not fit the run ({reason}): "
                "delete the folder to begin anew, or give another --workdir"
            ) from error
        return restored["state"], restored["extra"]

    def wait(self) -> None:
        """Returns once everything saved is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.wait_until_finished()
        self._manager.close()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def abstract_like(tree: Any) -> Any:
    """Shapes, dtypes and shardings of a pytree of arrays, as `Checkpoints.restore` wants them."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
