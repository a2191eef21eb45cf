"""Hypothesis decides what everybody does next, and shrinks what went wrong to the few steps that matter.

Its steps are the same data that `story.py` plays, so a failure is printed as one line that replays it, and as a story.
"""

from __future__ import annotations

from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from . import exhaustive
from .drawing import CONTROLLERS, DEADLINES, KUBECTL, LACKS, PROGRAMS, SECONDS
from .story import JOBS_NAMED, LIVE_PARTS, Step, Story, fault, text

ACTORS = st.sampled_from(("a", "a", "a", "b", "b", "r", "o"))
JOBS = st.sampled_from(JOBS_NAMED)
ATTEMPTS = st.integers(1, 3)
INSTANCES = st.integers(1, 4)
FAULTS = st.dictionaries(
    st.integers(0, 8).map(str), st.sampled_from([fault(each) for each in exhaustive.SINGLE]), max_size=2
)
LIMITS = (None, None, None, *DEADLINES)
TIMEOUTS = st.sampled_from((120.0, 120.0, 120.0, 5.0, 0.0))


class Machine(RuleBasedStateMachine):
    """Several jobs, attempts and Backends, with whoever meddles."""

    def __init__(self) -> None:
        super().__init__()
        self.story: Story | None = None

    @initialize(seed=st.integers(0, 7), pace=st.sampled_from(("settle", "settle", "still")))
    def begin(self, seed: int, pace: str) -> None:
        self.story = Story(seed)
        if pace == "still":
            self._do({"do": "pace", "pace": pace})

    def _do(self, step: Step) -> None:
        assert self.story is not None
        try:
            self.story.do(step)
        except BaseException:
            self._explain()
            raise

    def _explain(self) -> None:
        assert self.story is not None
        note("replay: python -m properties replay '" + text(self.story.steps) + "'")
        note("\n".join(self.story.world.story))

    @rule(by=ACTORS, job=JOBS, attempt=ATTEMPTS, faults=FAULTS, timeout=TIMEOUTS, deadline=st.sampled_from(LIMITS))
    def start(self, by: str, job: str, attempt: int, faults: Any, timeout: float, deadline: int | None) -> None:
        step = {"do": "start", "by": by, "job": job, "attempt": attempt, "faults": faults, "timeout": timeout}
        self._do(step if deadline is None else {**step, "deadline": deadline})

    @rule(
        what=st.sampled_from(("open", "open", "stop", "ceased")), by=ACTORS, job=JOBS, attempt=ATTEMPTS, faults=FAULTS
    )
    def of_reference(self, what: str, by: str, job: str, attempt: int, faults: Any) -> None:
        self._do({"do": what, "by": by, "job": job, "attempt": attempt, "faults": faults})

    @rule(what=st.sampled_from(("hold", "release")), by=ACTORS, job=JOBS, attempt=ATTEMPTS, n=INSTANCES, faults=FAULTS)
    def fenced(self, what: str, by: str, job: str, attempt: int, n: int, faults: Any) -> None:
        self._do({"do": what, "by": by, "job": job, "attempt": attempt, "n": n, "faults": faults})

    @rule(what=st.sampled_from(("find", "stop_job", "output", "watch")), by=ACTORS, job=JOBS, faults=FAULTS)
    def of_job(self, what: str, by: str, job: str, faults: Any) -> None:
        self._do({"do": what, "by": by, "job": job, "faults": faults})

    @rule(by=ACTORS, job=JOBS, attempt=ATTEMPTS, kind=st.sampled_from(tuple(LIVE_PARTS)), faults=FAULTS)
    def stop_a_part(self, by: str, job: str, attempt: int, kind: str, faults: Any) -> None:
        self._do({"do": "stop", "by": by, "job": job, "attempt": attempt, "kind": kind, "faults": faults})

    @rule(order=st.integers(0, 2**16), job=JOBS, attempt=ATTEMPTS, n=INSTANCES, m=INSTANCES)
    def race(self, order: int, job: str, attempt: int, n: int, m: int) -> None:
        calls = [
            {"do": "hold", "by": "a", "job": job, "attempt": attempt, "n": n},
            {"do": "release", "by": "b", "job": job, "attempt": attempt, "n": m},
            {"do": "open", "by": "c", "job": job, "attempt": attempt},
        ]
        self._do({"do": "race", "order": order, "calls": calls})

    @rule(seconds=st.sampled_from(SECONDS))
    def advance(self, seconds: float) -> None:
        self._do({"do": "advance", "seconds": seconds})

    @rule(deed=st.sampled_from(KUBECTL), job=JOBS, attempt=ATTEMPTS)
    def kubectl(self, deed: str, job: str, attempt: int) -> None:
        self._do({"do": "kubectl", "deed": deed, "job": job, "attempt": attempt})

    @rule(controller=st.sampled_from(CONTROLLERS), seconds=st.sampled_from((0.0, 0.2, 3.0, 20.0)))
    def lag(self, controller: str, seconds: float) -> None:
        self._do({"do": "lag", "controller": controller, "seconds": seconds})

    @rule(program=st.sampled_from(PROGRAMS), what=st.sampled_from(("down", "up")))
    def program(self, program: str, what: str) -> None:
        self._do({"do": what, "program": program})

    @rule(job=JOBS, code=st.sampled_from((0, 1, 137)))
    def finish(self, job: str, code: int) -> None:
        self._do({"do": "finish", "job": job, "code": code})

    @rule(node=st.sampled_from(("node-0", "node-1")), deed=st.sampled_from(("lose", "return", "reboot", "delete")))
    def node(self, node: str, deed: str) -> None:
        self._do({"do": "node", "node": node, "deed": deed})

    @rule(lacks=st.sampled_from((*LACKS, [])))
    def rbac(self, lacks: Any) -> None:
        self._do({"do": "rbac", "by": "b", "lacks": lacks})

    @rule(by=st.sampled_from("ab"))
    def another_process(self, by: str) -> None:
        self._do({"do": "new", "by": by})

    def teardown(self) -> None:
        if self.story is None:
            return
        try:
            self.story.end()
        except BaseException:
            self._explain()
            raise
        finally:
            self.story.close()
