"""Whether there is room for a Workload, in which flavors, and who would have to go for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import Amounts, Books, Slot, reserved
from dispatch_kubeflow.backend.embedded.controllers.kueue.pod_sets import total_requests
from dispatch_kubeflow.backend.embedded.controllers.quantities import canonical, value

Object = dict[str, Any]
Mode = Literal["no-fit", "preempt", "fit"]

WITHIN_QUEUE, WITHIN_COHORT = "InClusterQueue", "InCohortReclamation"
_RANK: dict[Mode, int] = {"no-fit": 0, "preempt": 1, "fit": 2}
_BYTES = ("memory", "ephemeral-storage")


@dataclass
class Target:
    """A Workload that has to go, and why it may be sent."""

    workload: Object
    reason: str


@dataclass
class Assignment:
    """The flavors a Workload would get, or what stands in its way."""

    mode: Mode = "fit"
    pod_sets: list[Object] = field(default_factory=list)
    usage: Amounts = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    borrows: bool = False
    """Whether the ClusterQueue would use more than its own."""

    @property
    def message(self) -> str:
        """What stands in its way, pod set by pod set."""
        return "; ".join(self.messages)


def shown(resource: str, amount: Decimal) -> str:
    """An amount as Kueue writes it: CPUs in thousandths, bytes in powers of two, all else in whole numbers."""
    if resource == "cpu":
        return canonical(f"{(amount * 1000).to_integral_value()}m")
    whole = int(amount)
    if resource in _BYTES:
        for power, suffix in ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if whole and whole % (1 << power) == 0:
                return f"{whole >> power}{suffix}"
        return str(whole)
    return canonical(str(whole))


class Ledger:
    """The quotas of a ClusterQueue and its cohort, less what is reserved; Workloads can be taken out and put back."""

    def __init__(self, books: Books, queue: Object) -> None:
        self._books = books
        self.name: str = queue["metadata"]["name"]
        every = [books.cluster_queue(name) for name in books.cohort(self.name)]
        self._queues = {each["metadata"]["name"]: each for each in every if each is not None}
        self._in_cohort = bool(queue["spec"].get("cohortName"))
        self._quotas = {name: _quotas(each) for name, each in self._queues.items()}
        self.used = {name: dict(books.usage(name)) for name in self._queues}

    def nominal(self, name: str, slot: Slot) -> Decimal:
        """The nominal quota of a ClusterQueue."""
        return value(self._quotas[name].get(slot, {}).get("nominalQuota", "0"))

    def _local(self, name: str, slot: Slot) -> Decimal:
        quota = self._quotas[name].get(slot, {})
        if "lendingLimit" not in quota:
            return Decimal(0)
        return max(Decimal(0), self.nominal(name, slot) - value(quota["lendingLimit"]))

    def _spent(self, name: str, slot: Slot) -> Decimal:
        return self.used[name].get(slot, Decimal(0))

    def _shared(self, slot: Slot) -> Decimal:
        return sum((self.nominal(name, slot) - self._local(name, slot) for name in self._queues), Decimal(0))

    def available(self, slot: Slot) -> Decimal:
        """What is left for this ClusterQueue, borrowing included."""
        name = self.name
        if not self._in_cohort:
            return self.nominal(name, slot) - self._spent(name, slot)
        taken = sum(
            (max(Decimal(0), self._spent(each, slot) - self._local(each, slot)) for each in self._queues), Decimal(0)
        )
        above = self._shared(slot) - taken
        quota = self._quotas[name].get(slot, {})
        if "borrowingLimit" in quota:
            stored = self.nominal(name, slot) - self._local(name, slot)
            own = max(Decimal(0), self._spent(name, slot) - self._local(name, slot))
            above = min(above, stored - own + value(quota["borrowingLimit"]))
        return max(Decimal(0), self._local(name, slot) - self._spent(name, slot)) + above

    def most(self, slot: Slot) -> Decimal:
        """What this ClusterQueue could have at most."""
        if not self._in_cohort:
            return self.nominal(self.name, slot)
        found = self._local(self.name, slot) + self._shared(slot)
        quota = self._quotas[self.name].get(slot, {})
        if "borrowingLimit" in quota:
            found = min(found, self.nominal(self.name, slot) + value(quota["borrowingLimit"]))
        return found

    def borrows(self, name: str, slot: Slot) -> bool:
        """Whether a ClusterQueue uses more than its own."""
        return self._spent(name, slot) > self.nominal(name, slot)

    def exceeds(self, slot: Slot, amount: Decimal) -> bool:
        """Whether this ClusterQueue would use more than its own with so much more."""
        return self._spent(self.name, slot) + amount > self.nominal(self.name, slot)

    def fits(self, wanted: Amounts) -> bool:
        """Whether there is room for all of it now."""
        return all(amount <= self.available(slot) for slot, amount in wanted.items())

    def take_out(self, name: str, wl: Object) -> None:
        """As if a Workload were gone."""
        for slot, amount in reserved(wl).items():
            self.used[name][slot] = self._spent(name, slot) - amount

    def put_back(self, name: str, wl: Object) -> None:
        """As if it were there again."""
        for slot, amount in reserved(wl).items():
            self.used[name][slot] = self._spent(name, slot) + amount


def _quotas(queue: Object) -> dict[Slot, Object]:
    return {
        (flavor["name"], quota["name"]): quota
        for group in queue["spec"].get("resourceGroups") or ()
        for flavor in group["flavors"]
        for quota in flavor["resources"]
    }


def assign(books: Books, queue: Object, wl: Object) -> Assignment:
    """The flavors a Workload would get in a ClusterQueue; where it must preempt, whom."""
    ledger = Ledger(books, queue)
    found = Assignment()
    covers = {name: group for group in queue["spec"].get("resourceGroups") or () for name in group["coveredResources"]}
    for index, (name, count, asked) in enumerate(total_requests(wl)):
        wanted = dict(asked)
        if "pods" in covers:
            wanted["pods"] = Decimal(count)
        _assign_pod_set(books, queue, ledger, found, wl["spec"]["podSets"][index], name, count, wanted, covers)
    found.borrows = any(ledger.exceeds(slot, amount) for slot, amount in found.usage.items())
    if found.mode == "preempt":
        found.targets = targets(books, queue, ledger, wl, found.usage)
    return found


def _assign_pod_set(
    books: Books,
    queue: Object,
    ledger: Ledger,
    found: Assignment,
    pod_set: Object,
    name: str,
    count: int,
    wanted: dict[str, Decimal],
    covers: dict[str, Object],
) -> None:
    chosen: dict[str, str] = {}
    reasons: list[str] = []
    mode: Mode = "fit"
    for resource in sorted(wanted):
        if resource in chosen or (resource not in covers and not wanted[resource]):
            continue
        if resource not in covers:
            mode, chosen, reasons = "no-fit", {}, [f"resource {resource} unavailable in ClusterQueue"]
            break
        group = covers[resource]
        asked = {each: amount for each, amount in wanted.items() if each in group["coveredResources"]}
        best, flavor, why = _choose(books, queue, ledger, found.usage, pod_set, group, asked)
        reasons += why if best != "fit" else []
        mode = min(mode, best, key=lambda each: _RANK[each])
        if best == "no-fit":
            chosen = {}
            break
        chosen |= dict.fromkeys(asked, flavor)
    if reasons:
        found.messages.append(f"couldn't assign flavors to pod set {name}: {', '.join(sorted(reasons))}")
    found.mode = min(found.mode, mode, key=lambda each: _RANK[each])
    assigned: Object = {"name": name, "count": count}
    if chosen:
        assigned["flavors"] = dict(sorted(chosen.items()))
        assigned["resourceUsage"] = {each: shown(each, wanted[each]) for each in sorted(chosen)}
    found.pod_sets.append(assigned)
    for each, flavor in chosen.items():
        slot = (flavor, each)
        found.usage[slot] = found.usage.get(slot, Decimal(0)) + wanted[each]


def _choose(
    books: Books,
    queue: Object,
    ledger: Ledger,
    before: Amounts,
    pod_set: Object,
    group: Object,
    asked: dict[str, Decimal],
) -> tuple[Mode, str, list[str]]:
    """The best flavor of a group: the first that has room, else the first for which others could go."""
    best: Mode = "no-fit"
    chosen, reasons = "", []
    fungibility = queue["spec"].get("flavorFungibility") or {}
    stops_to_preempt = fungibility.get("whenCanPreempt") in ("Preempt", "MayStopSearch")
    for flavor in (each["name"] for each in group["flavors"]):
        unfit = _unfit(books, flavor, pod_set)
        if unfit:
            reasons.append(unfit)
            continue
        mode: Mode = "fit"
        for resource in sorted(asked):
            slot = (flavor, resource)
            part, why = _room(queue, ledger, slot, before.get(slot, Decimal(0)), asked[resource])
            if why:
                reasons.append(why)
            mode = min(mode, part, key=lambda each: _RANK[each])
            if mode == "no-fit":
                break
        if _RANK[mode] > _RANK[best]:
            best, chosen = mode, flavor
        if best == "fit" or (best == "preempt" and stops_to_preempt):
            break
    return best, chosen, reasons


def _room(queue: Object, ledger: Ledger, slot: Slot, before: Decimal, asked: Decimal) -> tuple[Mode, str]:
    flavor, resource = slot
    wanted = before + asked
    if wanted > ledger.most(slot):
        return "no-fit", (
            f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
            f"({shown(resource, before)}) + current podset request ({shown(resource, asked)}) > maximum capacity "
            f"({shown(resource, ledger.most(slot))})"
        )
    left = ledger.available(slot)
    if wanted <= left:
        return "fit", ""
    missing = shown(resource, wanted - left)
    said = f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed"
    borrows = ((queue["spec"].get("preemption") or {}).get("borrowWithinCohort") or {}).get("policy", "Never")
    return ("preempt" if wanted <= ledger.nominal(ledger.name, slot) or borrows != "Never" else "no-fit"), said


def _unfit(books: Books, name: str, pod_set: Object) -> str:
    flavor = books.world.view.get(names.RESOURCE_FLAVORS, "", name)
    if flavor is None:
        return f"flavor {name} not found"
    given, pod = flavor.get("spec") or {}, pod_set["template"]["spec"]
    tolerations = [*(pod.get("tolerations") or ()), *(given.get("tolerations") or ())]
    for taint in given.get("nodeTaints") or ():
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            told = f"{{{taint['key']} {taint.get('value', '')} {taint['effect']} <nil>}}"
            return f"untolerated taint {told} in flavor {name}"
    labels = given.get("nodeLabels") or {}
    selector = pod.get("nodeSelector") or {}
    if any(labels[key] != wanted for key, wanted in selector.items() if key in labels):
        return f"flavor {name} doesn't match node affinity"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def targets(books: Books, queue: Object, ledger: Ledger, wl: Object, wanted: Amounts) -> list[Target]:
    """The least that must go so that the Workload fits, by the ClusterQueue's preemption policy; empty if none may."""
    short = [slot for slot, amount in wanted.items() if amount > ledger.available(slot)]
    candidates = [
        (name, Target(each, WITHIN_QUEUE if name == ledger.name else WITHIN_COHORT))
        for name, each in _candidates(books, queue, ledger, wl, wanted, short)
    ]
    gone: list[tuple[str, Target]] = []
    for name, target in candidates:
        if name != ledger.name and not any(ledger.borrows(name, slot) for slot in short):
            continue
        ledger.take_out(name, target.workload)
        gone.append((name, target))
        if ledger.fits(wanted):
            break
    if not gone or not ledger.fits(wanted):
        return []
    for name, target in list(reversed(gone[:-1])):
        ledger.put_back(name, target.workload)
        if ledger.fits(wanted):
            gone.remove((name, target))
        else:
            ledger.take_out(name, target.workload)
    return [target for _, target in gone]


def _candidates(
    books: Books, queue: Object, ledger: Ledger, wl: Object, wanted: Amounts, short: list[Slot]
) -> Iterable[tuple[str, Object]]:
    policy = queue["spec"].get("preemption") or {}
    own, reclaim = policy.get("withinClusterQueue", "Never"), policy.get("reclaimWithinCohort", "Never")
    within = all(
        ledger.used[ledger.name].get(slot, Decimal(0)) + wanted[slot] <= ledger.nominal(ledger.name, slot)
        for slot in short
    )
    found: list[tuple[str, Object]] = []
    for name in books.cohort(ledger.name):
        for each in books.reserving.get(name, {}).values():
            if not any(slot in reserved(each) for slot in short):
                continue
            own_queue = name == ledger.name
            if _may_go(own, wl, each) if own_queue else within and _may_go(reclaim, wl, each):
                found.append((name, each))
    return sorted(found, key=lambda pair: _first_to_go(pair, ledger.name))


def _may_go(policy: str, wl: Object, other: Object) -> bool:
    mine, theirs = workload.priority(wl), workload.priority(other)
    if policy == "Any":
        return True
    if policy == "LowerPriority":
        return theirs < mine
    if policy == "LowerOrNewerEqualPriority":
        newer = other["metadata"]["creationTimestamp"] > wl["metadata"]["creationTimestamp"]
        return theirs < mine or (theirs == mine and newer)
    return False


def _first_to_go(pair: tuple[str, Object], queue: str) -> tuple[bool, bool, int, float, str]:
    name, wl = pair
    since = conditions.need(wl["status"], "QuotaReserved")["lastTransitionTime"]
    return (
        not workload.has(wl, "Evicted"),
        name == queue,
        workload.priority(wl),
        -conditions.parse_stamp(since).timestamp(),
        wl["metadata"]["uid"],
    )
