"""Proof by property: every path returns its documented sentinel, and none lies.

Hypothesis generates requests, failures, crashes, concurrent holders and time; the public calls run against the embedded
cluster; the oracle is the tables and what the cluster itself knows.
"""
