"""Kueue 0.19.2, as far as a TrainJob, its adapter and an admission check's controller can see it: queues, quota,
preemption, checks, eviction. Built from its source and held to what the real one was recorded to do.
"""
