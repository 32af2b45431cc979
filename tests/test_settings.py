"""Settings: model to ConfigDict and back, and error messages for wrong keys and values."""

from collections.abc import Mapping
from typing import Literal

import pytest
from ml_collections import ConfigDict
from pydantic import Field

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import (
    Settings,
    from_config,
    internal,
    key_names,
    required,
    safe,
    safe_keys,
    to_config_dict,
    variant_config,
)


class Oven(Settings):
    degrees: int = safe(180, ge=20, lt=300)
    fan: bool = False
    serial: str = internal("none")


class Tin(Settings):
    width: float = 20.0


class Cake(Settings):
    recipe: str = required("the file of the recipe")
    size: Literal["small", "large"] = "small"
    layers: tuple[str, ...] = ("sponge", "cream")
    span: tuple[int, int] = (1, 2)
    weights: Mapping[str, float] = Field({"flour": 0.5})
    oven: Oven = Oven(fan=True)
    tins: tuple[Tin, ...] = (Tin(), Tin(width=24.0))
    helper: Oven | None = None
    minutes: float = 40.0
    table: Tin = safe(Tin())


VARIANTS = {
    "plain": ("",),
    "large": ("", {"size": "large"}, {"oven": {"degrees": 200}, "weights": {"rye": 1.0}}),
}


def test_a_model_is_stated_once_and_read_back():
    config = variant_config(Cake, VARIANTS, "plain")
    assert isinstance(config.oven, ConfigDict) and "serial" not in config.oven
    assert (config.recipe, config.oven.degrees, config.tins[1]["width"]) == ("", 180, 24.0)
    config.recipe = "cake.txt"
    assert from_config(Cake, config) == Cake(recipe="cake.txt")
    assert from_config(Cake, config.to_dict()).oven.serial == "none"
    assert from_config(Cake, {"recipe": "a", "oven": Oven(serial="x")}).oven.serial == "x"
    # An instance's own values.
    assert to_config_dict(Cake(recipe="a", minutes=3.0)).minutes == 3.0


def test_a_variant_holds_only_differences():
    config = variant_config(Cake, VARIANTS, "large")
    assert (config.size, config.oven.degrees, config.oven.fan) == ("large", 200, True)
    assert config.weights.to_dict() == {"rye": 1.0}
    with pytest.raises(UserError, match=r"config\.oven\.degree: did you mean config\.oven\.degrees\?"):
        variant_config(Cake, {"hot": ("", {"oven": {"degree": 1}})}, "hot")


def test_omitted_settings_keep_their_default():
    cake = from_config(Cake, {"recipe": "a", "oven": {"degrees": 90}, "minutes": 50})
    assert cake.oven == Oven(degrees=90, fan=True) and cake.minutes == 50.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layer": ("a",)}, "unknown setting config.layer: did you mean config.layers?"),
        ({"oven": {"fans": 1}}, "unknown setting config.oven.fans: did you mean config.oven.fan?"),
        ({"oven": {"serial": "a"}}, "unknown setting config.oven.serial: use one of config.oven.degrees, "),
        ({"oven": 3}, "config.oven is 3: it is a section; give config.oven.NAME"),
        ({"size": "tall"}, "config.size is 'tall': use one of small, large"),
        ({"oven": {"degrees": "hot"}}, "config.oven.degrees is 'hot': give a whole number"),
        ({"oven": {"degrees": True}}, "config.oven.degrees is True: give a whole number"),
        ({"oven": {"degrees": 10}}, "config.oven.degrees is 10: make it at least 20 and less than 300"),
        ({"oven": {"degrees": 300}}, "config.oven.degrees is 300: make it at least 20 and less than 300"),
        ({"oven": {"fan": 1}}, "config.oven.fan is 1: give True or False"),
        ({"minutes": "long"}, "config.minutes is 'long': give a number"),
        ({"layers": "sponge"}, "config.layers is 'sponge': give it in brackets"),
        ({"layers": (3,)}, "config.layers is 3: give a text"),
        ({"span": (1,)}, "config.span is (1,): give a value for each place"),
        ({"weights": {"rye": "much"}}, "config.weights.rye is 'much': give a number"),
        ({"weights": 1.0}, "config.weights is 1.0: it is a section"),
        ({"tins": ({"depth": 1.0},)}, "unknown setting config.tins.depth"),
        ({"recipe": ""}, "config.recipe is empty: give the file of the recipe"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_setting_is_refused_in_one_line(values, message):
    with pytest.raises(UserError) as error:
        from_config(Cake, {"recipe": "a"} | values)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_names_of_keys():
    assert {"recipe", "oven.degrees", "weights", "table.width"} <= set(key_names(Cake))
    assert "oven.serial" not in key_names(Cake)
    assert set(safe_keys(Cake)) == {"oven.degrees", "table"}


def test_an_unknown_variant_names_the_closest():
    with pytest.raises(UserError, match=r"unknown variant 'lage': did you mean large\?"):
        variant_config(Cake, VARIANTS, "lage")
    with pytest.raises(UserError, match="unknown variant 'xyz': use one of plain, large"):
        variant_config(Cake, VARIANTS, "xyz")
