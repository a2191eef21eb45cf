"""Schedules drawn from one seed: what is likely is weighted by what there is, so that most calls meet something."""

from __future__ import annotations

from random import Random
from typing import Any

from . import exhaustive
from .story import JOBS_NAMED, LIVE_PARTS, Step, Story, fault
from .wire import Fault

CONTROLLERS = ("trainer", "jobset", "job", "scheduler", "kubelet", "collector")
PROGRAMS = ("trainer", "jobset", "kube-controller-manager", "kubelet")
KUBECTL = (
    *("delete", "orphan", "foreground", "suspend", "resume", "junk", "queue", "ajar", "mode", "again"),
    *("backend", "nobody", "unlabel", "disown", "unsuspend"),
    *("limit", "copy", "recopy", "jobset", "jobset-foreground", "snapshot", "evict", "kill", "touch"),
)
LACKS = (
    [["delete", "trainjobs"]],
    [["patch", "trainjobs"]],
    [["list", "pods"]],
    [["get", "trainjobs"]],
    [["create", "trainjobs"]],
    [["delete", "jobsets"], ["delete", "pods"]],
    [["patch", "trainingruntimes"]],
)
MAIN = {"start": (3, 4, 4, 5), "open": (3,), "hold": (1,), "release": (4,), "stop": (1, 2), "stop_job": (5, 6)}
"""Where the writes of a call stand among its requests."""
DOUBTFUL = (
    Fault("lost"),
    Fault("drop"),
    Fault("late", seconds=5.0),
    Fault("late", seconds=55.0),
    Fault("slow", seconds=31.0),
    Fault("rewritten", 504),
    Fault("crash-after"),
    Fault("kind"),
    Fault("answer", 409, "Conflict"),
)
SECONDS = (0.05, 0.5, 2.0, 10.0, 45.0, 100.0)
DEADLINES = (1, 3, 12, 60)


class Drawer:
    """Draws the steps of one schedule. `obedient` supervisors keep section 11; the others do as they like."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.obedient = self.chance.random() < 0.5
        self.meddles = self.chance.random() < 0.45
        self.faulty = self.chance.random() < 0.75
        self.jobs = JOBS_NAMED if self.chance.random() < 0.2 else JOBS_NAMED[:1]
        self.length = self.chance.randint(2, 7)
        self.attempt = dict.fromkeys(self.jobs, 1)
        # Drawn apart, so that what else a seed draws stays what it was.
        self._deadlines = Random(f"deadlines of {seed}")
        self._deadline: dict[tuple[str, int], int | None] = {}

    def play(self, story: Story) -> None:
        """Draw and play, to the end."""
        story.world.pace = "settle" if self.chance.random() < 0.8 else "still"
        if story.world.pace == "still":
            story.do({"do": "pace", "pace": "still"})
        for step in self._prologue():
            story.do(step)
        for _ in range(self.length):
            story.do(self.step(story))
        story.end(way_out=self.chance.random() < 0.5)

    def _prologue(self) -> list[Step]:
        """Something that is there already when the schedule begins, without which half of all calls meet nothing."""
        job = self.jobs[0]
        mine: Step = {"by": "a", "job": job, "attempt": 1}
        start, lift = self._limited({"do": "start", **mine}), {"do": "open", **mine}
        soon: Step = {"do": "advance", "seconds": 2.0}
        found = {
            "nothing": [],
            "gated": [start],
            "opened": [start, lift, soon],
            "held": [start, lift, soon, {"do": "hold", "n": 1, **mine}, soon],
            "held gated": [start, {"do": "hold", "n": 1, **mine}],
            "ended": [start, lift, soon, {"do": "finish", "job": job, "code": self.chance.choice((0, 1))}, soon],
            "unknown": [{**start, "faults": {"4": fault(self.chance.choice(DOUBTFUL[:6]))}}, {"do": "find", **mine}],
            "orphaned": [start, lift, soon, {"do": "kubectl", "deed": "orphan", "job": job, "attempt": 1}, soon],
        }
        return found[self.chance.choices(tuple(found), (24, 12, 25, 12, 4, 8, 9, 5))[0]]

    def step(self, story: Story) -> Step:
        """The next step, drawn by what there is."""
        roll = self.chance.random()
        if roll < 0.62:
            return self._disturbed(self.call(story))
        if roll < 0.70:
            order = self.chance.randrange(2**31)
            calls = [self._of(actor, self.call(story)) for actor in ("a", "b")]
            return {"do": "race", "order": order, "calls": calls}
        if self.meddles and roll < 0.86:
            return self.deed(story)
        return {"do": "advance", "seconds": self.chance.choice(SECONDS)}

    def call(self, story: Story) -> Step:
        """A call of some supervisor."""
        job = self.chance.choice(self.jobs)
        known = [key for key in story.refs if key[0] == job]
        if not known and self.chance.random() < 0.7:
            return self._start(job)
        what = self.chance.choices(
            ("start", "open", "hold", "release", "stop", "stop_job", "find", "output", "ceased", "watch"),
            (10, 25, 14, 14, 8, 9, 12, 3, 4, 3),
        )[0]
        step: Step = {"do": what, "by": self._actor(), "job": job}
        if what == "start":
            return self._start(job)
        if what in ("open", "hold", "release", "stop", "ceased"):
            step["attempt"] = self.chance.choice(known)[1] if known else self.attempt[job]
            if self.chance.random() < 0.1:
                step["old"] = 1
            if what in ("hold", "release"):
                step["n"] = self.chance.choice((1, 1, 1, 2, 2, 3))
            if what in ("stop", "ceased") and self.chance.random() < 0.25:
                step["kind"] = self.chance.choice(tuple(LIVE_PARTS))
        if what == "stop_job" and self.chance.random() < 0.2:
            step["timeout"] = self.chance.choice((0.0, 0.4, 3.0))
        if self.chance.random() < 0.04:
            step |= self.chance.choice(({"timeout": 0.0}, {"cancelled": True}))
        if what == "watch":
            step |= {"views": self.chance.choice((1, 2, 3)), "timeout": 20.0}
        return step

    def _start(self, job: str) -> Step:
        if not self.obedient and self.chance.random() < 0.3:
            self.attempt[job] = min(4, self.attempt[job] + 1)
        return self._limited({"do": "start", "by": self._actor(), "job": job, "attempt": self.attempt[job]})

    def _limited(self, step: Step) -> Step:
        """Some attempts have a deadline, nearly always the same one at each try."""
        key = step["job"], step["attempt"]
        if key not in self._deadline or self._deadlines.random() < 0.05:
            chosen = self._deadlines.choice(DEADLINES) if self._deadlines.random() < 0.3 else None
            self._deadline[key] = chosen
        seconds = self._deadline[key]
        return step if seconds is None else {**step, "deadline": seconds}

    def _actor(self) -> str:
        return self.chance.choices(("a", "b", "r", "o"), (60, 30, 4, 4))[0]

    def _of(self, actor: str, step: Step) -> Step:
        return {**step, "by": actor}

    def _disturbed(self, step: Step) -> Step:
        """A call with faults on its way, or with somebody's deed between two of its requests."""
        if not self.faulty or self.chance.random() < 0.5:
            return step
        places = self.chance.sample(range(9), self.chance.choice((1, 1, 1, 2)))
        faults = {str(place): fault(self._fault()) for place in places}
        if step["do"] in MAIN and self.chance.random() < 0.4:
            # What is in doubt is decided at the write that a call exists for.
            faults[str(self.chance.choice(MAIN[step["do"]]))] = fault(self.chance.choice(DOUBTFUL))
        step = {**step, "faults": faults}
        if self.meddles and self.chance.random() < 0.3:
            step["deeds"] = {str(self.chance.randrange(1, 7)): self._small_deed(step["job"])}
        return step

    def _fault(self) -> Any:
        return self.chance.choice(exhaustive.SINGLE)

    def _small_deed(self, job: str) -> Step:
        attempt = self.attempt[job]
        return self.chance.choice(
            (
                {"do": "kubectl", "deed": "touch", "job": job, "attempt": attempt},
                {"do": "kubectl", "deed": "delete", "job": job, "attempt": attempt},
                {"do": "kubectl", "deed": "orphan", "job": job, "attempt": attempt},
                {"do": "kubectl", "deed": "resume", "job": job, "attempt": attempt},
                {"do": "kubectl", "deed": "queue", "job": job, "attempt": attempt},
                {"do": "finish", "job": job, "code": 0},
            )
        )

    def deed(self, story: Story) -> Step:
        """A deed of somebody who is no supervisor."""
        job = self.chance.choice(self.jobs)
        attempts = [key[1] for key in story.refs if key[0] == job] or [1]
        match self.chance.choices(
            ("kubectl", "lag", "down", "up", "finish", "node", "rbac", "new", "close", "stubborn", "blind"),
            (44, 12, 4, 6, 12, 8, 8, 8, 3, 6, 3),
        )[0]:
            case "kubectl":
                deed, attempt = self.chance.choice(KUBECTL), self.chance.choice(attempts)
                return {"do": "kubectl", "deed": deed, "job": job, "attempt": attempt}
            case "lag":
                seconds = self.chance.choice((0.2, 3.0, 20.0))
                return {"do": "lag", "controller": self.chance.choice(CONTROLLERS), "seconds": seconds}
            case "down":
                return {"do": "down", "program": self.chance.choice(PROGRAMS)}
            case "up":
                return {"do": "up", "program": self.chance.choice(PROGRAMS)}
            case "finish":
                return {"do": "finish", "job": job, "code": self.chance.choice((0, 1, 137))}
            case "node":
                deed = self.chance.choice(("lose", "return", "reboot", "reboot", "delete"))
                return {"do": "node", "node": self.chance.choice(("node-0", "node-1")), "deed": deed}
            case "rbac":
                return {"do": "rbac", "by": "b", "lacks": self.chance.choice((*LACKS, []))}
            case "stubborn":
                return {"do": "stubborn", "seconds": self.chance.choice((5.0, 25.0))}
            case "close":
                return {"do": "close", "by": "b"}
            case "new":
                return {"do": "new", "by": self.chance.choice("ab")}
            case _:
                return {"do": "blind", "on": self.chance.random() < 0.5}
