#!/usr/bin/env bash
# Prints the first Python on this machine that can make our environment: 3.11 or newer, with venv. Its arguments, if any, are tried alone.
set -euo pipefail

candidates=("$@")
if [ ${#candidates[@]} -eq 0 ]; then
    candidates=(python3 python3.13 python3.12 python3.11 python3.14 python)
fi
too_old=""
without_venv=""
for candidate in "${candidates[@]}"; do
    command -v "$candidate" > /dev/null || continue
    if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
        too_old="$too_old $candidate"
    elif ! "$candidate" -c 'import ensurepip, venv' 2> /dev/null; then
        without_venv="$without_venv $candidate"
    else
        command -v "$candidate"
        exit 0
    fi
done
{
    echo "dispatch-kubeflow needs Python 3.11 or newer with its venv module; tried: ${candidates[*]}"
    [ -z "$too_old" ] || echo "  older than 3.11, or does not run:$too_old"
    [ -z "$without_venv" ] || echo "  without venv or ensurepip (Debian and Ubuntu: install python3-venv):$without_venv"
    echo "Name another with: make PYTHON=/path/to/python3"
} >&2
exit 1
