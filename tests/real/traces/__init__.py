"""What can be watched of a training job, scenario by scenario: recorded on the real control plane, true of every other.

A trace is what a watch saw, object by object and facet by facet: the values one after another, without times, without
repetitions. How the changes of different objects are mixed is left out, for that is chance.
"""
