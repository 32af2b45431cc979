"""The managed policy: what Chromium refuses by itself, whatever a page or an agent does.

Chromium on Linux reads it from a folder fixed when it was built, for all browsers of the machine. A process
that may have a mount namespace of its own sees ours there (`show_policy`), and nobody else does. Where that
is not permitted, an administrator can install it for the machine:

    make browser-policy     (python -m collection.browser.guard.managed --install; --remove takes it away)
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import sys

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic

NAME = "rmsweb-jax.json"
# Where Debian's Chromium and Google's Chrome look for `policies/managed`.
FOLDERS = tuple(map(pathlib.Path, ("/etc/chromium", "/etc/opt/chrome")))
_OURS = pathlib.Path(__file__).with_name("etc_chromium")
_POLICY = _OURS / "policies" / "managed" / NAME

# From linux/sched.h and linux/mount.h.
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
# Loaded before any fork: a child between fork and exec must not import or open a library.
_LIBC = ctypes.CDLL(None, use_errno=True)


def show_policy() -> bool:
    """Lets this process and its children, such as a driver and its browser, see the policy.

    For `preexec_fn`, before anything else: the calling process itself gets another view of the file system.

    Returns:
      False where that is not permitted: then nothing has changed.
    """
    folders = [folder for folder in FOLDERS if folder.is_dir()]
    # The second is so for a process that has changed its user: it could not say who is who in there.
    if not folders or not os.access("/proc/self/uid_map", os.W_OK):
        return False
    user, group = os.getuid(), os.getgid()
    # Only as the owner of a namespace of users may one who is not root mount anything.
    if _LIBC.unshare(_CLONE_NEWNS | (0 if user == 0 else _CLONE_NEWUSER)):
        return False
    if user != 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            pathlib.Path("/proc/self", name).write_text(text)
    private = _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    source = os.fsencode(_OURS)
    return not private and not any(
        _LIBC.mount(source, os.fsencode(folder), None, _MS_BIND, None) for folder in folders
    )


def install(folder: pathlib.Path) -> pathlib.Path:
    """Writes the policy for all browsers that read `folder`, and returns the file.

    Raises:
      UserError: that is not permitted.
    """
    path = folder / "policies" / "managed" / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _POLICY.read_bytes())
        path.chmod(0o644)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; run it as root") from error
    return path


def remove(folder: pathlib.Path) -> pathlib.Path:
    """Takes it away again, as `install`."""
    path = folder / "policies" / "managed" / NAME
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; run it as root") from error
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The collector's browser policy, for the whole machine.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--install", action="store_true", help="for every Chromium and Chrome of the machine")
    what.add_argument("--remove", action="store_true", help="take it away again")
    chosen = parser.parse_args(arguments)
    try:
        for folder in [folder for folder in FOLDERS if folder.is_dir()] or FOLDERS[:1]:
            path = install(folder) if chosen.install else remove(folder)
            print(f"{path}: {'installed' if chosen.install else 'removed'}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if chosen.install:
        print(
            "Every Chromium and Chrome of this machine, yours included, now opens no files and no settings,\n"
            "keeps no passwords and takes no extensions; --remove in place of --install undoes it."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
