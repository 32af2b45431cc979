"""Flags, config checks and one-line user errors for all experiment scripts."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from absl import app, flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from rmsweb_jax.errors import UserError, user_errors
from rmsweb_jax.processes import bypass_proxy_locally
from rmsweb_jax.settings import unknown_key
from rmsweb_jax.storage import StorePath, parse_path
from rmsweb_jax.workdir import flatten_settings, is_within, open_run


def run(
    main: Callable[[ConfigDict, Any], object],
    config: str,
    safe_keys: Iterable[str] = (),
    distributed: bool = False,
) -> None:
    """Parses `--config` and `--workdir` and calls `main(config, workdir)`.

    Args:
      main: the experiment. It gets a folder on disk; where the workdir is in a bucket, the folder appears
        there when `main` has returned.
      config: default config file and variant, for example `configs/sft.py:demo`.
      safe_keys: see `open_workdir`.
      distributed: whether it can run on several processes at once (`--distributed`). `main` then gets the
        workdir as it was given, a path of a disk or a bucket, and saves its state there.
    """
    workdir_flag = flags.DEFINE_string("workdir", None, "Folder for everything it writes.", required=True)
    join_flag = None
    if distributed:
        join_flag = flags.DEFINE_bool("distributed", False, "Join the other processes of this run (pods).")

    def entry(config: ConfigDict) -> None:
        workdir = parse_path(workdir_flag.value, "--workdir")
        view = f"to look at it, also while it runs: python -m experiments.view {workdir}"
        with contextlib.ExitStack() as stack:
            process, hosts = 0, None
            if join_flag is not None and join_flag.value:
                # JAX is not for the machines that collect.
                import jax

                from rmsweb_jax.training.distributed import Hosts

                hosts = stack.enter_context(Hosts())
                hosts.agree(config, workdir)
                process = jax.process_index()
            # The first process opens the workdir, or ends all.
            if hosts and process:
                hosts.meet("workdir")
            folder = stack.enter_context(open_run(workdir, config, safe_keys, process, live=distributed))
            if hosts and not process:
                hosts.meet("workdir")
            first_on_disk = not process and isinstance(workdir, Path)
            # A person reads it while the run goes on; in a log, what went wrong stays the only line.
            if first_on_disk and sys.stderr.isatty():
                print(view, file=sys.stderr, flush=True)
            main(config, workdir if distributed else folder)
            if first_on_disk and not sys.stderr.isatty():
                print(view, file=sys.stderr, flush=True)
        if isinstance(workdir, StorePath) and not process:
            print(f"{workdir}: everything is there")

    run_config(entry, config)


def run_config(main: Callable[[ConfigDict], None], config: str) -> None:
    """Parses `--config` together with the flags that the script has defined, and calls `main(config)`.

    Args:
      config: default config file and variant. `find_config` says where files are looked for.
    """

    def entry(argv: list[str]) -> None:
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]!r}: settings are given as --config.key=value")
        main(flag.value)

    with user_errors():
        # The overrides on the command line are applied to the default already here.
        argv = find_configs(sys.argv)
        with _command_line(argv, config):
            flag = config_flags.DEFINE_config_file(
                "config", find_config(config), "Config file and variant.", sys_argv=argv
            )
        app.run(entry, argv=argv, flags_parser=functools.partial(parse_flags, config=config))


def find_config(name: str) -> str:
    """The file behind FILE:VARIANT: FILE itself where it exists, else the installed one of that name.

    Args:
      name: for example `configs/rl.py:8b,anchor_free`.

    Raises:
      UserError: there is no such file.
    """
    file, colon, variant = name.partition(":")
    if Path(file).is_file():
        return name
    installed = resources.files("configs")
    folder, _, rest = file.partition("/")
    if folder == "configs" and (installed / rest).is_file():
        return f"{installed / rest}{colon}{variant}"
    names = sorted(f"configs/{one.name}" for one in installed.iterdir() if one.name.endswith(".py"))
    names.remove("configs/__init__.py")
    raise UserError(f"--config={name}: no such file; give one of your own, or {', '.join(names)}")


def find_configs(argv: Sequence[str]) -> list[str]:
    """A command line with the file behind each `--config=FILE:VARIANT`."""
    found = []
    for argument in argv:
        flag, equals, name = argument.partition("=")
        is_config = equals and flag in ("--config", "-config")
        found.append(f"{flag}={find_config(name)}" if is_config else argument)
    return found


def parse_flags(argv: list[str], config: str = "") -> list[str]:
    """Parses the command line; a mistake in it is a user error of one line.

    Args:
      config: default config file and variant, of a script that has one.
    """
    bypass_proxy_locally()
    with _command_line(argv, config):
        return flags.FLAGS(argv)


@contextlib.contextmanager
def _command_line(argv: list[str], config: str) -> Iterator[None]:
    try:
        yield
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, ImportError, OSError) as error:
        # ml_collections reports an unknown key or variant with whichever of these its lookup met.
        reason = ""
        if config and isinstance(error, (AttributeError, KeyError)):
            reason = _unknown_name(argv, config)
        raise UserError(f"{argv[0]}: {reason or ' '.join(str(error).split())}") from error


def _unknown_name(argv: list[str], config: str) -> str:
    """The message for a setting or variant that is not there; "" when all are."""
    given = [argument.partition("=") for argument in argv]
    for flag, equals, value in given:
        if equals and flag in ("--config", "-config"):
            config = value
    try:
        loaded = ConfigFileFlagParser("config").parse(find_config(config))
    except (AttributeError, KeyError):
        file, _, variant = config.partition(":")
        return f"{file} has no variant {variant!r}"
    known = flatten_settings(loaded.to_dict()) if loaded is not None else {}
    for flag, _, _ in given:
        found = re.fullmatch(r"--?(?:no)?config\.(.+)", flag)
        if found and not any(is_within(key, frozenset([found[1]])) for key in known):
            return unknown_key(found[1], known)
    return ""
