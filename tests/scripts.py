"""Scripts that run in the process of a test, which saves the seconds that a process of their own imports."""

import contextlib
import io
import runpy
import signal
import sys
from collections.abc import Iterator
from subprocess import CompletedProcess

from absl import flags

from rmsweb_jax.signals import STOP_SIGNALS, interrupt_main


def run_script(script: str, *arguments: str) -> CompletedProcess[str]:
    """Runs a file, or a module such as `experiments.mine`; an error with a traceback is raised."""
    code, output, errors, argv = 0, io.StringIO(), io.StringIO(), sys.argv
    sys.argv = [script.rpartition("experiments.")[2], *arguments]
    try:
        with _own_process(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            if script.endswith(".py"):
                runpy.run_path(script, run_name="__main__")
            else:
                runpy.run_module(script, run_name="__main__")
    except SystemExit as ended:
        assert ended.code is None or isinstance(ended.code, int)
        code = ended.code or 0
    finally:
        sys.argv = argv
    return CompletedProcess([script, *arguments], code, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def _own_process() -> Iterator[None]:
    """A script defines flags and handles signals, once for its process."""
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    _forget_flags()  # The tests import other scripts.
    try:
        yield
    finally:
        _forget_flags()
        interrupt_main()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _forget_flags() -> None:
    for name in list(flags.FLAGS):
        module = flags.FLAGS.find_module_defining_flag(name) or ""
        if module == sys.argv[0] or module.startswith("experiments.") or name.partition(".")[0] == "config":
            delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
