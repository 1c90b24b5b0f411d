"""Names of the library that are imported when they are first asked for."""

import pytest

import cgmvae
import cgmvae.methods


@pytest.mark.parametrize("package", [cgmvae, cgmvae.methods])
def test_completion_lists_the_public_names_and_each_can_be_had(package):
    assert {*package.__all__} <= {*dir(package)}
    assert "__version__" in dir(cgmvae)
    for name in package.__all__:
        assert getattr(package, name) is not None
