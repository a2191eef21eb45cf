"""Copies of plain objects: `copy.deepcopy` is ten times too slow for a store written thousands of times a second."""

from __future__ import annotations

from typing import Any


def copied(value: Any) -> Any:
    """A copy of a JSON-like value that shares no dict or list with it."""
    if type(value) is dict:
        return {key: copied(item) if type(item) in (dict, list) else item for key, item in value.items()}
    if type(value) is list:
        return [copied(item) if type(item) in (dict, list) else item for item in value]
    return value
