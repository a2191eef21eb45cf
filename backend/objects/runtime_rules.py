"""A runtime can make promises impossible: restart a pod and lose its exit code, delete what would prove an end, or
put the evidence where nobody looks. What it may not do is written here as rules, each with a name of its own in the
tables.

A rule that is broken is a `Problem`, never an exception; all of them are found at once, so that a runtime is mended
once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dispatch_kubeflow.machine.values import JobSpec, pod_name_length

from . import names, quantities, runtime_form

Rule = Literal[
    "runtime-form",
    "runtime-trainer-job",
    "runtime-ttl",
    "runtime-managed-by",
    "runtime-subdomain",
    "runtime-failure-policy",
    "runtime-restart-policy",
    "runtime-backoff-limit",
    "runtime-pod-replacement-policy",
    "runtime-mpi",
    "runtime-no-torch",
    "runtime-pod-names",
    "runtime-no-requests",
]

_LONGEST_POD_NAME: Final = 63
_LONGEST_SHOWN: Final = 120
_REPLICATED_JOBS: Final = "template.spec.replicatedJobs"


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a runtime breaks: where in its spec, what stands there, and what the rule asks for.

    Of `runtime-no-torch` the value is the job's `procs_per_node`; the path is what the runtime lacks.
    """

    rule: Rule
    path: str
    value: str
    text: str

    def __str__(self) -> str:
        return f"spec.{self.path} is {self.value}: {self.text}"


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """One replicated job of a runtime's template, with the parts that rules speak of."""

    path: str
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.body.get("name", ""))

    @property
    def job(self) -> Mapping[str, Any]:
        return mapping(self.body, "template", "spec")

    @property
    def pod(self) -> Mapping[str, Any]:
        return mapping(self.job, "template", "spec")

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        return mappings(self.pod.get("containers"))

    @property
    def trains(self) -> bool:
        """Whether its Job template carries Trainer's label of the trainer step."""
        return mapping(self.body, "template", "metadata", "labels").get(names.ANCESTOR) == "trainer"


def mapping(value: object, *path: str) -> Mapping[str, Any]:
    """The mapping at that path, or an empty one."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a list, or none."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def replicated_jobs(spec: Mapping[str, Any]) -> list[ReplicatedJob]:
    """The replicated jobs of a runtime's spec."""
    found = mappings(mapping(spec, "template", "spec").get("replicatedJobs"))
    return [ReplicatedJob(f"{_REPLICATED_JOBS}[{each.get('name', place)}]", each) for place, each in enumerate(found)]


def problems(
    spec: Mapping[str, Any], job: JobSpec, *, mode: Literal["plain", "kueue"], object_name: str | None = None
) -> tuple[Problem, ...]:
    """Every rule that a runtime's spec breaks for this job; `object_name` where it is known, for the names of pods."""
    fault = runtime_form.fault(spec)
    if fault is not None:
        # What is of another form keeps no rule, and breaks none that could be told.
        return (Problem("runtime-form", *fault, "a copy of it could not be made safe"),)
    jobs = replicated_jobs(spec)
    found = [*_kind_of_training(spec, job), *_trainer_job(jobs), *_job_set(mapping(spec, "template", "spec"))]
    for each in jobs:
        found += _job_template(each)
        if object_name is not None and each.name != names.NODE:
            found += _pod_names(each, object_name)
    if mode == "kueue":
        found += _requests(jobs, job)
    return tuple(found)


def _problem(rule: Rule, path: str, value: object, text: str) -> Problem:
    shown = json.dumps(value, sort_keys=True, default=str)
    return Problem(rule, path, shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…", text)


def _kind_of_training(spec: Mapping[str, Any], job: JobSpec) -> Iterator[Problem]:
    policy = mapping(spec, "mlPolicy")
    if policy.get("mpi") is not None:
        yield _problem("runtime-mpi", "mlPolicy.mpi", policy["mpi"], "MPI runtimes are not supported")
    elif job.procs_per_node is not None and policy.get("torch") is None:
        text = "procs_per_node needs a runtime with mlPolicy.torch"
        yield _problem("runtime-no-torch", "mlPolicy.torch", job.procs_per_node, text)


def _trainer_job(jobs: Sequence[ReplicatedJob]) -> Iterator[Problem]:
    trainers = [each for each in jobs if each.trains]
    text = f"exactly one replicated job carries the label {names.ANCESTOR}: trainer, is named {names.NODE} and has a "
    text += f"container {names.NODE}"
    if len(trainers) != 1 or trainers[0].name != names.NODE:
        yield _problem("runtime-trainer-job", _REPLICATED_JOBS, [each.name for each in trainers], text)
        return
    containers = [each.get("name") for each in trainers[0].containers]
    if containers.count(names.NODE) != 1:
        path = f"{trainers[0].path}.template.spec.template.spec.containers"
        yield _problem("runtime-trainer-job", path, containers, text)


def _job_set(job_set: Mapping[str, Any]) -> Iterator[Problem]:
    path = "template.spec"
    yield from _forbidden(job_set, path)
    subdomain = mapping(job_set, "network").get("subdomain")
    if subdomain is not None:
        text = "Trainer takes the TrainJob's name for the address of rank 0"
        yield _problem("runtime-subdomain", f"{path}.network.subdomain", subdomain, text)
    policy = mapping(job_set, "failurePolicy")
    restarts = policy.get("maxRestarts") not in (None, 0)
    actions = [each.get("action") for each in mappings(policy.get("rules"))]
    if restarts or any(action != "FailJobSet" for action in actions):
        text = "a restart deletes what shows why the Jobs failed; only FailJobSet is possible"
        yield _problem("runtime-failure-policy", f"{path}.failurePolicy", policy, text)


def _forbidden(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """What neither a JobSet nor a Job template may set."""
    if spec.get("ttlSecondsAfterFinished") is not None:
        text = "a failed TrainJob whose JobSet is deleted trains again, and its evidence goes"
        yield _problem("runtime-ttl", f"{path}.ttlSecondsAfterFinished", spec["ttlSecondsAfterFinished"], text)
    if spec.get("managedBy") is not None:
        text = "another controller would not keep to what is relied on here"
        yield _problem("runtime-managed-by", f"{path}.managedBy", spec["managedBy"], text)


def _job_template(job: ReplicatedJob) -> Iterator[Problem]:
    path = f"{job.path}.template.spec"
    yield from _forbidden(job.job, path)
    backoff = job.job.get("backoffLimit")
    if backoff is not None and (backoff != 0 or isinstance(backoff, bool)):
        text = "0, or unset: a Job that tries again deletes the pods that show why it failed"
        yield _problem("runtime-backoff-limit", f"{path}.backoffLimit", backoff, text)
    replacement = job.job.get("podReplacementPolicy")
    if replacement not in (None, "Failed"):
        text = "Failed, or unset: another starts new pods beside old ones that still stop"
        yield _problem("runtime-pod-replacement-policy", f"{path}.podReplacementPolicy", replacement, text)
    restart = job.pod.get("restartPolicy")
    if restart not in (None, "Never"):
        text = "Never, or unset: a container restarted in place loses its exit code"
        yield _problem("runtime-restart-policy", f"{path}.template.spec.restartPolicy", restart, text)


def _pod_names(job: ReplicatedJob, object_name: str) -> Iterator[Problem]:
    replicas = _count(job.body.get("replicas"))
    pods = max(_count(job.job.get("completions")), _count(job.job.get("parallelism")))
    length = pod_name_length(object_name, job.name, replicas=replicas, pods=pods)
    if length > _LONGEST_POD_NAME:
        text = f"its pods' names would have {length} characters, and the limit is {_LONGEST_POD_NAME}"
        yield _problem("runtime-pod-names", f"{job.path}.name", job.name, text)


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 1 else 1


def _requests(jobs: Sequence[ReplicatedJob], spec: JobSpec) -> Iterator[Problem]:
    if any(_requests_something(each, spec) for each in jobs):
        return
    text = (
        "Kueue drops the admission check of a job that requests nothing, and starts it; request at least one resource"
    )
    yield _problem("runtime-no-requests", _REPLICATED_JOBS, [each.name for each in jobs], text)


def _requests_something(job: ReplicatedJob, spec: JobSpec) -> bool:
    blocks = [mapping(job.pod, "resources")]
    blocks += [mapping(each, "resources") for each in mappings(job.pod.get("initContainers"))]
    for container in job.containers:
        block = mapping(container, "resources")
        if job.name == names.NODE and container.get("name") == names.NODE:
            block = _merged(block, spec.resources)
        blocks.append(block)
    return any(quantities.is_positive(each) for block in blocks for each in _requested(block).values())


def _merged(runtime: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The runtime's resources with the job's own over them, resource by resource, as Trainer merges them."""
    return {key: {**mapping(runtime, key), **mapping(own, key)} for key in ("limits", "requests")}


def _requested(block: Mapping[str, Any]) -> dict[str, Any]:
    """What a block requests: its requests, and its limits where it has no request of that resource."""
    return {**mapping(block, "limits"), **mapping(block, "requests")}
