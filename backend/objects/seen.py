"""A watch over a thousand pods must stay small, and a field that is not kept can't be misjudged: so each kind is read
into a frozen struct of the few fields that something here asks for.

Labels and annotations are structs too, of the keys we know; all others are dropped while the JSON is read. Absent
fields are tolerated everywhere, for each controller writes its part of a status at its own time. Times stay text
until one is asked for, as `moment` does it: a zero time is written as null by some kubelets.

`gc=False` is sound: a value read from JSON is a tree, and a frozen tree can't become a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field


class _Kept(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The common form of every struct here."""


class Labels(_Kept, frozen=True, gc=False):
    """The labels that something here asks for; None where the object lacks one."""

    backend: str | None = field(default=None, name="dispatch-kubeflow.io/backend")
    job: str | None = field(default=None, name="dispatch-kubeflow.io/job")
    attempt: str | None = field(default=None, name="dispatch-kubeflow.io/attempt")
    jobset_name: str | None = field(default=None, name="jobset.sigs.k8s.io/jobset-name")
    jobset_uid: str | None = field(default=None, name="jobset.sigs.k8s.io/jobset-uid")
    replicated_job: str | None = field(default=None, name="jobset.sigs.k8s.io/replicatedjob-name")
    job_index: str | None = field(default=None, name="jobset.sigs.k8s.io/job-index")
    completion_index: str | None = field(default=None, name="batch.kubernetes.io/job-completion-index")
    queue: str | None = field(default=None, name="kueue.x-k8s.io/queue-name")
    job_uid: str | None = field(default=None, name="kueue.x-k8s.io/job-uid")


class Annotations(_Kept, frozen=True, gc=False):
    """The annotations that something here asks for; None where the object lacks one."""

    gate: str | None = field(default=None, name="dispatch-kubeflow.io/gate")
    hold: str | None = field(default=None, name="dispatch-kubeflow.io/hold")
    mode: str | None = field(default=None, name="dispatch-kubeflow.io/mode")
    nonce: str | None = field(default=None, name="dispatch-kubeflow.io/nonce")
    digest: str | None = field(default=None, name="dispatch-kubeflow.io/digest")
    held: str | None = field(default=None, name="dispatch-kubeflow.io/held")
    gated_by: str | None = field(default=None, name="kueue.x-k8s.io/admission-gated-by")


class OwnerReference(_Kept, frozen=True, gc=False):
    """One owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(_Kept, frozen=True, gc=False):
    """Who an object is, and whose."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels = Labels()
    annotations: Annotations = Annotations()
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether deletion has begun."""
        return self.deletion_timestamp is not None

    @property
    def created(self) -> datetime | None:
        return moment(self.creation_timestamp)

    @property
    def deletion_asked(self) -> datetime | None:
        """When deletion was asked for: deletionTimestamp lies ahead of it by the grace period. None also for a time
        that no calendar has.
        """
        due = moment(self.deletion_timestamp)
        try:
            return None if due is None else due - timedelta(seconds=self.deletion_grace_period_seconds or 0)
        except OverflowError:
            return None

    def owner(self, kind: str) -> OwnerReference | None:
        """The owner of that kind, the controlling one first."""
        owners = [owner for owner in self.owner_references if owner.kind == kind]
        return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


class Condition(_Kept, frozen=True, gc=False):
    """One condition of a status."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    observed_generation: int | None = None


class RuntimeRef(_Kept, frozen=True, gc=False):
    """Which runtime a TrainJob names."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class TrainJobSpec(_Kept, frozen=True, gc=False):
    """What a TrainJob asks for."""

    suspend: bool = False
    runtime_ref: RuntimeRef = RuntimeRef()


class TrainJobStatus(_Kept, frozen=True, gc=False):
    """What Trainer says of it."""

    conditions: tuple[Condition, ...] = ()


class TrainJob(_Kept, frozen=True, gc=False):
    """A TrainJob as Find and the hold family judge it; digests and read-back use the whole object."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()


class Runtime(_Kept, frozen=True, gc=False):
    """A TrainingRuntime or ClusterTrainingRuntime, without its spec: Find lists them and asks only who they are."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()


class JobSetSpec(_Kept, frozen=True, gc=False):
    """What a JobSet asks for."""

    suspend: bool = False


class JobSetStatus(_Kept, frozen=True, gc=False):
    """What JobSet's controller says of it."""

    conditions: tuple[Condition, ...] = ()


class JobSet(_Kept, frozen=True, gc=False):
    """A JobSet: is it suspended, has it ended."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class JobSpec(_Kept, frozen=True, gc=False):
    """What a Job asks for."""

    suspend: bool = False


class UncountedTerminatedPods(_Kept, frozen=True, gc=False):
    """UIDs of ended pods that the Job has not yet counted."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(_Kept, frozen=True, gc=False):
    """What the Job controller says, and counts."""

    conditions: tuple[Condition, ...] = ()
    active: int = 0
    terminating: int | None = None
    failed: int = 0
    succeeded: int = 0
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(_Kept, frozen=True, gc=False):
    """A Job: can it still make a pod, and how did it fail."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Running(_Kept, frozen=True, gc=False):
    """A container that runs."""

    started_at: str | None = None


class Waiting(_Kept, frozen=True, gc=False):
    """A container that does not run yet, and why."""

    reason: str | None = None
    message: str | None = None


class Terminated(_Kept, frozen=True, gc=False):
    """How a container ended; with a containerID, a kubelet saw it."""

    exit_code: int | None = None
    reason: str | None = None
    container_id: str | None = field(default=None, name="containerID")
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Kept, frozen=True, gc=False):
    """One of the three, or none."""

    running: Running | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Kept, frozen=True, gc=False):
    """What is reported of one container."""

    name: str = ""
    container_id: str | None = field(default=None, name="containerID")
    state: ContainerState = ContainerState()


class Container(_Kept, frozen=True, gc=False):
    """One container of a pod."""

    name: str = ""


class PodSpec(_Kept, frozen=True, gc=False):
    """Where a pod runs, and which containers it has."""

    node_name: str | None = None
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()


class PodStatus(_Kept, frozen=True, gc=False):
    """What kubelet and controllers say of a pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Kept, frozen=True, gc=False):
    """A pod: where it was bound, what its containers do, how it ended."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def container_names(self) -> tuple[str, ...]:
        """The containers that the pod was made with, and those added to it while it ran."""
        spec = self.spec
        return tuple(each.name for each in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers))

    @property
    def container_statuses(self) -> tuple[ContainerStatus, ...]:
        """What was reported of them, in the same order of kinds."""
        status = self.status
        return (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)


class Taint(_Kept, frozen=True, gc=False):
    """One taint of a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class NodeSpec(_Kept, frozen=True, gc=False):
    """A node's machine and its taints."""

    provider_id: str | None = field(default=None, name="providerID")
    taints: tuple[Taint, ...] = ()


class NodeInfo(_Kept, frozen=True, gc=False):
    """Which machine, and which boot of it."""

    boot_id: str | None = field(default=None, name="bootID")
    system_uuid: str | None = field(default=None, name="systemUUID")


class NodeStatus(_Kept, frozen=True, gc=False):
    """What the kubelet says of its node."""

    node_info: NodeInfo = NodeInfo()
    conditions: tuple[Condition, ...] = ()


class Node(_Kept, frozen=True, gc=False):
    """A node: is it the same machine, has it rebooted, was it declared out of service."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class AdmissionCheckState(_Kept, frozen=True, gc=False):
    """One admission check on a Workload."""

    name: str = ""
    state: str = ""
    message: str | None = None


class WorkloadSpec(_Kept, frozen=True, gc=False):
    """Whether Kueue may run it, and from which queue."""

    active: bool = True
    queue_name: str | None = None


class WorkloadStatus(_Kept, frozen=True, gc=False):
    """What Kueue says of it."""

    conditions: tuple[Condition, ...] = ()
    admission_checks: tuple[AdmissionCheckState, ...] = ()


class Workload(_Kept, frozen=True, gc=False):
    """Kueue's side of a queued TrainJob."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class AdmissionCheckSpec(_Kept, frozen=True, gc=False):
    """Which controller answers for a check."""

    controller_name: str = ""


class AdmissionCheckStatus(_Kept, frozen=True, gc=False):
    """What that controller says of it."""

    conditions: tuple[Condition, ...] = ()


class AdmissionCheck(_Kept, frozen=True, gc=False):
    """An AdmissionCheck: whose it is, and whether it is served."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class LocalQueueSpec(_Kept, frozen=True, gc=False):
    """Which ClusterQueue a namespace's queue leads to."""

    cluster_queue: str = ""


class LocalQueue(_Kept, frozen=True, gc=False):
    """A LocalQueue."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: LocalQueueSpec = LocalQueueSpec()


class CheckOfQueue(_Kept, frozen=True, gc=False):
    """One admission check of a ClusterQueue; without `on_flavors` it is asked for every flavor."""

    name: str = ""
    on_flavors: tuple[str, ...] = ()


class ChecksOfQueue(_Kept, frozen=True, gc=False):
    """The admission checks of a ClusterQueue."""

    admission_checks: tuple[CheckOfQueue, ...] = ()


class ClusterQueueSpec(_Kept, frozen=True, gc=False):
    """What a ClusterQueue asks before it admits."""

    admission_checks_strategy: ChecksOfQueue = ChecksOfQueue()


class ClusterQueue(_Kept, frozen=True, gc=False):
    """A ClusterQueue."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: ClusterQueueSpec = ClusterQueueSpec()


class ConfigMap(_Kept, frozen=True, gc=False):
    """Trainer's runtime snapshot, or our notes."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    data: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that is not of the form its kind promises; `problem` says where."""

    problem: str


T = TypeVar("T", bound=Struct)


def read(obj: Mapping[str, Any], kind: type[T]) -> T | Unreadable:
    """The kept fields of an object that came as decoded JSON."""
    try:
        return msgspec.convert(obj, kind)
    except msgspec.ValidationError as problem:
        return Unreadable(str(problem))


def moment(text: str | None) -> datetime | None:
    """A Kubernetes time (RFC 3339) as an aware datetime; None where there is none, or none that can be read."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def condition(conditions: Iterable[Condition], type: str) -> Condition | None:  # noqa: A002 - Kubernetes' word
    """The condition of that type."""
    return next((each for each in conditions if each.type == type), None)


def is_true(conditions: Iterable[Condition], type: str) -> bool:  # noqa: A002 - Kubernetes' word
    """Whether the condition of that type is there and True."""
    found = condition(conditions, type)
    return found is not None and found.status == "True"
