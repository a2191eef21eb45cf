import pytest

from dispatch_kubeflow import backend, machine


@pytest.mark.parametrize("package", [machine, backend])
def test_every_public_name_is_there(package):
    assert all(getattr(package, name) is not None for name in package.__all__)


@pytest.mark.parametrize("package", [machine, backend])
def test_a_name_that_is_not_there_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing
