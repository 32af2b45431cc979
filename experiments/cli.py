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

from experiments import usage
from rmsweb_jax.errors import UserError, user_errors
from rmsweb_jax.processes import bypass_proxy_locally
from rmsweb_jax.settings import Settings, from_config, key_names, safe_keys, unknown_key
from rmsweb_jax.signals import end_at_once
from rmsweb_jax.storage import AnyPath, StorePath, parse_path
from rmsweb_jax.workdir import flatten_settings, is_within, open_run, run_settings

_HELP = frozenset(("--help", "-help", "-h", "--helpshort"))


def run(
    main: Callable[[Any, Any], object],
    config: str,
    settings: type[Settings] | Callable[[ConfigDict], type[Settings]],
    free: bool = False,
    distributed: bool = False,
    uses_jax: bool = False,
) -> None:
    """Reads the command line and calls `main(settings, workdir)`; `--help` prints what can be given.

    A wrong flag or setting ends it before `main`, which imports what takes seconds.

    Args:
      main: the experiment. It gets a folder on disk; where the workdir is in a bucket, the folder appears
        there when `main` has returned.
      config: default config file and variant, for example `configs/sft.py:demo`.
      settings: class of the settings, or which one a config has.
      free: whether all settings may change in a workdir, which then holds no run that goes on; otherwise the
        safe ones.
      distributed: whether it can run on several processes at once (`--distributed`). `main` then gets the
        workdir as it was given, a path of a disk or a bucket, and saves its state there.
      uses_jax: whether `main` imports JAX: a signal then ends the process at once, see `rmsweb_jax.signals`.
    """
    workdir_flag = flags.DEFINE_string("workdir", "", "Folder for everything it writes.")
    join_flag = None
    if distributed:
        join_flag = flags.DEFINE_bool("distributed", False, "Join the other processes of this run (pods).")

    def type_of(values: ConfigDict) -> type[Settings]:
        return settings if isinstance(settings, type) else settings(values)

    def entry(values: ConfigDict) -> None:
        if not workdir_flag.value:
            raise UserError("--workdir is missing: give --workdir=FOLDER for everything that is written")
        read = from_config(type_of(values), values)
        workdir = parse_path(workdir_flag.value, "--workdir")
        join = join_flag is not None and join_flag.value
        if uses_jax:
            end_at_once(continues=not free)
        safe = (key_names if free else safe_keys)(type(read))
        start(main, read, workdir, safe, distributed, join, not free)

    if _HELP.isdisjoint(sys.argv[1:]):
        run_config(entry, config, continues=not free)
    else:
        with user_errors(continues=False):
            print(_help(sys.argv, config, type_of, distributed))


def start(
    main: Callable[[Any, Any], object],
    settings: Settings,
    workdir: AnyPath,
    safe: Iterable[str],
    live: bool,
    join: bool,
    looked_at: bool = True,
) -> None:
    """Opens the workdir and calls `main`; the arguments are those of `run`, and what it has read.

    Args:
      looked_at: whether the workdir holds what the viewer shows.
    """
    view = f"to look at it, also while it runs: python -m experiments.view {workdir}"
    with contextlib.ExitStack() as stack:
        process, hosts = 0, None
        if join:
            # JAX is not for the machines that collect.
            import jax

            from rmsweb_jax.training.distributed import Hosts

            hosts = stack.enter_context(Hosts())
            process = jax.process_index()
        # Now, since it imports what is the user's own, which may use JAX.
        config = run_settings(settings)
        if hosts:
            hosts.agree(config, workdir)
        # The first process opens the workdir, or ends all.
        if hosts and process:
            hosts.meet("workdir")
        folder = stack.enter_context(open_run(workdir, config, safe, process, live, script_name()))
        if hosts and not process:
            hosts.meet("workdir")
        shown = looked_at and not process and isinstance(workdir, Path)
        # A person reads it while the run goes on; in a log, what went wrong stays the only line.
        if shown and sys.stderr.isatty():
            print(view, file=sys.stderr, flush=True)
        main(settings, workdir if live else folder)
        if shown and not sys.stderr.isatty():
            print(view, file=sys.stderr, flush=True)
    if isinstance(workdir, StorePath) and not process:
        print(f"{workdir}: everything is there")


def script_name() -> str:
    """Returns the name of the running script, such as `train_sft`."""
    return Path(sys.argv[0]).stem


def _help(
    argv: list[str], config: str, type_of: Callable[[ConfigDict], type[Settings]], distributed: bool
) -> str:
    for argument in argv:
        if argument.startswith(("--config=", "-config=")):
            config = argument.partition("=")[2]
    with _command_line(argv, config):
        values = ConfigFileFlagParser("config").parse(find_config(config))
    assert isinstance(values, ConfigDict)
    file, _, _ = find_config(config).partition(":")
    lines = {"--config=FILE:VARIANT": f"Config file and variant; these are the defaults of {config}."}
    lines |= {"--workdir=FOLDER": "Folder for everything it writes: on disk, or gs://..., s3://..."}
    lines |= {"--distributed": "Join the other processes of this run (pods)."} if distributed else {}
    lines |= {f"--{flag.name}": flag.help or "" for flag in flags.FLAGS.get_key_flags_for_module(argv[0])}
    lines |= {"--helpfull": "Flags of the libraries, too."}
    about = (sys.modules["__main__"].__doc__ or "").strip()
    return usage.help_text(
        about, lines, usage.load_variants(file), usage.keys_of(type_of(values), values.to_dict())
    )


def run_config(main: Callable[[ConfigDict], None], config: str, continues: bool = False) -> None:
    """Parses `--config` together with the flags that the script has defined, and calls `main(config)`.

    Args:
      config: default config file and variant. `find_config` says where files are looked for.
      continues: whether the same command again goes on after Ctrl-C.
    """

    def entry(argv: list[str]) -> None:
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]!r}: settings are given as --config.key=value")
        main(flag.value)

    with user_errors(continues):
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
        reason = _reason(error, argv, config) if config else ""
        raise UserError(reason or _plainly(" ".join(str(error).split()))) from error


def _plainly(reason: str) -> str:
    """Says what absl says of a flag that is missing, or that is no number, in this project's words."""
    if found := re.match(r"flag --(\w+)=None: ", reason):
        return f"--{found[1]} is missing: see --help"
    if found := re.match(r"flag (--\w+=.*): (?:invalid literal for int|could not convert)", reason):
        return f"{found[1]}: give a number"
    return reason


def _reason(error: Exception, argv: list[str], config: str) -> str:
    """Says what is wrong with a setting or a variant; "" for other errors."""
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
    # ml_collections reports an unknown key or variant with whichever of these its lookup met.
    if isinstance(error, (AttributeError, KeyError)):
        for flag, _, _ in given:
            found = re.fullmatch(r"--?(?:no)?config\.(.+)", flag)
            if found and not any(is_within(key, frozenset([found[1]])) for key in known):
                return unknown_key(found[1], known)
    found = re.match(r"flag --config\.([\w.]+)=(.*?): ", str(error))
    kind = usage.TYPES.get(type(known.get(found[1])), "") if found else ""
    return f"config.{found[1]} is {found[2]!r}: give a {kind}" if found and kind else ""
