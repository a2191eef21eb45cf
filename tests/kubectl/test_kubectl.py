"""What people type at a cluster: the real kubectl gets, describes, creates, applies, patches, deletes and watches."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.requests.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from tests.real.training import SOURCE, hardened, train_job

from .conftest import NAMESPACE, Kubectl

# The first test builds kubectl where it is missing.
pytestmark = pytest.mark.timeout(3600, func_only=True)
FOREVER = {"kubelet.test/runs": "forever", "kubelet.test/stops": "0s"}


@pytest.fixture
def name() -> str:
    return f"job-{uuid.uuid4().hex[:6]}"


def job(cluster: Cluster, name: str, *, suspend: bool = True) -> dict[str, Any]:
    """A TrainJob, and its runtime on the cluster."""
    source = cluster.get(CLUSTER_TRAINING_RUNTIMES, SOURCE)
    assert source is not None
    cluster.create(TRAINING_RUNTIMES, hardened(source, name, FOREVER), NAMESPACE)
    return train_job(name, suspend=suspend)


def created(kubectl: Kubectl, cluster: Cluster, name: str, *, suspend: bool = True) -> None:
    kubectl.run("create", "-f", "-", given=job(cluster, name, suspend=suspend))
    if suspend:
        kubectl.run("wait", f"trainjob/{name}", "--for=condition=Suspended", "--timeout=30s")


def running(kubectl: Kubectl, cluster: Cluster, name: str) -> str:
    """Runs a job of two pods, and gives the selector by which they are found."""
    created(kubectl, cluster, name, suspend=False)
    kubectl.run("wait", f"job/{name}-node-0", "--for=jsonpath={.status.ready}=2", "--timeout=30s")
    return f"jobset.sigs.k8s.io/jobset-name={name}"


def test_version_says_the_version_that_the_real_one_is_compared_at(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.3" in kubectl.run("version")


def test_whoami_says_whose_token_it_is(kubectl: Kubectl) -> None:
    assert "system:authenticated" in kubectl.run("auth", "whoami")


def test_a_config_map_is_created_from_its_arguments(kubectl: Kubectl, name: str) -> None:
    assert "created" in kubectl.run("create", "configmap", name, "--from-literal=a=b")
    assert kubectl.run("get", "configmap", name, "-o", "jsonpath={.data.a}") == "b"


def test_a_bare_job_and_a_bare_pod_are_created_from_their_arguments(kubectl: Kubectl, name: str) -> None:
    assert "created" in kubectl.run("create", "job", name, "--image=i:1", "--", "sleep", "1")
    assert kubectl.run("get", "job", name, "-o", "jsonpath={.spec.template.spec.containers[0].command[0]}") == "sleep"
    assert "created" in kubectl.run("run", name, "--image=i:1", "--restart=Never", "--env=A=b")
    assert kubectl.run("get", "pod", name, "-o", "jsonpath={.spec.containers[0].env[0].value}") == "b"


def test_api_resources_lists_the_kinds_with_their_short_names(kubectl: Kubectl) -> None:
    listed = kubectl.run("api-resources", "--no-headers")
    for kind in ("trainjobs", "trainingruntimes", "jobsets", "jobs", "pods", "configmaps"):
        assert kind in listed


def test_created_and_got_by_its_name_and_in_a_list(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    created(kubectl, cluster, name)
    assert kubectl.rows("get", "trainjob", name)[0] == ["NAME", "STATE", "AGE"]
    assert kubectl.rows("get", "trainjobs", name)[1][:2] == [name, "Suspended"]
    assert kubectl.rows("get", "jobsets", name)[1][:5] == [name, "", "0", "", "true"]
    read = json.loads(kubectl.run("get", "trainjob", name, "-o", "json"))
    assert (read["kind"], read["spec"]["suspend"]) == ("TrainJob", True)


def test_a_create_of_what_exists_is_refused(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    created(kubectl, cluster, name)
    assert "AlreadyExists" in kubectl.run("create", "-f", "-", given=train_job(name), code=1)


def test_a_field_that_does_not_exist_is_refused_by_the_server(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    described = job(cluster, name)
    described["spec"]["nonsense"] = 1
    assert 'unknown field "spec.nonsense"' in kubectl.run("create", "-f", "-", given=described, code=1)


def test_a_dry_run_on_the_server_creates_nothing(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    assert "(server dry run)" in kubectl.run("create", "-f", "-", "--dry-run=server", given=job(cluster, name))
    assert kubectl.run("get", "trainjob", name, "--ignore-not-found") == ""


def test_wide_tables_show_where_pods_run_and_what_jobs_are_made_of(
    kubectl: Kubectl, cluster: Cluster, name: str
) -> None:
    selector = running(kubectl, cluster, name)
    head, *pods = kubectl.rows("get", "pods", "-l", selector, "-o", "wide")
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert [row[1:4] for row in pods] == [["1/1", "Running", "0"]] * 2
    assert {row[6] for row in pods} <= {"node-0", "node-1"}
    head, (row) = kubectl.rows("get", "job", f"{name}-node-0", "-o", "wide")
    assert head == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert row[1:3] == ["Running", "0/2"]
    nodes = kubectl.rows("get", "nodes")
    assert nodes[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert nodes[1][:3] == ["node-0", "Ready", "<none>"]


def test_get_all_shows_the_parts_of_a_job(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    running(kubectl, cluster, name)
    shown = kubectl.run("get", "all")
    for part in (f"pod/{name}-node-0-0-", f"pod/{name}-node-0-1-", f"service/{name} ", f"job.batch/{name}-node-0 "):
        assert part in shown


def test_describe_tells_of_a_job_its_pods_and_events(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    selector = running(kubectl, cluster, name)
    assert "Num Nodes:" in kubectl.run("describe", "trainjob", name)
    assert "SuccessfulCreate" in kubectl.run("describe", "job", f"{name}-node-0")
    assert "State:          Running" in kubectl.run("describe", "pods", "-l", selector)
    assert "Ready True" in " ".join(kubectl.run("describe", "node", "node-0").split())


def test_apply_creates_then_changes_then_leaves_alone(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    described = job(cluster, name)
    assert "created" in kubectl.run("apply", "-f", "-", given=described)
    described["metadata"]["labels"] = {"team": "vision"}
    assert "configured" in kubectl.run("apply", "-f", "-", given=described)
    assert "unchanged" in kubectl.run("apply", "-f", "-", given=described)
    del described["metadata"]["labels"]
    assert "configured" in kubectl.run("apply", "-f", "-", given=described)
    assert kubectl.run("get", "trainjob", name, "-o", "jsonpath={.metadata.labels}") == ""


def test_a_server_side_apply_of_anothers_field_conflicts_until_it_is_forced(
    kubectl: Kubectl, cluster: Cluster, name: str
) -> None:
    described = job(cluster, name)
    kubectl.run("apply", "--server-side", "--field-manager=one", "-f", "-", given=described)
    described["spec"]["suspend"] = False
    two = ("apply", "--server-side", "--field-manager=two", "-f", "-")
    assert 'conflict with "one"' in kubectl.run(*two, given=described, code=1)
    assert "serverside-applied" in kubectl.run(*two, "--force-conflicts", given=described)


@pytest.mark.parametrize(
    ("sort", "patch"),
    [("merge", '{"spec":{"suspend":false}}'), ("json", '[{"op":"replace","path":"/spec/suspend","value":false}]')],
)
def test_patch_opens_a_job(kubectl: Kubectl, cluster: Cluster, name: str, sort: str, patch: str) -> None:
    created(kubectl, cluster, name)
    kubectl.run("patch", "trainjob", name, f"--type={sort}", "-p", patch)
    kubectl.run("wait", f"trainjob/{name}", "--for=condition=Suspended=false", "--timeout=30s")


def test_labels_and_annotations_are_set_and_taken_away(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    created(kubectl, cluster, name)
    kubectl.run("label", "trainjob", name, "a=b")
    kubectl.run("annotate", "trainjob", name, "c=d")
    assert kubectl.run("get", "trainjobs", "-l", "a=b", "-o", "name").strip().endswith(name)
    kubectl.run("label", "trainjob", name, "a-")
    assert kubectl.run("get", "trainjobs", "-l", "a=b", "-o", "name") == ""


def test_delete_takes_everything_with_it_and_waits(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    selector = running(kubectl, cluster, name)
    kubectl.run("delete", "trainjob", name, "--wait=true")
    kubectl.run("wait", "pods", "-l", selector, "--for=delete", "--timeout=30s")
    assert "NotFound" in kubectl.run("get", "jobset", name, code=1)


def test_delete_orphaning_leaves_the_job_set_running(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    selector = running(kubectl, cluster, name)
    kubectl.run("delete", "trainjob", name, "--cascade=orphan")
    assert "NotFound" in kubectl.run("get", "trainjob", name, code=1)
    read = json.loads(kubectl.run("get", "jobset", name, "-o", "json"))
    assert "ownerReferences" not in read["metadata"]
    assert len(kubectl.run("get", "pods", "-l", selector, "-o", "name").split()) == 2


def test_watch_shows_each_change_as_it_comes(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    created(kubectl, cluster, name)
    watching = kubectl.start("get", "trainjobs", "--field-selector", f"metadata.name={name}", "--watch", "--no-headers")
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:2] == [name, "Suspended"]
        kubectl.run("label", "trainjob", name, "a=b")
        assert watching.stdout.readline().split()[:2] == [name, "Suspended"]
    finally:
        watching.kill()
        watching.communicate()


def test_logs_of_one_pod_of_all_and_followed(kubectl: Kubectl, cluster: Cluster, name: str) -> None:
    selector = running(kubectl, cluster, name)
    first, second = (
        each.removeprefix("pod/") for each in kubectl.run("get", "pods", "-l", selector, "-o", "name").split()
    )
    for pod in (first, second):
        uid = kubectl.run("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
        cluster.do(lambda uid=uid: cluster.kubelet.say(uid, "node", "epoch 1"))  # type: ignore[attr-defined, misc]
    following = kubectl.start("logs", first, "--follow")
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "epoch 1\n"
        uid = kubectl.run("get", "pod", first, "-o", "jsonpath={.metadata.uid}")
        cluster.do(lambda: cluster.kubelet.say(uid, "node", "epoch 2"))  # type: ignore[attr-defined]
        assert following.stdout.readline() == "epoch 2\n"
    finally:
        following.kill()
        following.communicate()
    assert kubectl.run("logs", first, "--tail=1") == "epoch 2\n"
    assert f"[pod/{second}/node] epoch 1" in kubectl.run("logs", "-l", selector, "--prefix")


def test_auth_can_i_answers_by_rbac(kubectl: Kubectl, cluster: Cluster) -> None:
    rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["get", "list"]}]
    cluster.user("reader", rules)
    reader = Kubectl(kubectl.program, cluster.kubeconfig(kubectl.folder / "reader", "reader"), kubectl.folder)
    assert kubectl.run("auth", "can-i", "create", "trainjobs") == "yes\n"
    assert reader.run("auth", "can-i", "list", "trainjobs") == "yes\n"
    assert "no" in reader.run("auth", "can-i", "create", "trainjobs", code=1)
    assert "no" in reader.run("auth", "can-i", "get", "pods/log", code=1)
    assert "trainjobs.trainer.kubeflow.org" in reader.run("auth", "can-i", "--list")
    assert "Forbidden" in reader.run("get", "pods", code=1)


def test_explain_reads_the_schema(kubectl: Kubectl) -> None:
    told = kubectl.run("explain", "trainjob.spec.trainer.numNodes")
    assert "FIELD: numNodes <integer>" in told
