"""A virtual display for browsers with a window on machines without a screen: Debian's Xvfb."""

from __future__ import annotations

import os
import select
import shutil
import subprocess

from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent

_START_S = 30.0
# Room for the browser's own bars, in pixels, so that the whole viewport is on the screen.
BARS_HEIGHT = 200


class VirtualDisplay:
    """A running Xvfb; it ends with `close()`, or with the thread that started it.

    Args:
      width, height: of the screen that pages see, in pixels.

    Attributes:
      name: value of DISPLAY.

    Raises:
      UserError: Xvfb is missing or does not start.
    """

    def __init__(self, width: int, height: int) -> None:
        program = shutil.which("Xvfb")
        if program is None:
            raise UserError(
                "config.browser.headed: there is no DISPLAY, and Xvfb is not found; install xvfb (Debian: "
                "apt-get install xvfb), or set DISPLAY"
            )
        screen = f"{width}x{height + BARS_HEIGHT}x24"
        ready, reported = os.pipe()
        with open(ready, "rb", buffering=0) as answer:
            try:
                self._process = subprocess.Popen(
                    [program, "-displayfd", str(reported), "-screen", "0", screen, "-nolisten", "tcp"],
                    pass_fds=(reported,),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    preexec_fn=die_with_parent,
                )
            finally:
                os.close(reported)
            # It closes the pipe without a number if it fails.
            number = answer.readline() if select.select([answer], [], [], _START_S)[0] else b""
        if not number.strip().isdigit():
            self.close()
            raise UserError(f"config.browser.headed: {program} does not start with a screen of {screen}")
        self.name = f":{int(number)}"

    def close(self) -> None:
        """Ends it; to be called after its browser has ended."""
        # It removes its lock when it is asked to end.
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
