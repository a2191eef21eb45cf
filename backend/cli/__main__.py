"""`python -m dispatch_kubeflow.backend.cli` is the command, wherever scripts are not on the path."""

from . import main

main()
