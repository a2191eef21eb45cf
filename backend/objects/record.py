"""What was asked of a TrainJob is kept on the TrainJob, in two annotations written by the very request that acts: so
any process, of whatever age, reads one and the same record, and a late call is seen to be late.

`gate` is `closed`, then `lifted` for ever. `hold` is `none`, `N/held` or `N/released`. Anything else cannot be read,
and nothing is concluded from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from . import names
from .seen import Annotations

CLOSED: Final = "closed"
LIFTED: Final = "lifted"
NONE: Final = "none"
GREATEST_INSTANCE: Final = 2**63 - 1

GateFact = Literal["closed", "lifted", "unreadable"]
HoldFact = Literal["none", "held", "released", "unreadable"]
InstanceFact = Literal["older", "same", "newer"]

_HOLD = re.compile(r"([1-9][0-9]{0,18})/(held|released)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold register: the instance in force and whether it holds; instance 0 is a job never held."""

    instance: int = 0
    held: bool = False

    @property
    def fact(self) -> Literal["none", "held", "released"]:
        """The register's state in the lifecycle `hold-register`."""
        if self.instance == 0:
            return "none"
        return "held" if self.held else "released"

    def __str__(self) -> str:
        """The annotation's value."""
        return NONE if self.instance == 0 else f"{self.instance}/{self.fact}"

    def compare(self, instance: int) -> InstanceFact:
        """How a caller's instance stands to the one in force: the guard of the lifecycle."""
        if instance == self.instance:
            return "same"
        return "newer" if instance > self.instance else "older"


@dataclass(frozen=True, slots=True)
class Record:
    """Gate and hold as read; None for the part that is absent or cannot be read."""

    gate: Literal["closed", "lifted"] | None
    hold: Hold | None

    @property
    def gate_fact(self) -> GateFact:
        return self.gate or "unreadable"

    @property
    def hold_fact(self) -> HoldFact:
        return "unreadable" if self.hold is None else self.hold.fact

    @property
    def readable(self) -> bool:
        return self.gate is not None and self.hold is not None

    @property
    def stopped(self) -> bool | None:
        """Whether the record asks for the job not to run: gated or held. None where it cannot be read."""
        if self.gate is None or self.hold is None:
            return None
        return self.gate == CLOSED or self.hold.held


def read_hold(text: str | None) -> Hold | None:
    """The hold register as an annotation carries it, or None where it is absent or not as we write it."""
    if text == NONE:
        return Hold()
    found = _HOLD.fullmatch(text or "")
    if found is None or int(found.group(1)) > GREATEST_INSTANCE:
        return None
    return Hold(int(found.group(1)), found.group(2) == "held")


def read_record(annotations: Annotations) -> Record:
    """The record of a TrainJob."""
    gate = annotations.gate
    return Record("closed" if gate == CLOSED else "lifted" if gate == LIFTED else None, read_hold(annotations.hold))


def new_record() -> dict[str, str]:
    """The annotations of a TrainJob as Start creates it."""
    return {names.GATE: CLOSED, names.HOLD: NONE}


def precondition(uid: str, resource_version: str) -> dict[str, Any]:
    """The metadata by which a patch applies only to the object as it was read."""
    return {"uid": uid, "resourceVersion": resource_version}


def record_patch(
    uid: str,
    resource_version: str,
    *,
    gate: Literal["lifted"] | None = None,
    hold: Hold | None = None,
    suspend: bool | None = None,
    gated_by: str | None = None,
) -> dict[str, Any]:
    """The merge patch of one write of the hold family; each part only where it is given.

    `suspend` is for plain mode alone. `gated_by` is the TrainJob's admission gate as it was read, in kueue mode, for
    the call that lifts ours from it.
    """
    metadata = precondition(uid, resource_version)
    annotations: dict[str, str | None] = {}
    if gate is not None:
        annotations[names.GATE] = gate
    if hold is not None:
        annotations[names.HOLD] = str(hold)
    if gated_by is not None:
        annotations[names.ADMISSION_GATED_BY] = without_our_gate(gated_by)
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata} if suspend is None else {"metadata": metadata, "spec": {"suspend": suspend}}


def gates(gated_by: str | None) -> tuple[str, ...]:
    """The admission gates that an annotation names; Kueue allows blanks beside the commas."""
    return tuple(name for part in (gated_by or "").split(",") if (name := part.strip()))


def without_our_gate(gated_by: str) -> str | None:
    """The annotation once our gate is lifted: the others' gates in their order, or None to take it away."""
    return ",".join(name for name in gates(gated_by) if name != names.KUEUE_GATE) or None
