"""A value in an error is shown as its user wrote it."""

from types import MappingProxyType

import pytest

from dispatch_kubeflow.machine.inputs import redacted, shown
from dispatch_kubeflow.machine.strict import frozen


def test_what_was_made_read_only_is_shown_as_plain_data():
    assert shown(frozen({"limits": {"cpu": 2}})) == "{'limits': {'cpu': 2}}"
    assert shown(MappingProxyType({})) == "{}"


@pytest.mark.parametrize(("value", "expected"), [(5, "<redacted> (an int)"), (True, "<redacted> (a bool)")])
def test_a_secret_of_another_type_is_named_by_it(value, expected):
    assert redacted(value) == expected
