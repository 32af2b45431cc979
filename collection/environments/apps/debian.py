"""Debian's packages in a folder: downloaded and unpacked, not installed."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Sequence

from collection.environments.apps.application import run_quietly
from rmsweb_jax.errors import UserError


def unpack(packages: Sequence[str], folder: pathlib.Path) -> None:
    """Unpacks packages of Debian 12 into `folder`, as if it were `/`; their scripts are not run.

    Raises:
      UserError: this is no Debian system, or a package could not be downloaded.
    """
    with tempfile.TemporaryDirectory(prefix="rmsweb-debian-") as downloads:
        download = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages]
        try:
            run_quietly(download, folder=pathlib.Path(downloads))
        except UserError as error:
            if os.geteuid() != 0:
                raise UserError(
                    f"{error}; Debian 12's apt-get is needed, and `apt-get update` by root"
                ) from error
            # The lists are missing, or older than the archive's last security update.
            run_quietly(["apt-get", "update"])
            run_quietly(download, folder=pathlib.Path(downloads))
        for package in sorted(pathlib.Path(downloads).glob("*.deb")):
            run_quietly(["dpkg", "-x", str(package), str(folder)])
