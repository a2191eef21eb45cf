"""`python -m dispatch_kubeflow.backend.admission OPTIONS`: what `dispatch-kubeflow admission` becomes."""

import sys

import msgspec

from .running import Options, run

sys.exit(run(msgspec.json.decode(sys.argv[1], type=Options)))
