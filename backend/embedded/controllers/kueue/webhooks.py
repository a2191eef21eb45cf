"""Kueue's webhooks: every TrainJob meets them, queued or not, and while Kueue is down none can be written."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from dispatch_kubeflow.backend.embedded.admission import Admission, Denial, Operation, Review, Webhook
from dispatch_kubeflow.backend.embedded.controllers.base import World
from dispatch_kubeflow.backend.embedded.controllers.decode import TRAIN_JOB, quantities
from dispatch_kubeflow.backend.embedded.controllers.kinds import TRAIN_JOBS
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import Books
from dispatch_kubeflow.backend.embedded.controllers.kueue.configuration import KueueConfiguration
from dispatch_kubeflow.backend.embedded.controllers.kueue.jobs import queue_name
from dispatch_kubeflow.backend.embedded.controllers.quantities import canonical
from dispatch_kubeflow.backend.embedded.controllers.trainer import RUNTIMES
from dispatch_kubeflow.backend.embedded.controllers.trainer_webhook import aggregate
from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.metadata import subdomain

Object = dict[str, Any]
Answer = Object | Denial | None

LONGEST_GATE = 63
_GATE = f"metadata.annotations[{names.GATED_BY}]"
_PREFIXED = re.compile(r"[^/]+/[^/]+")
_RUNTIME_PATCH: Object = {"manager": names.PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}


class KueueWebhooks:
    """The webhooks of Kueue for TrainJobs and its own kinds."""

    def __init__(self, world: World, admission: Admission, books: Books, configuration: KueueConfiguration) -> None:
        self._world = world
        self._books = books
        self._configuration = configuration
        created: tuple[Operation, ...] = ("CREATE",)
        self._hooks: list[Webhook] = [
            admission.mutating("mtrainjob.kb.io", TRAIN_JOBS, self._default, operations=created),
            admission.validating("vtrainjob.kb.io", TRAIN_JOBS, self._validate),
            admission.validating(
                "vworkload.kb.io", names.WORKLOADS, self._validate_workload, subresources=(None, "status")
            ),
        ]
        for kind, name in ((names.CLUSTER_QUEUES, "clusterqueue"), (names.RESOURCE_FLAVORS, "resourceflavor")):
            self._hooks.append(admission.mutating(f"m{name}.kb.io", kind, self._keep, operations=created))

    def set_down(self, down: bool) -> None:
        """Take the webhooks' server away, or bring it back."""
        for hook in self._hooks:
            hook.down = down

    # TrainJobs.

    def _default(self, review: Review) -> Answer:
        job = _new(review)
        namespace = review.namespace or ""
        selected = self._configuration.manages(namespace)
        if selected and not queue_name(job) and self._books.serves((namespace, names.DEFAULT_QUEUE)):
            labels = job["metadata"].get("labels") or {}
            job["metadata"]["labels"] = {**labels, names.QUEUE_NAME: names.DEFAULT_QUEUE}
        spec = job.setdefault("spec", {})
        unnamed = self._configuration.manage_jobs_without_queue_name and selected
        if queue_name(job) or unnamed:
            spec["suspend"] = True
        spec["runtimePatches"] = [*(spec.get("runtimePatches") or ()), copied(_RUNTIME_PATCH)]
        # Whatever a webhook of Go writes back has its quantities in Kubernetes' own form.
        for place, key in list(quantities(TRAIN_JOB, job)):
            place[key] = canonical(place[key])
        return job

    def _validate(self, review: Review) -> Answer:
        new, old = _new(review), review.old
        faults: list[str] = []
        if old is not None:
            faults += self._update_faults(new, old, review.namespace or "")
            faults += _gate_change_faults(new, old)
        faults += _create_faults(new)
        if faults:
            return Denial(aggregate(faults))
        reference = new["spec"].get("runtimeRef") or {}
        resource = RUNTIMES.get(reference.get("kind", ""))
        if resource is not None:
            namespace = (review.namespace or "") if resource.namespaced else ""
            if self._world.api.get(resource, namespace, reference.get("name", "")) is None:
                return Denial(f"runtime '{reference.get('name', '')}' not found")
        return None

    def _update_faults(self, new: Object, old: Object, namespace: str) -> list[str]:
        faults: list[str] = []
        suspended = bool(new["spec"].get("suspend", False))
        queue = f"metadata.labels[{names.QUEUE_NAME}]"
        if not suspended and queue_name(new) != queue_name(old):
            faults.append(f'{queue}: Invalid value: "{queue_name(new)}": field is immutable')
        if not queue_name(new) and queue_name(old) and self._books.serves((namespace, names.DEFAULT_QUEUE)):
            faults.append(f'{queue}: Invalid value: "": queue-name must not be empty in namespace with default queue')
        seconds = [_label(each, names.MAX_EXEC_TIME) for each in (new, old)]
        if not (suspended and old["spec"].get("suspend", False)) and seconds[0] != seconds[1]:
            path = f"metadata.labels[{names.MAX_EXEC_TIME}]"
            faults.append(f'{path}: Invalid value: "{seconds[0]}": field is immutable')
        now, before = _label(new, names.PRIORITY_CLASS), _label(old, names.PRIORITY_CLASS)
        path = f"metadata.labels[{names.PRIORITY_CLASS}]"
        if not suspended and now and not before:
            what = "WorkloadPriorityClass cannot be added to a non-suspended workload"
            faults.append(f'{path}: Invalid value: "{now}": {what}')
        if before and not now:
            faults.append(f'{path}: Invalid value: "": WorkloadPriorityClass cannot be removed from a workload')
        return faults

    # Its own kinds.

    def _validate_workload(self, review: Review) -> Answer:
        new, old = _new(review), review.old
        faults = _gate_faults(new)
        if old is not None:
            faults += _immutable(new, old)
            faults += _gate_change_faults(new, old)
        return Denial(aggregate(faults)) if faults else None

    def _keep(self, review: Review) -> Answer:
        new = _new(review)
        finalizers = new["metadata"].get("finalizers") or []
        if names.FINALIZER in finalizers:
            return None
        new["metadata"]["finalizers"] = [*finalizers, names.FINALIZER]
        return new


def _label(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(name) or "")


def _create_faults(new: Object) -> list[str]:
    faults: list[str] = []
    labels = new["metadata"].get("labels") or {}
    if names.QUEUE_NAME in labels:
        wrong = subdomain(labels[names.QUEUE_NAME])
        if wrong:
            path = f"metadata.labels[{names.QUEUE_NAME}]"
            faults.append(f'{path}: Invalid value: "{labels[names.QUEUE_NAME]}": {",".join(wrong)}')
    if names.MAX_EXEC_TIME in labels:
        given, path = labels[names.MAX_EXEC_TIME], f"metadata.labels[{names.MAX_EXEC_TIME}]"
        if not re.fullmatch(r"[+-]?\d+", given):
            said = f'strconv.Atoi: parsing "{given}": invalid syntax'
            faults.append(f'{path}: Invalid value: "{given}": {said}')
        elif int(given) <= 0:
            faults.append(f"{path}: Invalid value: {int(given)}: should be greater than 0")
    return faults + _gate_faults(new)


def _gates(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _gate_faults(obj: Object) -> list[str]:
    text = workload.gate(obj)
    if not text:
        return []
    faults: list[str] = []
    seen: set[str] = set()
    for gate in _gates(text):
        if not gate:
            faults.append(f'{_GATE}: Invalid value: "{text}": cannot contain empty gate names')
        elif gate in seen:
            faults.append(f'{_GATE}: Invalid value: "{text}": duplicate gate name: {gate}')
        else:
            seen.add(gate)
            if not _PREFIXED.fullmatch(gate):
                what = 'must be a domain-prefixed path (such as "acme.io/foo")'
                faults.append(f'{_GATE}: Invalid value: "{gate}": {what}')
            if len(gate) > LONGEST_GATE:
                faults.append(f"{_GATE}: Too long: may not be more than {LONGEST_GATE} bytes")
    return faults


def _gate_change_faults(new: Object, old: Object) -> list[str]:
    now, before = workload.gate(new), workload.gate(old)
    if now and not before:
        return [f"{_GATE}: Forbidden: cannot add admission gate after creation"]
    if now and not set(_gates(now)) <= set(_gates(before)):
        return [f"{_GATE}: Forbidden: can only remove gates, not add new ones"]
    return []


def _immutable(new: Object, old: Object) -> list[str]:
    if not workload.has_quota(old):
        return []
    if len(new["spec"]["podSets"]) != len(old["spec"]["podSets"]):
        return [f"spec.podSets: Invalid value: {json.dumps(new['spec']['podSets'])}: field is immutable"]
    return [
        f"spec.podSets.{index}: Invalid value: {json.dumps(now)}: field is immutable"
        for index, (now, before) in enumerate(zip(new["spec"]["podSets"], old["spec"]["podSets"], strict=True))
        if now != before
    ]


def _new(review: Review) -> Object:
    """The object under review: these webhooks are asked about creates and updates only, which have one."""
    return cast("Object", review.new)
