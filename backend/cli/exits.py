"""Scripts act on exit codes, so each sentinel has one of its own, in a range that most programs leave free."""

from __future__ import annotations

from enum import IntEnum

from dispatch_kubeflow.machine import DispatchError


class Exit(IntEnum):
    """Every exit code of the command line; `run` ends with the job's own where the job had one."""

    OK = 0
    DIFFERS = 1  # `tables check` or `demo` found something other than it should be
    USAGE = 2
    INTERNAL = 70
    ERR_INVALID = 80
    ERR_UNSUPPORTED = 81
    ERR_READ_ONLY = 82
    ERR_UNAUTHORIZED = 83
    ERR_ADMISSION_DENIED = 84
    ERR_NOT_FOUND = 85
    ERR_REJECTED = 86
    ERR_STALE_HOLD = 87
    ERR_UNREACHABLE = 88
    ERR_PODS_REMAIN = 89
    ERR_OUTCOME_UNKNOWN = 90
    JOURNAL = 91
    NOT_CEASED = 92
    ENDED_WITHOUT_STATUS = 93
    NEVER_CAME = 94
    INTERRUPTED = 130
    PIPE = 141


MEANS = {
    Exit.OK: "The call did what it says; for `run`, the job succeeded.",
    Exit.DIFFERS: "`tables check` found a fault in the tables, or `demo` saw something other than it tells.",
    Exit.USAGE: "The command line itself is wrong, or its extra is not installed.",
    Exit.INTERNAL: "A fault of this program. DISPATCH_KUBEFLOW_TRACEBACK=1 shows where.",
    Exit.ERR_INVALID: "ErrInvalid",
    Exit.ERR_UNSUPPORTED: "ErrUnsupported",
    Exit.ERR_READ_ONLY: "ErrReadOnly",
    Exit.ERR_UNAUTHORIZED: "ErrUnauthorized",
    Exit.ERR_ADMISSION_DENIED: "ErrAdmissionDenied",
    Exit.ERR_NOT_FOUND: "ErrNotFound",
    Exit.ERR_REJECTED: "ErrRejected",
    Exit.ERR_STALE_HOLD: "ErrStaleHold",
    Exit.ERR_UNREACHABLE: "ErrUnreachable",
    Exit.ERR_PODS_REMAIN: "ErrPodsRemain",
    Exit.ERR_OUTCOME_UNKNOWN: "ErrOutcomeUnknown",
    Exit.JOURNAL: "`run`: the journal is in use, is another job's, or does not know what the cluster shows.",
    Exit.NOT_CEASED: "`run --again`, `ceased`: it is not shown that everything of the attempt has stopped.",
    Exit.ENDED_WITHOUT_STATUS: "`run`: the job ended, neither succeeded nor with an exit code of its own program.",
    Exit.NEVER_CAME: "`run`: its Starts had no answer, and nothing came of them.",
    Exit.INTERRUPTED: "Interrupted. A job that was started goes on; `run` again follows it.",
    Exit.PIPE: "Whoever read the output has gone.",
}

_SENTINELS = {MEANS[code]: code for code in Exit if MEANS[code].startswith("Err")}


def code_of(error: DispatchError) -> Exit:
    """The exit code of an error's sentinel."""
    return code_of_sentinel(error.sentinel)


def code_of_sentinel(name: str) -> Exit:
    """The exit code of the sentinel of this name."""
    return _SENTINELS[name]


class Refusal(Exception):
    """The command line itself refuses: what happened in one sentence, and the next safe step."""

    def __init__(self, message: str, code: Exit, then: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.then = then
