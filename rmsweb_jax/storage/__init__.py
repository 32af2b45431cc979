"""Files of a run or a data set: on disk, or as objects in Google Cloud Storage or S3."""

from rmsweb_jax.storage.lease import Lease
from rmsweb_jax.storage.objects import Entry
from rmsweb_jax.storage.paths import AnyPath, StorePath, local_path, parse_path

__all__ = ["AnyPath", "Entry", "Lease", "StorePath", "local_path", "parse_path"]
