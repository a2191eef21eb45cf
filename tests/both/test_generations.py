"""Kueue alone starts the next generation of a job's pods beside the last one, through preemption and when its Workload
is lost; jobs of this library, behind the controller, never run beside themselves.
"""

from __future__ import annotations

from .queue_scene import ASKED, SLOWLY, SOON, VERY_SLOWLY, QueueScene
from .scene import soon


def test_kueue_alone_overlaps_two_generations_through_preemption(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=False)
    with queue_scene.looking() as seen:
        queue_scene.by_hand("victim", VERY_SLOWLY)
        queue_scene.running("victim")
        queue_scene.by_hand("urgent", SOON, urgent=True)
        queue_scene.wait_for(lambda: seen.times("victim") == 2)
    assert ("victim", "0") in seen.overlaps


def test_the_controller_keeps_them_apart_through_preemption_hold_and_a_lost_workload(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=True)
    queue_scene.steer(SLOWLY)
    with queue_scene.controller() as controller, queue_scene.looking() as seen:
        queue_scene.wait_for(lambda: ("serve", "ok") in controller.writes)
        backend = queue_scene.queue_backend()
        victim = queue_scene.start(backend, "victim", resources=ASKED)
        backend.open(victim, ctx=soon())
        queue_scene.wait_for(lambda: seen.times("victim-1") == 1)

        urgent = queue_scene.start(backend, "urgent", resources=ASKED)
        queue_scene.make_urgent(urgent.name)
        backend.open(urgent, ctx=soon())
        queue_scene.wait_for(lambda: seen.times("urgent-1") == 1)
        backend.stop_job("urgent", ctx=soon())
        queue_scene.wait_for(lambda: seen.times("victim-1") == 2)

        backend.hold(victim, 1, ctx=soon())
        backend.release(victim, 1, ctx=soon())
        queue_scene.wait_for(lambda: seen.times("victim-1") == 3)

        queue_scene.delete_workload(victim.name)
        queue_scene.wait_for(lambda: seen.times("victim-1") == 4)
    assert seen.overlaps == set()
    assert not [each for each in controller.requests if each[2] == "denied"]
    assert "admission.start-waits" in controller.rules
    assert "admission.release" in controller.rules
