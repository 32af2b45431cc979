import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.training.identity import identify
from tests.policies import write_corpus


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_bytes(name.encode())
    (folder / "README.md").write_text("Not read by training.")
    return folder


def test_equal_content_is_the_same_run_wherever_it_is(model, tmp_path):
    for name in ("one", "other"):
        write_corpus(tmp_path / name, [1, 2, 3])
    begun = identify(model, {"corpus": tmp_path / "one"})
    (model / "README.md").write_text("Changed.")
    now = identify(model.rename(tmp_path / "moved"), {"corpus": tmp_path / "other"})
    now.check(begun.digests, tmp_path / "run")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_changed_file_of_the_model_is_named(model, tmp_path, name):
    begun = identify(model, {})
    (model / name).write_bytes(name.upper().encode())  # As long as it was.
    with pytest.raises(UserError) as raised:
        identify(model, {}).check(begun.digests, tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}: what this run is made of has changed since it began: base model at {model} ({name}): "
        "put it back, or use another --workdir"
    )


def test_all_that_has_changed_is_in_one_line(model, tmp_path):
    corpus = tmp_path / "corpus"
    write_corpus(corpus, [1, 2, 3])
    begun = identify(model, {"corpus": corpus})
    write_corpus(corpus, [1, 2, 4])
    (model / "merges.txt").write_text("new")
    with pytest.raises(
        UserError, match=r"model \(merges.txt\); corpus at .*corpus \(records\): put"
    ) as raised:
        identify(model, {"corpus": corpus}).check(begun.digests, tmp_path)
    assert "\n" not in str(raised.value)
