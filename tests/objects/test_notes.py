import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import notes, seen
from dispatch_kubeflow.backend.objects.notes import End, Notes, PodNote
from dispatch_kubeflow.backend.objects.seen import Unreadable
from tests.objects import made
from tests.objects.made import BOOT, NODE_UID, failed, pod, trainjob
from tests.objects.samples import IDENTITY, end, read

texts = st.none() | st.text(min_size=1, max_size=20)
pod_notes = st.builds(
    PodNote,
    uid=st.text(min_size=1, max_size=20),
    name=st.text(max_size=20),
    node=texts,
    node_uid=texts,
    provider_id=texts,
    system_uuid=texts,
    boot_id=texts,
    out_of_service=st.booleans(),
    ends=st.lists(
        st.builds(End, st.text(max_size=9), st.text(max_size=9), st.none() | st.integers(0, 255), texts), max_size=2
    ).map(tuple),
    never_bound=st.booleans(),
    gone=st.booleans(),
)
whole_notes = st.builds(
    Notes,
    version=st.just(1),
    trainjob=st.text(min_size=1, max_size=20),
    from_start=st.booleans(),
    gap=st.booleans(),
    never_opened=st.booleans(),
    settled=st.none() | st.integers(0, 9),
    pods=st.lists(pod_notes, max_size=4, unique_by=lambda note: note.uid).map(tuple),
)


def note(**values):
    return PodNote(**({"uid": "p0-uid", "name": "p0"} | values))


@given(whole_notes)
def test_notes_are_read_as_they_were_written(written):
    assert notes.decode(notes.encode(written)) == written


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"notes": ""},
        {"notes": "[]"},
        {"notes": "{}"},
        {"notes": '{"version":2,"trainjob":"t"}'},
        {"notes": '{"version":1,"trainjob":""}'},
        {"notes": '{"version":1,"trainjob":"t","more":1}'},
        {"notes": '{"version":1,"trainjob":"t","from_start":"yes"}'},
        {"notes": '{"version":1,"trainjob":"t","pods":[{"uid":"1","name":"a"},{"uid":"1","name":"b"}]}'},
        {"notes": '{"version":1,"trainjob":"t","pods":[{"uid":"1","name":"' + "a" * 301 + '"}]}'},
        {"notes": " " * (2 * notes.MOST_BYTES + 1)},
    ],
)
def test_anything_not_exactly_of_their_form_is_unreadable(data):
    assert isinstance(notes.decode(data), Unreadable)


def test_notes_that_would_not_fit_lose_those_not_seen_for_longest_and_say_so():
    pods = tuple(note(uid=f"u{place}", name="x" * 300, node="n" * 300, boot_id="b" * 300) for place in range(1200))
    data = notes.encode(Notes(version=1, trainjob="t", from_start=True, pods=pods))
    found = notes.decode(data)
    assert len(data["notes"]) <= notes.MOST_BYTES
    assert not found.complete
    assert found.gap
    assert found.pods
    assert found.pods[-1].uid == "u1199"


def test_notes_on_a_thousand_pods_fit():
    pods = tuple(
        note(
            uid=f"{place:036}",
            name="x" * 63,
            node="n" * 40,
            node_uid="u" * 36,
            boot_id="b" * 36,
            system_uuid="s" * 36,
            provider_id="p" * 60,
            ends=(End("node", "c" * 77, 0, made.at(1)),),
        )
        for place in range(1000)
    )
    assert notes.decode(notes.encode(Notes(version=1, trainjob="t", from_start=True, pods=pods))).complete


def test_notes_are_complete_only_from_the_start_and_without_a_gap():
    found = notes.begin(trainjob(gate="closed"), gate_closed=True)
    assert found.complete
    assert not found.with_gap().complete
    assert not notes.begin(trainjob(), gate_closed=False).complete


def test_a_note_takes_the_place_of_the_one_on_its_pod():
    found = (
        notes.begin(trainjob(), gate_closed=True).with_pod(note()).with_pod(note(uid="other")).with_pod(note(gone=True))
    )
    assert [(each.uid, each.gone) for each in found.pods] == [("other", False), ("p0-uid", True)]
    assert found.pod("p0-uid").gone
    assert found.pod("missing") is None


def test_the_boot_is_noted_once_a_container_of_this_pod_was_seen_running():
    waiting = pod(phase="Pending", container={"waiting": {"reason": "ContainerCreating"}})
    before = notes.noted(None, waiting, node=made.node())
    assert (before.node, before.node_uid, before.boot_id) == ("node-0", NODE_UID, None)
    after = notes.noted(before, pod(), node=made.node())
    assert (after.boot_id, after.system_uuid, after.provider_id) == (BOOT, "system-a", "provider-a")


def test_the_first_boot_noted_stays():
    first = notes.noted(None, pod(), node=made.node())
    assert notes.noted(first, pod(), node=made.node(boot="boot-b")).boot_id == BOOT


def test_a_node_made_anew_under_the_name_is_not_noted_over_the_old():
    first = notes.noted(None, pod(), node=made.node())
    again = notes.noted(first, pod(deleted_at=3), node=made.node(uid="new", taints=[notes.OUT_OF_SERVICE]))
    assert again == first


def test_another_nodes_state_says_nothing_of_the_pod():
    assert notes.noted(None, pod(), node=made.node("node-9")).boot_id is None


def test_without_its_node_only_the_pod_is_noted():
    assert notes.noted(None, pod()) == note(node="node-0")


def test_the_taint_is_noted_only_while_the_pod_is_deleted():
    tainted = made.node(taints=[notes.OUT_OF_SERVICE])
    assert not notes.noted(None, pod(), node=tainted).out_of_service
    assert notes.noted(None, pod(deleted_at=3), node=tainted).out_of_service
    assert not notes.noted(
        None, pod(deleted_at=3), node=made.node(taints=["node.kubernetes.io/unreachable"])
    ).out_of_service


def test_the_taint_is_read_from_a_real_node():
    raw = end("out-of-service").raw["node"]
    assert notes.out_of_service(read(raw, seen.Node))


def test_the_ends_that_a_kubelet_reported_are_noted():
    found = notes.noted(None, failed(code=3), deleted=True)
    assert found.ends == (End("node", "containerd://1", 3, made.at(10)),)
    assert found.gone


def test_a_deleted_event_whose_container_still_runs_notes_no_end():
    (forced, *_) = [each for each in end("pod-force-deleted").gone if notes.running(each)]
    found = notes.noted(None, forced, deleted=True)
    assert (found.ends, found.gone, found.never_bound) == ((), True, False)


def test_a_pod_deleted_without_a_node_was_never_bound():
    unbound = pod(phase="Pending", container={}, node=None)
    assert notes.noted(None, unbound, deleted=True).never_bound
    assert not notes.noted(None, unbound).never_bound
    assert not notes.noted(note(node="node-0"), unbound, deleted=True).never_bound


def test_the_config_map_carries_our_labels_and_no_owner():
    body = notes.config_map(Notes(version=1, trainjob="t"), IDENTITY, namespace="team-a")
    assert body["metadata"] == {"name": "resnet-1-notes", "namespace": "team-a", "labels": IDENTITY.labels}
    assert json.loads(body["data"]["notes"]) == {"version": 1, "trainjob": "t"}


def test_only_notes_on_this_very_trainjob_count():
    maps = [
        read({"data": {"notes": "rubbish"}}, seen.ConfigMap),
        read({"data": notes.encode(Notes(version=1, trainjob="old"))}, seen.ConfigMap),
        read({"data": notes.encode(Notes(version=1, trainjob="new"))}, seen.ConfigMap),
    ]
    assert notes.of("new", maps) == Notes(version=1, trainjob="new")
    assert notes.of("other", maps) is None


@given(pod_notes, st.booleans())
def test_a_note_is_always_of_a_form_that_is_read_back(before, deleted):
    for seen_pod in (pod(), failed(), pod(node=None), pod("x" * 400)):
        after = notes.noted(msgspec.structs.replace(before), seen_pod, node=made.node(), deleted=deleted)
        written = Notes(version=1, trainjob="t", pods=(after,))
        assert notes.decode(notes.encode(written)) == written
