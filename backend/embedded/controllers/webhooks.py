"""Webhooks judge with their controller's eyes: its cache may be behind, and while it is down nothing can be written."""

from __future__ import annotations

from typing import Any, cast

from dispatch_kubeflow.backend.embedded.admission import Admission, Denial, Review
from dispatch_kubeflow.backend.embedded.controllers import jobset_webhook, trainer_webhook
from dispatch_kubeflow.backend.embedded.controllers.base import World
from dispatch_kubeflow.backend.embedded.controllers.kinds import CLUSTER_TRAINING_RUNTIMES as CLUSTER_RUNTIMES
from dispatch_kubeflow.backend.embedded.controllers.kinds import JOB_SETS, PODS, TRAIN_JOBS, TRAINING_RUNTIMES, Resource
from dispatch_kubeflow.backend.embedded.controllers.trainer import RUNTIMES

Object = dict[str, Any]
Answer = Object | Denial | None

POD_MUTATOR = "mpod.kb.io"
PRIORITY = "jobset.sigs.k8s.io/priority"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"


class TrainerWebhooks:
    """Trainer's webhooks. `blind` to runtimes: those created while it is on are not seen until it is off again."""

    def __init__(self, world: World, admission: Admission) -> None:
        self._world = world
        self._known: frozenset[str] | None = None
        admission.mutating(trainer_webhook.DEFAULTER, TRAIN_JOBS, self._default)
        admission.validating(trainer_webhook.VALIDATOR, TRAIN_JOBS, self._validate)
        for resource in (TRAINING_RUNTIMES, CLUSTER_RUNTIMES):
            name = trainer_webhook.RUNTIME_VALIDATORS[resource.kind]
            admission.validating(name, resource, self._validate_runtime)

    @property
    def blind(self) -> bool:
        """Whether the webhooks' cache of runtimes stands still."""
        return self._known is not None

    @blind.setter
    def blind(self, blind: bool) -> None:
        present = [runtime for resource in RUNTIMES.values() for runtime in self._world.view.all(resource)]
        self._known = frozenset(runtime["metadata"]["uid"] for runtime in present) if blind else None

    def _default(self, review: Review) -> Answer:
        return trainer_webhook.default_train_job(_new(review), review.old, self._world.now())

    def _validate(self, review: Review) -> Answer:
        new = _new(review)
        jobset = self._world.api.get(JOB_SETS, review.namespace or "", review.name)
        return trainer_webhook.validate_train_job(new, review.old, self._runtime(new), jobset)

    def _runtime(self, job: Object) -> Object | None:
        reference = (job.get("spec") or {}).get("runtimeRef") or {}
        resource: Resource | None = RUNTIMES.get(reference.get("kind", ""))
        if resource is None:
            return None
        namespace = job["metadata"]["namespace"] if resource.namespaced else ""
        runtime = self._world.api.get(resource, namespace, reference["name"])
        if runtime is not None and self._known is not None and runtime["metadata"]["uid"] not in self._known:
            return None
        return runtime

    def _validate_runtime(self, review: Review) -> Answer:
        if review.resource == CLUSTER_RUNTIMES and review.operation == "CREATE":
            review.warnings.extend(trainer_webhook.deprecation(_new(review)))
        return trainer_webhook.validate_runtime(_new(review), review.old)


class JobSetWebhooks:
    """JobSet's webhooks, for JobSets and for the pods of JobSets."""

    def __init__(self, admission: Admission) -> None:
        admission.mutating(jobset_webhook.MUTATOR, JOB_SETS, self._default, operations=("CREATE",), retypes=True)
        admission.validating(jobset_webhook.VALIDATOR, JOB_SETS, self._validate)
        admission.mutating(POD_MUTATOR, PODS, self._default_pod, operations=("CREATE",))

    def _default(self, review: Review) -> Answer:
        return jobset_webhook.default_jobset(_new(review))

    def _validate(self, review: Review) -> Answer:
        return jobset_webhook.validate_jobset(_new(review), review.old)

    def _default_pod(self, review: Review) -> Answer:
        pod = _new(review)
        labels = pod["metadata"].get("labels") or {}
        if JOBSET_NAME not in labels:
            return None
        pod["metadata"]["labels"] = {**labels, PRIORITY: str(pod["spec"].get("priority", 0))}
        return pod


def _new(review: Review) -> Object:
    """The object under review: these webhooks are asked about creates and updates only, which have one."""
    return cast("Object", review.new)
