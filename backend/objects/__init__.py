"""Everything known about the shape of Kubernetes objects: what is written, what is read, and what follows from it.

Pure functions over objects. Nothing here talks to a network or reads a clock; times are passed in. Nothing here
raises a sentinel either: a function returns facts, values and problems, and the tables decide.
"""
