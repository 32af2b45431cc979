"""Runs a module with leases that others take over sooner.

    python -m tests.storage.short_lease SECONDS MODULE ...

What follows a kill is the same, and a proof of many kills waits less.
"""

import runpy
import sys

from rmsweb_jax.storage import lease

if __name__ == "__main__":
    lease.LEASE_SECONDS = float(sys.argv[1])
    module = sys.argv[2]
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
