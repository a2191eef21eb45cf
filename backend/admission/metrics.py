"""What an operator watches of the controller, in the form that Prometheus reads. It needs the extra `admission`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from .controller import Controller

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The controller's observer. Thread-safe."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        prefix = "dispatch_admission"
        self._requests = Counter(
            f"{prefix}_requests", "Requests, but for streams.", ("verb", "resource", "outcome"), registry=registry
        )
        self._decisions = Counter(
            f"{prefix}_decisions", "Decisions on what was read for them, by rule.", ("rule",), registry=registry
        )
        self._writes = Counter(
            f"{prefix}_writes", "Writes, by what they do and what came of them.", ("does", "outcome"), registry=registry
        )
        self._watches = Counter(f"{prefix}_watches", "Watches begun.", ("resource",), registry=registry)
        self._settle = Histogram(
            f"{prefix}_settle_seconds",
            "From a change being seen to its being dealt with, waits and failures included.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._leader = Gauge(f"{prefix}_leader", "1 while this process leads.", registry=registry)
        self._queue = Gauge(f"{prefix}_queue", "Things that are to be looked at, now or later.", registry=registry)
        self._waiting = Gauge(
            f"{prefix}_waiting", "Workloads that wait for pods or controllers to stop.", registry=registry
        )
        self._workloads = Gauge(f"{prefix}_workloads", "Workloads known that carry a check.", registry=registry)

    def requested(self, verb: str, resource: str, outcome: str) -> None:
        self._requests.labels(verb, resource, outcome).inc()

    def decided(self, rule: str) -> None:
        self._decisions.labels(rule).inc()

    def wrote(self, does: str, outcome: str) -> None:
        self._writes.labels(does, outcome).inc()

    def watching(self, resource: str) -> None:
        self._watches.labels(resource).inc()

    def settled(self, seconds: float) -> None:
        self._settle.observe(seconds)

    def text(self, controller: Controller) -> bytes:
        """All of it, as of now."""
        self._leader.set(controller.elector.leading)
        self._queue.set(len(controller.queue))
        self._waiting.set(controller.queue.waiting)
        self._workloads.set(len(controller.watched))
        return generate_latest(self._registry)
