"""Installs applications where they are missing, and tries them: see `suite.check_application`.

python -m collection.environments.apps.check trac buku
"""

from __future__ import annotations

import collections
import logging
import time

from absl import app, flags

from collection.environments.apps.application import Application
from collection.environments.apps.suite import check_application, level, prepared
from rmsweb_jax.errors import UserError, user_errors

logging.getLogger("httpx").setLevel(logging.WARNING)
_APPS = flags.DEFINE_string("apps_folder", "", "Where applications are installed; empty: the user's cache.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the tasks that are tried.")


def main(argv: list[str]) -> None:
    with user_errors():
        if not argv[1:]:
            raise UserError("name the applications, for example: trac")
        for name in argv[1:]:
            begin = time.monotonic()
            (application,) = prepared([name], _APPS.value)
            installed = time.monotonic()
            with application:
                check_application(application, _SEED.value)
                begun = time.monotonic()
                application.reset(_SEED.value)
                reset_ms = 1000 * (time.monotonic() - begun)
            print(
                f"{name}: {len(application.templates)} templates{_levels(application)}; nothing is paid to "
                f"who does nothing; a reset restores it, in {reset_ms:.1f} ms; installed in "
                f"{installed - begin:.1f} s below {application.folder}"
            )


def _levels(application: Application) -> str:
    """How many templates there are of each level, in brackets."""
    found = collections.Counter(level(application.name, template) for template in application.templates)
    named = [f"{found[name]} {name}" for name in ("easy", "medium", "hard") if found[name]]
    return f" ({', '.join(named)})" if named else ""


if __name__ == "__main__":
    app.run(main)
