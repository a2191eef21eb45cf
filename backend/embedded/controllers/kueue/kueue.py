"""Kueue as one program: its definitions, webhooks and controllers, put into a cluster and taken down together."""

from __future__ import annotations

from dispatch_kubeflow.backend.embedded.admission import Admission
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import Books
from dispatch_kubeflow.backend.embedded.controllers.kueue.configuration import KueueConfiguration
from dispatch_kubeflow.backend.embedded.controllers.kueue.jobs import KueueJobs
from dispatch_kubeflow.backend.embedded.controllers.kueue.queues import KueueStatuses
from dispatch_kubeflow.backend.embedded.controllers.kueue.scheduler import KueueScheduler
from dispatch_kubeflow.backend.embedded.controllers.kueue.webhooks import KueueWebhooks
from dispatch_kubeflow.backend.embedded.controllers.kueue.workloads import KueueWorkloads


class Kueue:
    """Everything of Kueue in one cluster."""

    def __init__(self, world: World, admission: Admission, configuration: KueueConfiguration) -> None:
        self.configuration = configuration
        self.books = Books(world, configuration)
        self.scheduler = KueueScheduler(world, self.books)
        self.jobs = KueueJobs(world, self.books)
        self.workloads = KueueWorkloads(world, self.books)
        self.statuses = KueueStatuses(world, self.books)
        self.webhooks = KueueWebhooks(world, admission, self.books, configuration)

    @property
    def controllers(self) -> list[Controller]:
        """In the order in which they act; the memory comes first, for the others read it."""
        return [self.books, self.jobs, self.workloads, self.statuses, self.scheduler]
