import pytest

from dispatch_kubeflow.backend.objects import evidence, names, notes, resting, seen
from dispatch_kubeflow.backend.objects.notes import End, Notes, PodNote
from tests.objects import made
from tests.objects.made import BOOT, NODE_UID, condition, job, jobset, pod, succeeded, trainjob
from tests.objects.samples import read

COMPLETE = condition("Complete")
FAILED = condition("Failed", reason="FailedJobs")
DEADLINE = condition("Failed", reason="DeadlineExceeded")


def note(**values):
    calm = {
        "uid": "p0-uid",
        "name": "p0",
        "node": "node-0",
        "node_uid": NODE_UID,
        "boot_id": BOOT,
        "system_uuid": "system-a",
        "provider_id": "provider-a",
    }
    return PodNote(**(calm | values))


def noted(*pods, **values):
    return Notes(version=1, trainjob="trainjob-uid", from_start=True, pods=pods, **values)


def facts(pods=(), found_notes=None, **nodes):
    found = evidence.pod_facts(pods, found_notes, {name.replace("_", "-"): node for name, node in nodes.items()})
    return [(each.name, each.end, each.bound, each.boot, each.taint) for each in found]


def test_a_pod_whose_end_is_reported_now():
    (found,) = evidence.pod_facts([succeeded()], None, {})
    assert (found.end, found.source) == ("reported", "cluster")


def test_a_pod_whose_end_was_reported_before_it_went():
    (found,) = evidence.pod_facts([], noted(note(ends=(End("node", "c", 0),), gone=True)), {})
    assert (found.end, found.source) == ("reported", "notes")


@pytest.mark.parametrize(
    "silent",
    [
        pod(),
        pod(deleted_at=3),
        pod(phase="Failed"),
        pod(phase="Failed", container={}),
        pod(container={"terminated": made.ended(0)}),
    ],
)
def test_phase_deletion_and_half_reports_are_no_evidence(silent):
    assert facts([silent]) == [("p0", "not-reported", "may-have", "unknown", "unknown")]


def test_an_absent_pod_that_was_only_seen_running_is_not_shown():
    assert facts([], noted(note(gone=True))) == [("p0", "not-reported", "may-have", "unknown", "unknown")]


@pytest.mark.parametrize(
    ("bound", "pods", "found_note"),
    [
        ("never", [pod(phase="Failed", container={}, node=None)], None),
        ("may-have", [pod(phase="Pending", container={}, node=None)], None),
        ("may-have", [pod(phase="Failed", container={}, node=None)], note()),
        ("never", [], note(node=None, gone=True, never_bound=True)),
        ("may-have", [], note(node=None, never_bound=True)),
        ("may-have", [], note(node=None, gone=True)),
        ("may-have", [], note(gone=True, never_bound=True)),
    ],
)
def test_never_bound_needs_a_terminal_pod_or_its_deleted_event_without_a_node(bound, pods, found_note):
    ((_, _, found, _, _),) = facts(pods, noted(found_note) if found_note else None)
    assert found == bound


@pytest.mark.parametrize(
    ("boot", "found_note", "found_node"),
    [
        ("same", note(), made.node()),
        ("changed", note(), made.node(boot="boot-b")),
        ("unknown", note(), made.node(boot="boot-b", uid="another-node")),
        ("unknown", note(), made.node(boot="boot-b", system="system-b")),
        ("unknown", note(), made.node(boot="boot-b", provider="provider-b")),
        ("unknown", note(), made.node(boot="boot-b", provider=None)),
        ("unknown", note(), made.node(boot=None)),
        ("unknown", note(boot_id=None), made.node(boot="boot-b")),
        ("unknown", note(system_uuid=None), made.node(boot="boot-b", system=None)),
        ("changed", note(provider_id=None), made.node(boot="boot-b", provider=None)),
        ("unknown", note(node_uid=None), made.node(boot="boot-b")),
        ("unknown", note(), None),
    ],
)
def test_a_reboot_is_shown_only_by_the_same_node_object_and_machine(boot, found_note, found_node):
    ((*_, found, _),) = facts([], noted(found_note), node_0=found_node)
    assert found == boot


def test_a_pod_that_was_never_noted_can_show_no_reboot():
    assert facts([pod()], None, node_0=made.node(boot="boot-b")) == [
        ("p0", "not-reported", "may-have", "unknown", "unknown")
    ]


@pytest.mark.parametrize(
    ("taint", "found_note", "found_node"),
    [
        ("set", note(), made.node(taints=[notes.OUT_OF_SERVICE])),
        ("set", note(out_of_service=True), None),
        ("not-set", note(), made.node()),
        ("not-set", note(), made.node(taints=["node.kubernetes.io/unreachable"])),
        ("unknown", note(), made.node(uid="another-node", taints=[notes.OUT_OF_SERVICE])),
        ("unknown", note(), None),
    ],
)
def test_out_of_service_counts_for_the_noted_node_alone(taint, found_note, found_node):
    ((*_, found),) = facts([], noted(found_note), node_0=found_node)
    assert found == taint


def test_a_pod_that_is_there_and_noted_is_one_entry():
    assert [each[0] for each in facts([pod(), pod("p1")], noted(note(), note(uid="p2-uid", name="p2")))] == [
        "p0",
        "p1",
        "p2",
    ]


@pytest.mark.parametrize(
    ("text", "found_note", "found_node"),
    [
        ("node node-0 rebooted: boot boot-a then, boot-b now", note(), made.node(boot="boot-b")),
        ("node node-0 is declared out of service", note(), made.node(taints=[notes.OUT_OF_SERVICE])),
        ("no report that all its containers ended; node node-0 has not rebooted", note(), made.node()),
        ("no report that all its containers ended; node node-0 is another machine now", note(), made.node(system="b")),
        (
            "no report that all its containers ended; node node-0 is not declared out of service",
            note(boot_id=None),
            made.node(),
        ),
        ("it was never bound to a node", note(node=None, gone=True, never_bound=True), None),
    ],
)
def test_the_evidence_says_what_it_rests_on(text, found_note, found_node):
    (found,) = evidence.pod_facts([], noted(found_note), {"node-0": found_node})
    assert found.text == text


def test_only_nodes_that_could_show_something_are_read():
    pods = [
        pod(),
        succeeded("p1", node="node-1"),
        pod("p2", node="node-2"),
        pod("p3", "Failed", container={}, node=None),
    ]
    found = noted(
        note(),
        note(uid="p1-uid", name="p1"),
        note(uid="gone", name="p4", node="node-4"),
        note(uid="x", name="x", node=None),
    )
    assert evidence.nodes_needed(pods, found) == ("node-0", "node-4")
    assert evidence.nodes_needed(pods, None) == ()


@pytest.mark.parametrize(
    ("expected", "found_trainjob", "found_notes", "pods"),
    [
        (True, trainjob(gate="closed", suspend=True), None, []),
        (False, trainjob(gate="closed", suspend=False), None, []),
        (False, trainjob(gate="lifted", suspend=True), None, []),
        (False, trainjob(gate=None, suspend=True), None, []),
        (False, trainjob(gate="closed", suspend=True, generation=2), None, []),
        (False, trainjob(gate="closed", suspend=True, generation=None), None, []),
        (False, trainjob(gate="closed", suspend=True), None, [pod()]),
        (False, trainjob(gate="closed", suspend=True), noted(note()), []),
        (True, None, noted(never_opened=True), []),
        (False, None, noted(), []),
        (False, None, None, []),
        (False, trainjob(), noted(never_opened=True), []),
    ],
)
def test_never_opened_needs_gate_suspend_and_generation_and_no_pod_ever(expected, found_trainjob, found_notes, pods):
    assert evidence.never_opened(found_trainjob, found_notes, pods) is expected


@pytest.mark.parametrize(
    ("expected", "found_notes", "found_trainjob"),
    [
        (True, noted(settled=0), None),
        (True, noted(settled=0), trainjob(generation=5)),
        (True, noted(settled=5), trainjob(generation=5)),
        (False, noted(settled=5), trainjob(generation=6)),
        (False, noted(settled=5), None),
        (False, noted(), None),
        (False, noted(), trainjob(generation=None)),
        (False, noted(settled=0).with_gap(), None),
        (False, Notes(version=1, trainjob="trainjob-uid", settled=0), None),
        (False, None, None),
    ],
)
def test_pods_are_known_completely_only_by_notes_settled_for_the_trainjob_as_it_stands(
    expected, found_notes, found_trainjob
):
    assert evidence.complete(found_notes, found_trainjob) is expected


def may(found_trainjob, *, jobset_fact="this", mode="plain", **below):
    remains = resting.remains(1, jobset=below.get("jobset"), jobs=below.get("jobs", ()), pods=below.get("pods", ()))
    return evidence.may_make_pods(found_trainjob, jobset=jobset_fact, remains=remains, mode=mode)


@pytest.mark.parametrize(
    ("expected", "found_trainjob", "how"),
    [
        (0, None, {}),
        (0, trainjob(suspend=True, gate="closed"), {}),
        (0, trainjob(suspend=True, hold="1/held"), {}),
        (0, trainjob(suspend=True), {}),
        (1, trainjob(), {}),
        (1, trainjob(FAILED), {}),
        (1, trainjob(DEADLINE), {"jobset_fact": "gone"}),
        (0, trainjob(FAILED, suspend=True), {}),
        (0, trainjob(COMPLETE), {}),
        (0, trainjob(COMPLETE), {"jobset_fact": "gone"}),
        (1, trainjob(COMPLETE), {"jobset_fact": "other"}),
        (1, trainjob(COMPLETE, gate="closed"), {"jobset_fact": "gone"}),
        (1, trainjob(suspend=True), {"mode": "kueue"}),
        (0, trainjob(suspend=True, hold="1/held"), {"mode": "kueue"}),
        (0, trainjob(suspend=True, gate="closed"), {"mode": "kueue"}),
        (1, trainjob(suspend=True, gate=None), {"mode": "kueue"}),
        (1, None, {"jobs": [job()]}),
        (1, None, {"jobset": jobset()}),
        (0, None, {"jobs": [job(attempt=2)], "pods": [pod()]}),
    ],
)
def test_what_could_still_make_a_pod(expected, found_trainjob, how):
    assert len(may(found_trainjob, **how)) == expected


def test_a_failed_trainjob_that_is_not_suspended_says_so():
    assert may(trainjob(FAILED)) == ("TrainJob resnet-1 is not suspended, and failed",)


@pytest.mark.parametrize(
    ("free", "found", "annotated"),
    [
        (False, made.workload(gated_by=names.KUEUE_GATE), {}),
        (False, made.workload(), {}),
        (False, made.workload(active=False), {}),
        (True, made.workload(check="Ready"), {}),
        (True, made.workload(check=None), {}),
        (True, made.workload(condition("Admitted")), {}),
        (True, None, {}),
        (False, None, {names.ADMISSION_GATED_BY: names.KUEUE_GATE}),
    ],
)
def test_what_keeps_a_stopped_job_of_kueue_mode_waiting_must_be_there(free, found, annotated):
    annotations = {names.GATE: "closed", names.HOLD: "1/held", **annotated}
    stopped = read(
        {"metadata": {"name": "resnet-1", "annotations": annotations}, "spec": {"suspend": True}}, seen.TrainJob
    )
    queued = evidence.Queued(() if found is None else (found,), "dispatch-hold")
    nothing = resting.remains(1, jobset=None, jobs=(), pods=())
    said = evidence.may_make_pods(stopped, jobset="gone", remains=nothing, mode="kueue", queued=queued)
    assert bool(said) is free
