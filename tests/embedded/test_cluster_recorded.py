"""The cluster against what was recorded of a real control plane, answer by answer."""

import pytest

from tests.real.compare import against
from tests.real.record import RECORDED
from tests.real.targets import EmbeddedTarget


@pytest.mark.parametrize("cases", [path.stem for path in sorted(RECORDED.glob("*.json"))])
def test_no_client_could_tell_it_from_the_real_one_by_these_cases(cases):
    target = EmbeddedTarget()
    try:
        found = against(target, cases)
    finally:
        target.close()
    assert [str(each) for each in found] == []


def test_no_client_could_tell_its_kueue_from_the_real_one_by_these_cases():
    target = EmbeddedTarget(kueue=True)
    try:
        found = against(target, "queues/*")
    finally:
        target.close()
    assert [str(each) for each in found] == []
