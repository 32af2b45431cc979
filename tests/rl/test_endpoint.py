import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.config import EndpointConfig
from rmsweb_jax.rl.metrics import check_gap
from rmsweb_jax.settings import from_config

VALUES = {
    "base_url": "http://127.0.0.1:8000/v1/",
    "model": "policy",
    "adapter_folder": "adapters",
    "concurrency": 64,
    "timeout_s": 600.0,
    "api_key_env": "",
    "seeded": True,
    "max_gap": 0.05,
}


@pytest.mark.parametrize("url", ["http://a:1", "http://a:1/", "http://a:1/v1", "http://a:1/v1/"])
def test_the_version_may_be_given(url):
    assert EndpointConfig(**VALUES | {"base_url": url}).root == "http://a:1"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_url", ""),
        ("base_url", "127.0.0.1:8000"),
        ("model", ""),
        ("adapter_folder", ""),
    ],
)
def test_bad_settings_are_one_line(key, value):
    with pytest.raises(UserError, match=rf"^config\.(endpoint\.)?{key} is ") as raised:
        from_config(EndpointConfig, VALUES | {key: value}).check()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("metrics", [{}, {"sampler/gap_mean": 0.0}, {"sampler/gap_mean": 0.05}])
def test_a_small_gap_passes(metrics):
    check_gap(metrics | {"sampler/gap_max": 1.0}, 0.05)


@pytest.mark.parametrize("gap", [0.0501, 1.0, float("nan")])
def test_a_large_gap_stops_the_run(gap):
    with pytest.raises(UserError, match=r"more than config\.endpoint\.max_gap \(0\.05\): check that"):
        check_gap({"sampler/gap_mean": gap}, 0.05)
