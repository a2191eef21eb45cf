import random

import pytest

from dispatch_kubeflow.backend.admission.asking import Asker
from dispatch_kubeflow.backend.admission.leading import Elector, LeaseTimes
from dispatch_kubeflow.backend.embedded import Cluster, ScriptedKubelet, VirtualClock
from dispatch_kubeflow.backend.requests.resources import LEASES
from dispatch_kubeflow.machine import Context
from dispatch_kubeflow.machine.rules import rulebook

from .memory import Crash, Memory

NAMESPACE, NAME = "team-a", "lead"


class Counting:
    def __init__(self):
        self.requests = []

    def requested(self, verb, resource, outcome):
        self.requests.append((verb, resource, outcome))


class Stage:
    def __init__(self):
        self.clock = VirtualClock()
        self.cluster = Cluster(nodes=0, kubelet=ScriptedKubelet(), clock=self.clock, seed=1, serve=False)
        self.token = self.cluster.user("elector", [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}
        ])  # fmt: skip
        self.ctx = Context.background(clock=self.clock)

    def elector(self, identity, **times):
        memory = Memory(self.cluster, self.token)
        counting = Counting()
        made = Elector(
            Asker(memory.door(), rulebook(), counting),
            self.clock,
            namespace=NAMESPACE,
            name=NAME,
            identity=identity,
            times=LeaseTimes(**times),
            rng=random.Random(1),
        )
        made.memory, made.counting = memory, counting
        return made

    def lease(self):
        return self.cluster.get(LEASES, NAME, NAMESPACE)["spec"]

    def meddle(self, **spec):
        self.cluster.patch(LEASES, NAME, {"spec": spec}, NAMESPACE)


@pytest.fixture
def stage():
    return Stage()


def test_the_first_makes_the_lease_and_the_second_waits_until_it_has_run_out(stage):
    a, b = stage.elector("a"), stage.elector("b")
    assert a.campaign(stage.ctx) == 2.0
    assert a.leading
    assert stage.lease() | {"acquireTime": 0, "renewTime": 0} == {
        "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0, "acquireTime": 0, "renewTime": 0,
    }  # fmt: skip
    assert 2.0 <= b.campaign(stage.ctx) <= 4.4
    for _ in range(7):
        stage.clock.advance(2)
        b.campaign(stage.ctx)
        assert not b.leading
    assert not a.leading, "it trusts its own lease for less than others do"
    stage.clock.advance(1.1)
    b.campaign(stage.ctx)
    assert b.leading
    assert stage.lease()["holderIdentity"] == "b"
    assert stage.lease()["leaseTransitions"] == 1


def test_a_leader_that_renews_stays_one_with_one_request_each(stage):
    a, b = stage.elector("a"), stage.elector("b")
    a.campaign(stage.ctx)
    acquired = stage.lease()["acquireTime"]
    for _ in range(30):
        stage.clock.advance(2)
        a.campaign(stage.ctx)
        b.campaign(stage.ctx)
        assert a.leading
        assert not b.leading
    assert stage.lease()["acquireTime"] == acquired
    assert stage.lease()["leaseTransitions"] == 0
    assert [verb for verb, _, _ in a.counting.requests] == ["get", "create", *["patch"] * 30]


def test_two_that_come_at_once_do_not_both_lead(stage):
    a, b = stage.elector("a"), stage.elector("b")
    a.memory.before = lambda number: b.campaign(stage.ctx) if number == 1 else None
    a.campaign(stage.ctx)
    assert b.leading
    assert not a.leading
    a.campaign(stage.ctx)
    stage.clock.advance(16)
    a.memory.before = lambda number: b.campaign(stage.ctx) if number == 4 else None
    a.campaign(stage.ctx)
    assert a.counting.requests[-1] == ("patch", "leases", "conflict")
    assert not a.leading, "the one that renewed in between won by the version"
    assert b.leading


def test_a_lease_given_back_is_free_at_once(stage):
    a, b = stage.elector("a"), stage.elector("b")
    a.campaign(stage.ctx)
    a.give_back(stage.ctx)
    assert not a.leading
    assert a.context(stage.ctx) is None
    assert "holderIdentity" not in stage.lease()
    assert stage.lease()["leaseDurationSeconds"] == 1
    b.campaign(stage.ctx)
    assert b.leading
    a.give_back(stage.ctx)
    assert b.leading
    assert stage.lease()["holderIdentity"] == "b"


def test_a_lease_taken_away_ends_the_lead_before_it_would_have_run_out(stage):
    a = stage.elector("a")
    a.campaign(stage.ctx)
    stage.meddle(holderIdentity="operator")
    a.campaign(stage.ctx)  # a conflict: the version is another
    a.campaign(stage.ctx)
    assert not a.leading


def test_an_answer_that_was_lost_is_looked_after_by_a_read(stage):
    a = stage.elector("a")
    a.campaign(stage.ctx)

    def die(number):
        if number == 2:
            raise TimeoutError("timed out")

    a.memory.after = die
    stage.clock.advance(2)
    a.campaign(stage.ctx)
    assert a.leading, "the lease it had still counts"
    stage.clock.advance(2)
    a.campaign(stage.ctx)
    assert [verb for verb, _, _ in a.counting.requests[-3:]] == ["patch", "get", "patch"]
    stage.clock.advance(9)
    assert a.leading


def test_a_renewal_counts_from_before_it_was_sent(stage):
    a = stage.elector("a")
    a.memory.after = lambda number: stage.clock.advance(3) if number == 1 else None
    a.campaign(stage.ctx)
    assert a.context(stage.ctx).remaining() == pytest.approx(7)


def test_without_the_permission_nobody_leads(stage):
    a = stage.elector("a")
    a.memory.token = stage.cluster.user("nobody")
    a.campaign(stage.ctx)
    assert not a.leading
    assert a.counting.requests == [("get", "leases", "denied")]


def test_the_death_of_a_leader_leaves_its_lease_to_run_out(stage):
    a, b = stage.elector("a"), stage.elector("b")

    def die(number):
        if number == 1:
            raise Crash

    a.memory.after = die
    with pytest.raises(Crash):
        a.campaign(stage.ctx)
    b.campaign(stage.ctx)
    assert not b.leading
    stage.clock.advance(15.1)
    b.campaign(stage.ctx)
    assert b.leading


@pytest.mark.parametrize(
    "times", [(15, 15, 2), (15, 10, 9), (0.5, 0.4, 0.1), (15, 10, 0)], ids=lambda each: "-".join(map(str, each))
)
def test_times_that_could_make_two_leaders_are_refused(times):
    assert LeaseTimes(*times).wrong()


def test_the_times_of_client_go_will_do():
    assert LeaseTimes() == LeaseTimes(15, 10, 2)
    assert LeaseTimes().wrong() is None


def test_a_lease_counts_for_others_no_shorter_than_its_holder_trusts_it(stage):
    a = stage.elector("a", duration=1.4, renew_deadline=1.3, retry_period=0.5)
    a.campaign(stage.ctx)
    assert stage.lease()["leaseDurationSeconds"] == 2
