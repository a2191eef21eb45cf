"""What the objects of kueue mode that an administrator makes show of a job's gate and hold."""

import pytest

from dispatch_kubeflow.backend.objects import names, queues, seen
from tests.objects.made import condition
from tests.objects.samples import read

CHECK = "dispatch-hold"


def queue(*checks):
    spec = {"admissionChecksStrategy": {"admissionChecks": list(checks)}} if checks else {}
    return read({"metadata": {"name": "cq"}, "spec": spec}, seen.ClusterQueue)


def check(*conditions, controller=names.CHECK_CONTROLLER, **metadata):
    obj = {
        "metadata": {"name": CHECK, "generation": 1, **metadata},
        "spec": {"controllerName": controller},
        "status": {"conditions": [{**each, "observedGeneration": 1} for each in conditions]},
    }
    return read(obj, seen.AdmissionCheck)


@pytest.mark.parametrize(
    ("checks", "listed"),
    [
        ([], "no"),
        ([{"name": "another"}], "no"),
        ([{"name": "another", "onFlavors": ["a"]}, {"name": CHECK}], "every-flavor"),
        ([{"name": CHECK, "onFlavors": []}], "every-flavor"),
        ([{"name": CHECK, "onFlavors": ["a"]}], "some-flavors"),
    ],
)
def test_a_queue_lists_our_check_for_no_for_some_or_for_every_flavor(checks, listed):
    assert queues.lists(queue(*checks), CHECK) == listed


def test_a_local_queue_leads_to_its_cluster_queue():
    found = read({"metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}, seen.LocalQueue)
    assert found.spec.cluster_queue == "cq"


@pytest.mark.parametrize(
    ("found", "shown", "said"),
    [
        (check(condition("Active", reason="Here")), "active", "Active True, Here"),
        (check(condition("Active", "False", "Gone")), "inactive", "Active False, Gone"),
        (check(condition("Active", "Unknown")), "inactive", "Active Unknown, without a reason"),
        (check(), "inactive", "its controller has not said that it is there"),
        (
            check(condition("Active"), deletionTimestamp="2026-11-29T21:44:47Z"),
            "inactive",
            "being deleted",
        ),
        (check(condition("Active", reason="x"), controller="acme.io/x"), "not-ours", "Active True, x"),
    ],
)
def test_a_check_is_active_where_our_controller_says_so(found, shown, said):
    assert (queues.shown(found), queues.said(found)) == (shown, said)
