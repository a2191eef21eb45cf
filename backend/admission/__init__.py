"""Kueue by itself starts the next generation of a job's pods beside the last one, so in kueue mode nothing of ours runs
but by this controller's word: it alone writes `active: true` and the `Ready` of our AdmissionChecks.

It remembers nothing that it could not read again: every look starts from the cluster, and a crash between any two of
its requests leaves what the next one completes. It decides by table `admission` and talks to the network through
`backend.requests` alone.
"""
