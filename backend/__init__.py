"""The adapter: a Backend on a Kubernetes cluster with Kubeflow Trainer.

`factory` connects and gives a Backend; its calls are those of the contract. Importing this room imports neither the
official client nor anything else that is heavy: that waits for the first `factory`.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dispatch_kubeflow.machine.context import Clock, Context
from dispatch_kubeflow.machine.values import JobSpec, ObjectRef, Settings, Stream

if TYPE_CHECKING:
    from .objects.found import Capabilities, Capability, Cause, Cessation, Evidence, Found, FoundObject
    from .operations.backend import Backend

__all__ = [
    "Backend",
    "Capabilities",
    "Capability",
    "Cause",
    "Cessation",
    "Evidence",
    "Found",
    "FoundObject",
    "JobSpec",
    "ObjectRef",
    "Settings",
    "Stream",
    "factory",
]

_LATER = {
    "Backend": "operations.backend",
    **dict.fromkeys(
        ("Capabilities", "Capability", "Cause", "Cessation", "Evidence", "Found", "FoundObject"), "objects.found"
    ),
}
"""What calls give back, by the module that is imported when it is first asked for."""

logging.getLogger("dispatch_kubeflow").addHandler(logging.NullHandler())


def factory(
    settings: Settings | Mapping[str, Any] | str | os.PathLike[str],
    *,
    ctx: Context | None = None,
    clock: Clock | None = None,
) -> Backend:
    """Connect to a cluster and show that it and this user can keep what a Backend promises (the page's Factory).

    `settings`: a Settings, a mapping, or the path of a YAML file. `ctx`: bounds the connecting. `clock`: where the
    Backend reads the time, the system's by default.

    ErrInvalid for settings (C7) or a cluster configuration (C8) that can't be used; ErrUnsupported where the cluster
    does not serve what is needed (C13) or Kueue manages jobs without a queue (C14); ErrUnauthorized for a missing read
    permission (C15) or without a token (A1); ErrUnreachable where there was no answer (A9, A11).
    """
    from .operations.backend import make_backend  # noqa: PLC0415 - brings the official client with it

    return make_backend(settings, ctx=ctx, clock=clock)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
