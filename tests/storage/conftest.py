"""A bucket of each service, where its server and client are installed."""

import contextlib
import itertools

import pytest

from rmsweb_jax.storage import parse_path
from tests.storage.servers import gcs_command, has_client, s3_command, serve, variables

_COUNTER = itertools.count()


@pytest.fixture(scope="session")
def services(tmp_path_factory):
    """A function that starts a service once, and returns an empty folder of its bucket."""
    running = set()
    with contextlib.ExitStack() as stack:

        def folder(scheme):
            if not (gcs_command() if scheme == "gs" else s3_command()) or not has_client(scheme):
                pytest.skip(f"no {scheme}:// server or client is installed")
            if scheme not in running:
                env = stack.enter_context(serve(scheme, tmp_path_factory.mktemp("store") / "log"))
                stack.enter_context(variables(env))
                running.add(scheme)
            return parse_path(f"{scheme}://runs/test-{next(_COUNTER)}", "--workdir")

        yield folder


@pytest.fixture(params=["gs", "s3"])
def bucket(request, services):
    """An empty folder of a bucket."""
    return services(request.param)


@pytest.fixture
def place(bucket):
    """A store, and a prefix in it."""
    return bucket.store, bucket.key
