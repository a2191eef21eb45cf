"""Whether everything of a job has really stopped is answered by evidence for each pod, never by a bare yes: a 404, an
empty list, `Suspended` and phase `Failed` are all compatible with a process that still writes checkpoints.

Here the facts are found for the table `evidence`, which names what each is; and from those names the whole is
concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from . import names, workload
from .notes import Notes, PodNote, out_of_service
from .record import CLOSED, LIFTED, gates, read_record
from .resting import TERMINAL_PHASES, Remains, end_known
from .seen import Node, Pod, TrainJob, Workload
from .state import JobSetFact, terminal
from .trainjob import Mode

OpenedFact = Literal["never", "may-have"]
EndFact = Literal["reported", "not-reported"]
BoundFact = Literal["never", "may-have"]
BootFact = Literal["same", "changed", "unknown"]
TaintFact = Literal["set", "not-set", "unknown"]
Source = Literal["cluster", "notes"]

UNOBSERVED = "unobserved"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known of one pod's end: the inputs of table `evidence`, where they come from, and in words."""

    uid: str
    name: str
    end: EndFact
    bound: BoundFact
    boot: BootFact
    taint: TaintFact
    source: Source
    text: str

    @property
    def facts(self) -> dict[str, str]:
        """The facts that table `evidence` asks for."""
        return {"opened": "may-have", "end": self.end, "bound": self.bound, "boot": self.boot, "taint": self.taint}


NEVER_OPENED_FACTS: Mapping[str, str] = {
    "opened": "never",
    "end": "not-reported",
    "bound": "may-have",
    "boot": "unknown",
    "taint": "unknown",
}


def never_opened(trainjob: TrainJob | None, notes: Notes | None, pods: Sequence[Pod]) -> bool:
    """Whether the whole never ran: gate closed, `suspend: true` and generation 1, now or when it was stopped.

    Not if a pod of it is there or was ever noted: then somebody else made it run.
    """
    if pods or (notes is not None and notes.pods):
        return False
    if trainjob is None:
        return notes is not None and notes.never_opened
    return shows_never_opened(trainjob)


def shows_never_opened(trainjob: TrainJob) -> bool:
    """Whether a TrainJob, as read, shows that it never ran."""
    record = read_record(trainjob.metadata.annotations)
    return record.gate == CLOSED and trainjob.spec.suspend and trainjob.metadata.generation == 1


def pod_facts(pods: Sequence[Pod], notes: Notes | None, nodes: Mapping[str, Node | None]) -> tuple[PodFacts, ...]:
    """What is known of each pod that is there or was noted.

    `nodes`: Nodes read now, by name; None for one that is absent, which shows nothing.
    """
    noted = {note.uid: note for note in notes.pods} if notes is not None else {}
    found = [_facts(pod, noted.pop(pod.metadata.uid, None), nodes) for pod in pods]
    found += [_facts(None, note, nodes) for note in noted.values()]
    return tuple(sorted(found, key=lambda each: (each.name, each.uid)))


def nodes_needed(pods: Sequence[Pod], notes: Notes | None) -> tuple[str, ...]:
    """The names of the Nodes that have to be read: those of pods whose end is not shown otherwise."""
    wanted = set()
    for each in pod_facts(pods, notes, {}):
        if each.end == "reported" or each.bound == "never":
            continue
        note = notes.pod(each.uid) if notes is not None else None
        pod = next((pod for pod in pods if pod.metadata.uid == each.uid), None)
        name = (pod.spec.node_name if pod is not None else None) or (note.node if note is not None else None)
        if name and note is not None and note.node_uid is not None:
            wanted.add(name)
    return tuple(sorted(wanted))


def _facts(pod: Pod | None, note: PodNote | None, nodes: Mapping[str, Node | None]) -> PodFacts:
    uid = pod.metadata.uid if pod is not None else note.uid if note is not None else ""
    name = pod.metadata.name if pod is not None else note.name if note is not None else ""
    end, end_source = _end(pod, note)
    bound, bound_source = _bound(pod, note)
    boot, boot_text = _boot(note, nodes)
    taint, taint_text = _taint(note, nodes)
    source: Source = "cluster"
    text = "no report that all its containers ended"
    if end == "reported":
        source, text = end_source, "every container reported terminated, by its id"
    elif bound == "never":
        source, text = bound_source, "it was never bound to a node"
    elif boot == "changed":
        source, text = "notes", boot_text
    elif taint == "set":
        source, text = "notes", taint_text
    elif boot_text or taint_text:
        text = "; ".join(each for each in (text, boot_text or taint_text) if each)
    return PodFacts(uid, name, end, bound, boot, taint, source, text)


def _end(pod: Pod | None, note: PodNote | None) -> tuple[EndFact, Source]:
    if pod is not None and end_known(pod):
        return "reported", "cluster"
    if note is not None and note.ends:
        return "reported", "notes"
    return "not-reported", "cluster"


def _bound(pod: Pod | None, note: PodNote | None) -> tuple[BoundFact, Source]:
    """Never bound: a terminal pod read now, or the object in its DELETED event, without a node."""
    if note is not None and note.node is not None:
        return "may-have", "notes"
    if pod is not None:
        terminal_now = pod.status.phase in TERMINAL_PHASES and not pod.spec.node_name
        return ("never" if terminal_now else "may-have"), "cluster"
    return ("never" if note is not None and note.gone and note.never_bound else "may-have"), "notes"


def _node_of(note: PodNote | None, nodes: Mapping[str, Node | None]) -> Node | None:
    """The Node a pod was noted on, read now, if it is still the same object."""
    if note is None or note.node is None or note.node_uid is None:
        return None
    node = nodes.get(note.node)
    return node if node is not None and node.metadata.uid == note.node_uid else None


def _boot(note: PodNote | None, nodes: Mapping[str, Node | None]) -> tuple[BootFact, str]:
    """Whether the machine has booted since the pod's container was seen running.

    The Node must be the same object for the same machine: a name, and even a UID, may be taken up by another machine.
    """
    node = _node_of(note, nodes)
    if note is None or node is None or note.boot_id is None or not note.system_uuid:
        return "unknown", ""
    info = node.status.node_info
    same_machine = info.system_uuid == note.system_uuid and (node.spec.provider_id or None) == note.provider_id
    if not info.boot_id or not same_machine:
        return "unknown", f"node {note.node} is another machine now"
    if info.boot_id == note.boot_id:
        return "same", f"node {note.node} has not rebooted"
    return "changed", f"node {note.node} rebooted: boot {note.boot_id} then, {info.boot_id} now"


def _taint(note: PodNote | None, nodes: Mapping[str, Node | None]) -> tuple[TaintFact, str]:
    """Whether somebody declared the pod's node out of service, now or when the pod was being deleted."""
    if note is not None and note.out_of_service:
        return "set", f"node {note.node} was declared out of service while the pod was deleted"
    node = _node_of(note, nodes)
    if note is None or node is None:
        return "unknown", ""
    if out_of_service(node):
        return "set", f"node {note.node} is declared out of service"
    return "not-set", f"node {note.node} is not declared out of service"


def complete(notes: Notes | None, trainjob: TrainJob | None) -> bool:
    """Whether the pods are known completely; else one entry more, `unobserved`, is not shown.

    Notes without a gap are not enough: pods may have come after their watch had ended, unless the notes were settled
    for the TrainJob as it stands now (`trainjob`; None where it is gone).
    """
    generation = None if trainjob is None else trainjob.metadata.generation
    return notes is not None and notes.complete_at(generation)


@dataclass(frozen=True, slots=True)
class Queued:
    """A TrainJob's Workloads, and the name of our check on them."""

    workloads: Sequence[Workload]
    check_name: str


def may_make_pods(
    trainjob: TrainJob | None, *, jobset: JobSetFact, remains: Remains, mode: Mode, queued: Queued | None = None
) -> tuple[str, ...]:
    """What could still make a pod of the attempt, in words; empty if nothing can.

    C25's test, and the TrainJob itself: one that is not suspended and has not provably completed lets Trainer make
    its JobSet again, a failed one above all; and one that waits its turn in Kueue may get it. `queued`: what keeps it
    waiting; without it, in kueue mode, only this generation of the TrainJob is spoken of, which Kueue would change.
    """
    found = [str(each) for each in remains.controllers]
    if trainjob is not None:
        found += _trainjob_may(trainjob, jobset=jobset, mode=mode, queued=queued)
    return tuple(found)


def _trainjob_may(trainjob: TrainJob, *, jobset: JobSetFact, mode: Mode, queued: Queued | None) -> Iterable[str]:
    record = read_record(trainjob.metadata.annotations)
    ended = terminal(trainjob)
    completed = ended == "complete" and (jobset == "this" or (jobset == "gone" and record.gate == LIFTED))
    if completed:
        return
    name = trainjob.metadata.name
    if not trainjob.spec.suspend:
        yield f"TrainJob {name} is not suspended" + (", and failed" if ended in {"failed", "deadline"} else "")
    elif mode == "kueue" and record.stopped is not True:
        yield f"TrainJob {name} is neither gated nor held, so Kueue may admit it"
    elif mode == "kueue" and queued is not None:
        yield from _kueue_may(trainjob, queued)


def _kueue_may(trainjob: TrainJob, queued: Queued) -> Iterable[str]:
    """What of a TrainJob whose record stops it Kueue could start all the same."""
    for each in queued.workloads:
        if not workload.enforces(each, queued.check_name):
            yield f"Workload {each.metadata.name} is free to run, whatever the record says"
    if not queued.workloads and names.KUEUE_GATE not in gates(trainjob.metadata.annotations.gated_by):
        yield f"TrainJob {trainjob.metadata.name} has no Workload, and what Kueue makes of a new one is not known"
