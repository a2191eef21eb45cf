"""A digest must stay the same however a server writes down the same thing, and differ for everything else: so objects
are brought to one form first. Nulls are dropped (a server drops them), whole numbers written with a point become
whole, and resource quantities are taken by value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from . import quantities

_RESOURCE_BLOCKS: Final = frozenset({"resources", "resourcesPerNode"})


def digest(value: object) -> str:
    """The digest of decoded JSON, in one form for all spellings of one value."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def canonical(value: object) -> Any:
    """Decoded JSON in the form that is digested."""
    if isinstance(value, Mapping):
        return {key: _member(key, each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [canonical(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _member(key: str, value: object) -> Any:
    if key in _RESOURCE_BLOCKS and isinstance(value, Mapping):
        value = quantities.normal_resources(value)
    return canonical(value)


def plain(value: object) -> Any:
    """A copy of decoded JSON, or of a caller's mappings and tuples, as fresh dictionaries and lists without nulls."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value if each is not None]
    return value
