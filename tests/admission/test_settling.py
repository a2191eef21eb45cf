import pytest

from dispatch_kubeflow.backend.admission.queue import Key
from dispatch_kubeflow.backend.admission.watched import CHECK as CHECKS
from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, TRAIN_JOBS, WORKLOADS
from dispatch_kubeflow.backend.requests.tokens import Credential

from .memory import Crash
from .scene import CHECK, NAMESPACE, STOP_AFTER, Scene, workload_name


@pytest.fixture
def scene():
    return Scene()


@pytest.fixture
def controller(scene):
    process = scene.process().lead()
    process.turn()  # the check's own condition
    return process


@pytest.fixture
def opened(scene, controller):
    """A job that was opened and has its Workload, without quota."""
    name = scene.start()
    scene.record(name, lifted=True)
    scene.workload(name)
    return name


@pytest.fixture
def running(scene, controller, opened):
    scene.reserve(opened)
    controller.turn()
    scene.obey(opened)
    scene.clock.advance(1)
    scene.cluster.settle()
    assert len(scene.pods()) == 2
    return opened


def requests(process):
    return [f"{verb} {what}" for verb, what, _ in process.recorder.requests if what != "leases"]


def test_a_check_of_ours_is_kept_active(scene, controller):
    def active():
        conditions = scene.get(ADMISSION_CHECKS, CHECK)["status"]["conditions"]
        return next(each["status"] for each in conditions if each["type"] == "Active")

    assert active() == "True"
    assert controller.turn() == []
    lost = [{"type": "Active", "status": "False", "reason": "R", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}]  # fmt: skip
    scene.cluster.patch(ADMISSION_CHECKS, CHECK, {"status": {"conditions": lost}}, subresource="status")
    controller.turn()
    assert active() == "True"


def test_a_check_of_another_controller_is_let_alone(scene, controller):
    scene.check("acme", "acme.io/controller")
    controller.turn()
    assert "status" not in scene.get(ADMISSION_CHECKS, "acme")
    assert controller.watched.ours == {CHECK}
    assert controller.watched.check(Key(CHECKS, "", "acme")) is None


def test_a_job_waits_for_the_gate_for_quota_and_then_runs(scene, controller):
    name = scene.start()
    scene.workload(name)
    before = len(requests(controller))
    assert controller.turn() == []
    scene.record(name, lifted=True)
    assert controller.turn() == []
    assert len(requests(controller)) == before, "what has nothing to do asks nothing"
    scene.reserve(name)
    assert controller.turn() == ["admission.start"]
    assert scene.state(name) == "Ready"
    assert requests(controller)[before:] == [
        "get workloads",
        "get trainjobs",
        "list trainjobs",
        "get jobsets",
        "list jobsets",
        "list jobs",
        "list pods",
        "patch workloads/status",
    ]
    scene.obey(name)
    assert controller.turn() == []


def test_a_preempted_job_starts_again_only_once_its_old_pods_have_stopped(scene, controller, running):
    scene.evict(running)
    assert controller.turn() == []
    scene.reserve(running)
    assert controller.turn() == ["admission.start-waits"]
    before = len(requests(controller))
    scene.cluster.advance(STOP_AFTER / 2)
    assert controller.act() == []
    assert requests(controller)[before:] == ["list pods"], "what waits for pods asks for pods alone"
    assert scene.state(running) == "Pending"
    scene.cluster.advance(STOP_AFTER)
    assert controller.act() == ["admission.start"]
    assert scene.state(running) == "Ready"
    assert scene.pods() == []


def test_a_check_is_not_made_ready_in_the_middle_of_an_eviction(scene, controller, running):
    # Kueue resets the check first; quota and admission still stand for some 0.6 s.
    scene.status(running, checks={CHECK: "Pending"}, Evicted="True")
    assert controller.turn() == []
    assert scene.state(running) == "Pending"


def test_a_hold_that_died_between_its_two_writes_is_completed(scene, controller, running):
    scene.record(running, hold="1/held")
    assert controller.turn() == ["admission.hold"]
    assert not scene.active(running)
    assert scene.mark(running) == "1"
    assert controller.turn() == []


def test_a_release_waits_for_the_pods_and_then_makes_the_workload_active(scene, controller, running):
    scene.hold(running, 1)
    scene.evict(running)
    scene.record(running, hold="1/released")
    assert controller.turn() == ["admission.release-waits"]
    assert not scene.active(running)
    scene.cluster.advance(2 * STOP_AFTER)
    assert controller.act() == ["admission.release"]
    assert scene.active(running)
    assert scene.mark(running) is None
    assert scene.state(running) == "Pending", "it needs quota first"
    scene.reserve(running)
    assert controller.turn() == ["admission.start"]


def test_a_deactivation_that_is_not_ours_stays(scene, controller, opened):
    scene.patch(opened, {"spec": {"active": False}})
    scene.record(opened, hold="1/held")
    assert controller.turn() == []
    scene.record(opened, hold="1/released")
    assert controller.turn() == []
    assert not scene.active(opened)
    assert scene.mark(opened) is None


def test_a_hold_that_somebody_undid_on_the_workload_is_enforced_again(scene, controller, opened):
    scene.hold(opened, 2)
    scene.patch(opened, {"spec": {"active": True}})
    assert controller.turn() == ["admission.hold"]
    assert not scene.active(opened)


def test_the_mark_of_a_hold_that_is_over_is_taken_from_an_active_workload(scene, controller, opened):
    scene.hold(opened, 2)
    scene.record(opened, hold="2/released")
    scene.patch(opened, {"spec": {"active": True}})
    assert controller.turn() == ["admission.forget"]
    assert scene.mark(opened) is None
    assert scene.active(opened)


def test_a_workload_made_anew_under_a_hold_is_made_inactive(scene, controller, opened):
    scene.hold(opened, 1)
    scene.cluster.delete(WORKLOADS, workload_name(opened), NAMESPACE)
    scene.workload(opened)
    assert controller.turn() == ["admission.hold"]
    assert not scene.active(opened)


def test_another_attempt_is_held_back_until_the_first_has_stopped(scene, controller, running):
    second = scene.start(attempt=2)
    scene.record(second, lifted=True)
    scene.workload(second)
    scene.reserve(second)
    assert controller.turn() == ["admission.start-waits"]
    scene.cluster.delete(TRAIN_JOBS, running, NAMESPACE)
    scene.cluster.delete(WORKLOADS, workload_name(running), NAMESPACE)
    scene.cluster.settle()
    controller.turn()
    assert scene.state(second) == "Pending"
    scene.cluster.advance(2 * STOP_AFTER)
    assert controller.turn() == ["admission.start"]


def test_of_two_attempts_with_quota_one_alone_is_started(scene, controller, opened):
    second = scene.start(attempt=2)
    scene.record(second, lifted=True)
    scene.workload(second)
    scene.reserve(opened)
    scene.reserve(second)
    assert sorted(controller.turn()) == ["admission.start", "admission.start-waits"]
    assert sorted((scene.state(opened), scene.state(second))) == ["Pending", "Ready"]


def test_two_jobs_do_not_hold_each_other_up(scene, controller, running):
    other = scene.start("fat")
    scene.record(other, lifted=True)
    scene.workload(other)
    scene.reserve(other)
    assert controller.turn() == ["admission.start"]


def test_somebody_elses_workload_is_let_through(scene, controller):
    scene.workload("theirs", owned=False)
    assert controller.turn() == ["admission.not-ours"]
    assert scene.state("theirs") == "Ready"


def test_other_controllers_checks_are_let_alone(scene, controller, opened):
    scene.status(opened, checks={"acme": "Ready", CHECK: "Pending", "other": "Pending"})
    scene.reserve(opened)
    controller.turn()
    assert [scene.state(opened, each) for each in ("acme", CHECK, "other")] == ["Ready", "Ready", "Pending"]


def test_two_checks_of_ours_are_made_ready_together(scene, controller, opened):
    scene.check("second")
    scene.status(opened, checks={CHECK: "Pending", "second": "Pending"})
    scene.reserve(opened)
    controller.turn()
    assert [scene.state(opened, each) for each in (CHECK, "second")] == ["Ready", "Ready"]


def test_a_workload_without_our_check_is_let_alone(scene, controller):
    name = scene.start()
    scene.record(name, lifted=True)
    scene.workload(name, checks=("acme",))
    scene.reserve(name)
    assert controller.turn() == []
    assert len(controller.watched) == 1


def test_a_check_of_ours_that_is_seen_later_brings_up_what_carries_it(scene, controller):
    name = scene.start()
    scene.record(name, lifted=True)
    scene.workload(name, checks=("later",))
    scene.reserve(name)
    assert controller.turn() == []
    scene.check("later")
    assert controller.turn() == ["admission.start"]


def test_requests_grow_with_changes_and_not_with_workloads():
    scene = Scene(judges=False)
    controller = scene.process().lead()
    names_of = [scene.start(f"job{number}") for number in range(30)]
    for name in names_of:
        scene.record(name, lifted=True)
        scene.workload(name)
    controller.turn()
    asked = len(requests(controller))
    assert asked == 2, "the check's own condition"
    for name in names_of[:2]:
        scene.reserve(name)
        controller.turn()
    assert len(requests(controller)) - asked == 2 * 8


def test_a_record_that_cannot_be_read_starts_nothing(scene, controller, opened):
    scene.reserve(opened)
    broken = {"metadata": {"annotations": {names.HOLD: "perhaps"}}}
    scene.cluster.patch(TRAIN_JOBS, opened, broken, NAMESPACE)
    assert controller.turn() == []
    assert scene.state(opened) == "Pending"


def test_what_was_watched_may_be_old_but_what_is_written_is_not(scene, controller, opened):
    scene.reserve(opened)
    controller.see()
    scene.hold(opened, 1)
    assert controller.act() == ["admission.held"]
    assert scene.state(opened) == "Pending"


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_hold_at_any_moment_of_a_start_is_never_overrun(scene, controller, opened, nth):
    scene.reserve(opened)
    controller.see()
    first = len(controller.memory.requests)
    controller.memory.before = lambda number: scene.hold(opened, 1) if number == first + nth else None
    controller.act()
    controller.memory.before = lambda _: None
    assert not scene.active(opened)
    assert scene.state(opened) == "Pending"
    assert ("ready", "ok") not in controller.recorder.writes


@pytest.mark.parametrize("nth", range(1, 9))
def test_of_two_that_both_act_on_a_workload_one_alone_writes(scene, controller, opened, nth):
    """Were the lease ever to fail them, the Workload's version still tells them apart."""
    other = scene.process()
    other.elector.context = lambda ctx: ctx
    scene.reserve(opened)
    controller.see()
    first = len(controller.memory.requests)
    controller.memory.before = lambda number: other.turn() if number == first + nth else None
    controller.act()
    writes = controller.recorder.writes + other.recorder.writes
    assert writes.count(("ready", "ok")) == 1
    assert scene.state(opened) == "Ready"


def test_a_workload_that_is_gone_by_now_is_settled(scene, controller, opened):
    scene.reserve(opened)
    controller.see()
    scene.cluster.delete(WORKLOADS, workload_name(opened), NAMESPACE)
    assert controller.act() == []
    assert len(controller.queue) == 0
    controller.see()
    assert len(controller.watched) == 0


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_request_that_fails_is_tried_again(scene, controller, opened, nth):
    scene.reserve(opened)
    controller.see()
    first = len(controller.memory.requests)

    def fail(number):
        if number == first + nth:
            raise OSError(110, "no route")

    controller.memory.before = fail
    controller.act()
    assert scene.state(opened) == "Pending"
    scene.clock.advance(1)
    controller.act()
    assert scene.state(opened) == "Ready"


@pytest.mark.parametrize("nth", range(1, 10))
def test_beside_another_attempt_too(scene, controller, opened, nth):
    scene.start(attempt=2)
    scene.reserve(opened)
    controller.see()
    first = len(controller.memory.requests)

    def fail(number):
        if number == first + nth:
            raise OSError(110, "no route")

    controller.memory.before = fail
    controller.act()
    assert scene.state(opened) == "Pending"
    scene.clock.advance(1)
    controller.act()
    assert scene.state(opened) == "Ready"


def test_what_waits_and_cannot_be_looked_at_by_its_pods_alone_is_read_whole(scene, controller, running):
    scene.evict(running)
    scene.reserve(running)
    assert controller.turn() == ["admission.start-waits"]
    first = len(controller.memory.requests)

    def fail(number):
        if number == first + 1:
            raise OSError(110, "no route")

    controller.memory.before = fail
    scene.cluster.advance(2 * STOP_AFTER)
    assert controller.act() == ["admission.start"]


def test_a_check_is_served_by_the_leader_alone_and_again_after_a_failure(scene):
    process = scene.process()
    process.turn()
    assert process.recorder.requests == [("get", "admissionchecks", "ok")]
    process.lead()

    def fail(number):
        if number == len(process.memory.requests) - 1 and "admissionchecks" in process.memory.requests[-1]:
            raise OSError(110, "no route")

    process.memory.before = fail
    process.turn()
    assert process.recorder.writes == []
    process.memory.before = lambda _: None
    scene.clock.advance(1)
    process.act()
    assert process.recorder.writes == [("serve", "ok")]


def test_a_check_that_is_gone_by_now_is_settled(scene):
    process = scene.process().lead()
    process.see()
    scene.cluster.delete(ADMISSION_CHECKS, CHECK)
    process.act()
    assert len(process.queue) == 0
    assert process.settler.look(scene.key("gone"), process.ctx) == "settled"
    assert process.settler.look(Key(CHECKS, "", "gone"), process.ctx) == "settled"


def test_who_leads_no_more_writes_nothing(scene, controller, opened):
    scene.reserve(opened)
    controller.see()
    controller.renews = False
    scene.clock.advance(controller.elector.times.renew_deadline)
    assert controller.act() == ["admission.start"]
    assert scene.state(opened) == "Pending"
    assert controller.recorder.writes == [("serve", "ok")]
    # Should it lead again before anybody else does, it goes on from there.
    controller.lead()
    scene.clock.advance(1)
    assert controller.act() == ["admission.start"]
    assert scene.state(opened) == "Ready"


def test_a_lease_that_runs_out_on_the_way_keeps_the_write_from_being_sent(scene, controller, opened):
    scene.reserve(opened)
    controller.see()
    controller.renews = False
    last = len(controller.memory.requests) + 7

    def slow(call):
        if len(controller.memory.requests) == last:
            scene.clock.advance(controller.elector.times.renew_deadline)
        call.left()
        return Credential(f"Bearer {scene.admin}")

    controller.memory.credential = slow
    controller.act()
    assert scene.state(opened) == "Pending"
    assert controller.recorder.writes[-1] == ("ready", "context-ended")


class Lives:
    """One controller after another, the first of which dies before, or just after, its nth write."""

    def __init__(self, crash_at=None, *, after=False):
        self.scene = Scene(judges=False)
        self.crash_at = crash_at
        self.after = after
        self.written = 0
        self.process = self.born()

    def born(self):
        process = self.scene.process()
        process.memory.before = lambda _: self.count(process, after=False)
        process.memory.after = lambda _: self.count(process, after=True)
        return process

    def count(self, process, *, after):
        if not process.memory.requests[-1].startswith("PATCH") or "/leases/" in process.memory.requests[-1]:
            return
        if self.written == self.crash_at and self.after == after:
            self.crash_at = None
            raise Crash
        self.written += after

    def act(self):
        for _ in range(2):
            try:
                self.process.elector.campaign(self.process.ctx)
                if self.process.elector.leading:
                    self.process.turn()
            except Crash:
                self.process = self.born()
                self.process.elector.campaign(self.process.ctx)
                self.scene.cluster.advance(16)
            self.scene.cluster.advance(0.5)


def story(scene, act):
    """A job's life in kueue mode, in which controllers act after each step."""
    name = scene.start()
    scene.workload(name)
    for step in (
        lambda: scene.record(name, lifted=True),
        lambda: scene.reserve(name),
        lambda: scene.obey(name),
        lambda: scene.record(name, hold="1/held"),
        lambda: scene.evict(name),
        lambda: scene.record(name, hold="1/released"),
        lambda: scene.cluster.advance(3 * STOP_AFTER),
        lambda: scene.reserve(name),
        lambda: scene.obey(name),
        lambda: scene.evict(name),
        lambda: scene.reserve(name),
        lambda: scene.cluster.advance(3 * STOP_AFTER),
        lambda: scene.obey(name),
    ):
        step()
        act()
    assert (scene.state(name), scene.active(name), scene.mark(name)) == ("Ready", True, None)
    assert len(scene.pods()) == 2


WRITES = 6
"""The condition of the check; ready, deactivate, activate, ready; ready again after the preemption."""


def test_the_story_has_all_the_writes_there_are():
    lives = Lives()
    story(lives.scene, lives.act)
    assert lives.written == WRITES


# Between two reads nothing of the controller's changes in the cluster: a death there is one before the next write.
# Those of the lease have tests of their own.
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(WRITES))
def test_a_death_between_any_two_requests_is_made_good_by_the_next_life(nth, after):
    lives = Lives(nth, after=after)
    story(lives.scene, lives.act)
    assert lives.scene.processes == 2
