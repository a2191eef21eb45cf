"""Kueue mode under schedules: none breaks what must always be true, all is met, and planted bugs are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from dispatch_kubeflow.backend.objects import admission
from dispatch_kubeflow.backend.operations import holding

from .queueing import Broken, QueueStory

SEEDS = range(40)
MET = {
    "start success",
    "open success",
    "hold success",
    "release success",
    "find success",
    "stop_job success",
    "hold object.stale-hold-again",
    "release object.stale-release",
    "release object.release-without-hold",
    "open request.outcome-unknown",
}


def _play(seeds: Iterable[int]) -> tuple[Counter[str], int]:
    met: Counter[str] = Counter()
    starts = 0
    for seed in seeds:
        story = QueueStory(seed)
        try:
            story.play()
        except AssertionError as broken:
            raise type(broken)(f"seed {seed}: {broken}") from broken
        met.update(f"{each.operation} {each.row}" for each in story.world.outcomes)
        starts += story.generations
    return met, starts


@pytest.mark.timeout(120)
def test_no_schedule_breaks_what_must_always_be_true() -> None:
    met, starts = _play(SEEDS)
    assert set(met) >= MET, MET - set(met)
    assert starts >= len(SEEDS)


def test_a_hold_that_only_writes_its_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "enforce", lambda *_: None)
    with pytest.raises(Broken, match=r"hold \d+ succeeded"):
        _play(SEEDS)


def test_a_controller_that_asks_for_no_rest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rests(*_: Any, **__: Any) -> admission.Rest:
        return admission.Rest("rests")

    monkeypatch.setattr(admission, "rest", rests)
    with pytest.raises(Broken, match="started beside"):
        _play(range(44, 90))
