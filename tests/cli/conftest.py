"""What the tests of the command line share: a Backend that plays a script, and a command line in this process."""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from dispatch_kubeflow.backend.cli.terminal import Terminal
from dispatch_kubeflow.backend.objects.found import Found, FoundObject
from dispatch_kubeflow.machine.values import ObjectRef


def ref(name, kind="TrainJob", uid="u1"):
    return ObjectRef("west", "team-a", kind, name, uid)


def seen(name="fit-1", kind="TrainJob", *, state="gated", attempt=1, uid="u1", **more):
    more.setdefault("gate_lifted", state in ("opened", "ended"))
    return FoundObject(ref(name, kind, uid), state, attempt, **more)


def found(*objects, in_flight=()):
    return Found("fit", objects, in_flight)


class FakeClock:
    """Time that passes only by waiting."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    def wait(self, event, timeout):
        if timeout is None:
            return event.wait()
        self.time += timeout
        return event.is_set()


@dataclass
class ScriptedBackend:
    """Answers each call with the next item of its script: a value, or an error to raise. The last item stays."""

    script: dict[str, list] = field(default_factory=dict)
    calls: list[tuple] = field(default_factory=list)

    def _play(self, call, *arguments):
        self.calls.append((call, *arguments))
        items = self.script.get(call, [None])
        item = items.pop(0) if len(items) > 1 else items[0]
        item = item() if callable(item) else item
        if isinstance(item, BaseException):
            raise item
        return item

    def names(self):
        return [call for call, *_ in self.calls]

    def find(self, job_id, *, ctx=None):
        return self._play("find", job_id)

    def watch(self, job_id, *, ctx=None):
        self.calls.append(("watch", job_id))
        for item in self.script["watch"]:
            if isinstance(item, BaseException):
                raise item
            yield item() if callable(item) else item

    def start(self, job_id, attempt, spec, *, ctx=None):
        return self._play("start", job_id, attempt)

    def open(self, ref, *, ctx=None):
        self._play("open", str(ref))

    def hold(self, ref, instance, *, ctx=None):
        self._play("hold", str(ref), instance)

    def release(self, ref, instance, *, ctx=None):
        self._play("release", str(ref), instance)

    def stop(self, ref, *, ctx=None):
        self._play("stop", str(ref))

    def stop_job(self, job_id, *, ctx=None):
        self._play("stop_job", job_id)

    def ceased(self, ref, *, ctx=None):
        return self._play("ceased", str(ref))

    def capabilities(self, spec=None, *, ctx=None):
        return self._play("capabilities", spec)

    def output(self, job_id, stream=None, *, tail=None, follow=False, ctx=None):
        lines = self._play("output", job_id, tail, follow) or []
        for line in lines:
            if isinstance(line, BaseException):
                raise line
            yield line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.calls.append(("close",))


class QuietTerminal(Terminal):
    """Keeps what is written."""

    def __init__(self):
        super().__init__()
        self.said = []
        self.lines = []
        self.lock = threading.Lock()

    def say(self, text, style=""):
        self.said.append(text)

    def line(self, line):
        self.lines.append(line)


@pytest.fixture
def terminal():
    return QuietTerminal()


@pytest.fixture
def clock():
    return FakeClock()
