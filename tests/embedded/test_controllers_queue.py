"""The machine all controllers share: keys, delays, stops and retries, shown on a controller that only takes notes."""

import threading

import pytest

from dispatch_kubeflow.backend.embedded import Cluster, ScriptedKubelet, VirtualClock
from dispatch_kubeflow.backend.embedded.controllers.base import Controller
from dispatch_kubeflow.backend.embedded.controllers.client import StoreApi
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.kinds import CONFIG_MAPS, EVENTS, NAMESPACES, PODS
from dispatch_kubeflow.backend.embedded.errors import ApiError, unreasoned
from tests.embedded.scene import NAMESPACE, Scene


class Notes(Controller):
    """Notes when which ConfigMap was reconciled; fails as often as it is told to."""

    name = "notes"

    def __init__(self, world):
        super().__init__(world)
        self.taken = []
        self.failures = 0

    def handle(self, change):
        if change.resource == CONFIG_MAPS and change.type != "DELETED":
            self.enqueue(change.place[1])

    def reconcile(self, key):
        self.taken.append((key, round(self.world.clock.monotonic(), 3)))
        if self.failures:
            self.failures -= 1
            raise unreasoned("not now")


@pytest.fixture
def scene():
    with Scene() as scene:
        yield scene


@pytest.fixture
def notes(scene):
    notes = scene.cluster.join(Notes)
    scene.settle()
    return notes


def write(scene, name="a"):
    scene.cluster.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": NAMESPACE}})


def change(scene, name="a"):
    data = {"data": {"at": str(scene.cluster.store.resource_version)}}
    scene.cluster.patch(CONFIG_MAPS, name, data, NAMESPACE)


def test_a_controller_that_joins_sees_what_there_is_already(scene):
    write(scene)
    notes = scene.cluster.join(Notes)
    scene.settle()
    assert notes.taken == [("a", 0.0)]
    assert scene.cluster.controllers["notes"] is notes


def test_many_events_of_one_key_are_one_reconcile(scene, notes):
    write(scene)
    change(scene)
    change(scene)
    scene.settle()
    assert notes.taken == [("a", 0.0)]


def test_lag_delays_each_key_from_its_first_event_on(scene, notes):
    notes.lag = 3.0
    write(scene)
    scene.advance(2)
    change(scene)
    scene.advance(10)
    assert notes.taken == [("a", 3.0)]


def test_of_two_appointments_the_earlier_stands_and_work_at_once_cancels_none(scene, notes):
    notes.enqueue("x", 5.0)
    notes.enqueue("x", 9.0)
    notes.enqueue("x", 2.0)
    notes.enqueue("y", 1.0)
    notes.enqueue("y")
    notes.enqueue("y", 4.0)
    scene.advance(20)
    assert notes.taken == [("y", 0.0), ("y", 1.0), ("x", 2.0)]


def test_while_down_nothing_is_done_and_afterwards_everything_is_looked_at(scene, notes):
    notes.enqueue("never", 1.0)
    notes.enqueue("nor this")
    notes.down = True
    assert notes.down
    write(scene)
    scene.advance(5)
    assert notes.taken == []
    notes.down = False
    scene.advance(5)
    assert notes.taken == [("a", 5.0)]


def test_a_failure_is_tried_again_later_and_later(scene, notes):
    notes.failures = 3
    write(scene)
    scene.advance(1)
    assert notes.taken == [("a", 0.0), ("a", 0.005), ("a", 0.015), ("a", 0.035)]
    notes.failures = 1
    change(scene)
    scene.advance(1)
    assert notes.taken[4:] == [("a", 1.0), ("a", 1.005)]


def test_a_base_controller_says_nothing_by_itself(scene):
    bare = Controller(scene.cluster._manager.world)
    with pytest.raises(NotImplementedError):
        bare.reconcile("x")
    with pytest.raises(NotImplementedError):
        bare.handle(None)


def test_a_delete_of_what_is_gone_or_is_another_now_is_void(scene):
    api = StoreApi(scene.cluster.store)
    write(scene)
    old = scene.get(CONFIG_MAPS, "a")
    scene.cluster.delete(CONFIG_MAPS, "a", NAMESPACE)
    api.delete(CONFIG_MAPS, old)
    write(scene)
    api.delete(CONFIG_MAPS, old)
    assert scene.get(CONFIG_MAPS, "a")["metadata"]["uid"] != old["metadata"]["uid"]
    assert api.get(CONFIG_MAPS, NAMESPACE, "absent") is None


def test_an_event_that_repeats_is_counted_and_one_in_a_dying_namespace_is_dropped(scene):
    recorder = Recorder(scene.cluster._manager.world, "me")
    write(scene)
    about = scene.get(CONFIG_MAPS, "a")
    for _ in range(3):
        recorder.event(about, "Normal", "Reason", "words")
    [event] = scene.cluster.list(EVENTS)
    assert event["count"] == 3
    scene.cluster.delete(EVENTS, event["metadata"]["name"], NAMESPACE)
    recorder.event(about, "Normal", "Reason", "words")
    assert len(scene.cluster.list(EVENTS)) == 1
    scene.cluster.delete(NAMESPACES, NAMESPACE)
    recorder.event(about, "Normal", "Other", "words")
    assert len(scene.cluster.list(EVENTS)) == 1


def test_an_action_is_done_where_the_controllers_run(scene):
    done = []
    scene.cluster.do(lambda: done.append(scene.now))
    assert done == []
    scene.settle()
    assert done == [0.0]


def test_a_webhook_that_is_down_lets_no_pod_of_a_jobset_be_made(scene):
    scene.gate("wd-1")
    scene.cluster.take_down("jobset")
    scene.settle()
    with pytest.raises(ApiError) as caught:
        scene.cluster.create(
            PODS,
            {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
        )
    assert (caught.value.status, caught.value.reason) == (500, "InternalError")


def test_a_release_nobody_has_is_refused():
    with pytest.raises(ValueError, match=r"0\.0\.1"):
        Cluster(clock=VirtualClock(), kubelet=ScriptedKubelet(), serve=False, trainer="0.0.1")


def test_a_controller_that_breaks_stops_neither_the_others_nor_the_cluster():
    class Broken(Controller):
        name = "broken"

        def handle(self, change):
            self.enqueue(change.place)

        def reconcile(self, key):
            raise TypeError(key)

    with Cluster(kubelet=ScriptedKubelet(), serve=False, nodes=0) as cluster:
        cluster.join(Broken)
        done = threading.Event()
        notes = cluster.join(Notes)
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": NAMESPACE}})
        while not notes.taken:
            done.clear()
            cluster.do(done.set)
            assert done.wait(10)
        assert "TypeError" in cluster.failures[0]
