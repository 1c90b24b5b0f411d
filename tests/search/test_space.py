import json

import pytest

from cgmvae.errors import InputError
from cgmvae.methods import REGISTRY
from cgmvae.search import PAPER_SPACE, grid, read_space, sample


def test_the_grid_of_the_paper():
    settings = grid(PAPER_SPACE)
    assert len(settings) == 180
    rates = PAPER_SPACE["learning_rate"]
    assert (rates[0], rates[1], rates[-1], len(rates)) == (0.0001, 0.0003, 0.0039, 20)


def test_a_sample_has_different_settings_of_the_grid():
    space = {"a": (1, 2, 3), "b": (4, 5), "c": ("x",)}
    drawn = sample(space, 5, seed=1)
    assert len({json.dumps(each) for each in drawn}) == 5
    assert all(each in grid(space) for each in drawn)
    assert drawn == sample(space, 5, seed=1)
    assert drawn != sample(space, 5, seed=2)
    assert sample(space, None, 0) == sample(space, 99, 0) == grid(space)
    listed = grid(space)
    assert sample(listed, None, 0) == listed
    assert all(each in listed for each in sample(listed, 2, 0))
    huge = {str(i): tuple(range(10)) for i in range(30)}
    assert len(sample(huge, 3, 0)) == 3
    with pytest.raises(InputError, match="at least 1"):
        sample(space, 0, 0)
    with pytest.raises(InputError, match="no values for 'b'"):
        sample(space | {"b": ()}, None, 0)


def test_every_space_of_the_registry_fits_its_class():
    for method in REGISTRY.values():
        assert method.space.keys() <= method.estimator().get_params().keys()
        assert all(len(values) > 0 for values in method.space.values())


def test_spaces_by_name_and_from_a_file(tmp_path):
    assert read_space("paper") is PAPER_SPACE
    full = read_space("paper-full")
    assert full.items() > PAPER_SPACE.items()
    assert full["embedding_dim"] == (512, 1024, 2048, 3072)
    assert full["contrastive_weight"] == full["cross_entropy_weight"] == (0.1, 0.5, 1, 1.5, 2)
    assert read_space("default", "cgmvae") == REGISTRY["cgmvae"].space
    path = tmp_path / "space.json"
    path.write_text('{"dropout": [0.1, 0.2]}')
    assert read_space(path) == {"dropout": [0.1, 0.2]}
    for text, words in (("{", "not JSON"), ("[]", "one object"), ('{"a": 1}', "one object")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_space(path)
    with pytest.raises(InputError, match="no space 'papper'"):
        read_space("papper")
