"""The controller of kueue mode as a command, for a Deployment to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dispatch_kubeflow.backend.requests import load_access
from dispatch_kubeflow.machine.rules import rulebook

from .exits import Exit, Refusal

NEEDS_EXTRA = "pip install 'dispatch-kubeflow[cli,admission]'"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Kueue")(admission)


def admission(
    namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="The namespace of its Lease: the one it runs in.")
    ],
    lease: Annotated[str, typer.Option(help="The name of its Lease.")] = "dispatch-kubeflow-admission",
    identity: Annotated[
        str | None, typer.Option(help="Who it is on the Lease; made up if not given, and never to be used twice.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="A kubeconfig; the client's usual search if not given.", show_default=False)
    ] = None,
    context: Annotated[str | None, typer.Option(help="A context of the kubeconfig.")] = None,
    # A kubelet and Prometheus ask from outside of the pod.
    host: Annotated[str, typer.Option(help="Where /healthz, /readyz and /metrics are served.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(min=0, max=65535, help="Their port; 0 takes a free one.")] = 8080,
    lease_duration: Annotated[float, typer.Option(help="Seconds for which a Lease counts.")] = 15.0,
    renew_deadline: Annotated[float, typer.Option(help="Seconds for which its holder trusts it.")] = 10.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between tries to take or renew it.")] = 2.0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say also what it waits for.")] = False,
) -> None:
    """Run the admission controller of kueue mode until it is told to end (SIGTERM): one of all that run acts."""
    try:
        from dispatch_kubeflow.backend.admission.leading import LeaseTimes  # noqa: PLC0415 - needs the extra
        from dispatch_kubeflow.backend.admission.running import Options, give_place  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dispatch_kubeflow"):
            raise
        text = f"the controller needs its extra: {error.name} is not installed"
        raise Refusal(text, Exit.USAGE, NEEDS_EXTRA) from error
    times = LeaseTimes(lease_duration, renew_deadline, retry_period)
    wrong = times.wrong()
    if wrong is not None:
        raise Refusal(
            f"the times of the lease must have {wrong}", Exit.USAGE, "Try: dispatch-kubeflow admission --help"
        )
    path = None if kubeconfig is None else str(kubeconfig)
    load_access(book=rulebook(), kubeconfig=path, context=context)  # what is wrong with it is said here
    give_place(
        Options(
            namespace=namespace,
            lease=lease,
            identity=identity,
            kubeconfig=path,
            context=context,
            host=host,
            port=port,
            times=times,
            verbose=verbose,
        )
    )
