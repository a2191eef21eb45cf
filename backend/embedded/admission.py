"""Admission webhooks as in-process callables, answering in the words the real apiserver puts around a webhook's answer.

Trainer, JobSet and Kueue refuse by webhook, so a client's table of refusals is only as true as these words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.errors import ApiError, internal
from dispatch_kubeflow.backend.requests.resources import Resource

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Review:
    """What a webhook is asked about: `old` is None on a create, `new` on a delete. A mutating one may change `new`,
    which is its own; all else is the store's.
    """

    resource: Resource
    operation: Operation
    namespace: str | None
    name: str
    subresource: str | None
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    dry_run: bool
    user: str
    warnings: list[str] = field(default_factory=list)
    """What a webhook says of an object that it lets pass, for the `Warning` header."""


@dataclass(frozen=True, slots=True)
class Denial:
    """A webhook's no.

    `status` 403 `Forbidden` is controller-runtime's answer to a validation error, 422 `Invalid` one wrapped as an API
    status, and 400 without a reason an object that could not be decoded.
    """

    message: str
    status: int = 403
    reason: str = "Forbidden"
    causes: tuple[Mapping[str, str], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def undecodable(message: str) -> Denial:
    """The denial of a webhook that could not decode the object: 400 without a reason."""
    return Denial(message, 400, "")


Call = Callable[[Review], dict[str, Any] | Denial | None]


@dataclass(slots=True)
class Webhook:
    """One registered callable. While `down`, what it would see is answered 500, as with `failurePolicy: Fail`."""

    name: str
    resource: Resource
    call: Call
    operations: tuple[Operation, ...]
    subresources: tuple[str | None, ...]
    down: bool = False
    retypes: bool = False

    def concerns(self, review: Review) -> bool:
        return (
            (self.resource.group, self.resource.plural) == (review.resource.group, review.resource.plural)
            and review.operation in self.operations
            and review.subresource in self.subresources
        )


class Admission:
    """The webhooks of one cluster, mutating ones first and in the order of their names, as the apiserver sorts them."""

    def __init__(self) -> None:
        self._mutating: list[Webhook] = []
        self._validating: list[Webhook] = []
        self._concerned: set[tuple[str, str]] = set()

    def mutating(
        self,
        name: str,
        resource: Resource,
        call: Call,
        *,
        operations: tuple[Operation, ...] = ("CREATE", "UPDATE"),
        subresources: tuple[str | None, ...] = (None,),
        retypes: bool = False,
    ) -> Webhook:
        """Register a webhook that may return a changed object, None for no change, or a `Denial`.

        `retypes`: it writes the object's kind anew, so that an object of another kind passes.
        """
        webhook = Webhook(name, resource, call, operations, subresources, retypes=retypes)
        self._mutating.append(webhook)
        self._concerned.add((resource.group, resource.plural))
        self._mutating.sort(key=lambda hook: hook.name)
        return webhook

    def validating(
        self,
        name: str,
        resource: Resource,
        call: Call,
        *,
        operations: tuple[Operation, ...] = ("CREATE", "UPDATE"),
        subresources: tuple[str | None, ...] = (None,),
    ) -> Webhook:
        """Register a webhook that returns None to allow or a `Denial`; it sees the object as it would be stored."""
        webhook = Webhook(name, resource, call, operations, subresources)
        self._validating.append(webhook)
        self._concerned.add((resource.group, resource.plural))
        return webhook

    def webhooks(self) -> tuple[Webhook, ...]:
        """Every webhook registered, mutating ones first."""
        return (*self._mutating, *self._validating)

    def set_down(self, down: bool, *, group: str | None = None, name: str | None = None) -> None:
        """Take the servers of the webhooks of one API group, or of one name, away or bring them back."""
        for hook in self.webhooks():
            if (group is None or hook.resource.group == group) and (name is None or hook.name == name):
                hook.down = down

    def concerns(self, resource: Resource) -> bool:
        """Whether any webhook is registered for the resource."""
        return (resource.group, resource.plural) in self._concerned

    def mutates(self, resource: Resource, operation: Operation, *, retyping: bool = False) -> bool:
        """Whether a mutating webhook is called for objects of the resource; `retyping`: one that writes their kind."""
        return any(
            (hook.resource.group, hook.resource.plural) == (resource.group, resource.plural)
            and operation in hook.operations
            and (hook.retypes or not retyping)
            for hook in self._mutating
        )

    def mutate(self, review: Review) -> dict[str, Any] | None:
        """The object after every mutating webhook. Raises `ApiError` where one denies or cannot be reached."""
        current = review.new
        for hook in self._mutating:
            if not hook.concerns(review):
                continue
            changed = _answer(
                hook,
                Review(
                    review.resource,
                    review.operation,
                    review.namespace,
                    review.name,
                    review.subresource,
                    review.old,
                    copied(current),
                    review.dry_run,
                    review.user,
                    review.warnings,
                ),
            )
            if changed is not None:
                current = changed
        return current

    def validate(self, review: Review) -> None:
        """Ask every validating webhook. Raises `ApiError` where one denies or cannot be reached."""
        for hook in self._validating:
            if hook.concerns(review):
                _answer(hook, review)


def _answer(hook: Webhook, review: Review) -> dict[str, Any] | None:
    if hook.down:
        raise internal(
            f'failed calling webhook "{hook.name}": failed to call webhook: Post "https://127.0.0.1:9443/'
            f'{hook.name}?timeout=10s": dial tcp 127.0.0.1:9443: connect: connection refused'
        )
    answer = hook.call(review)
    if isinstance(answer, Denial):
        text = f'admission webhook "{hook.name}" denied the request'
        explained = answer.message or answer.reason
        raise ApiError(
            max(answer.status, 400),
            answer.reason,
            f"{text}: {explained}" if explained else f"{text} without explanation",
            details=answer.details,
            causes=answer.causes,
        )
    return answer
