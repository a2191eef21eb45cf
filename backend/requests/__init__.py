"""The request layer: the only door to the network, and the only place that knows whether something was sent.

Light to import: the official client is loaded with a configuration, by `kubeconfig.load` or `Door`.
"""

from .access import AccessProblem, ClusterAccess, Trust
from .door import Door
from .kubeconfig import load, load_access
from .reply import Event, Failure, Listed, ListReply, LogReply, Reply, ServerAnswer, refuse
from .request import Request
from .resources import Resource
from .watches import Watch

__all__ = [
    "AccessProblem",
    "ClusterAccess",
    "Door",
    "Event",
    "Failure",
    "ListReply",
    "Listed",
    "LogReply",
    "Reply",
    "Request",
    "Resource",
    "ServerAnswer",
    "Trust",
    "Watch",
    "load",
    "load_access",
    "refuse",
]
