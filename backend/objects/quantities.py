"""The webhooks rewrite resource quantities (`1000m` to `1`, `1.5Gi` to `1536Mi`) whenever a TrainJob carries a
runtime patch, so quantities are compared by value: exactly, with every suffix and exponent, and rounded as Kubernetes
rounds.

The client's own `parse_quantity` is not used: it loses digits beyond Decimal's context and takes `12E` for an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

_FORM = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,3})?", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO: Final = 10**9
_GREATEST_BINARY: Final = Fraction(2**63 - 1)
_LONGEST: Final = 400


def value(quantity: object) -> Fraction | None:
    """The exact value of a quantity as Kubernetes holds it; None for what Kubernetes would not take as one.

    A number is taken as its decimal text, for JSON may carry one. Finer than nano is rounded away from zero, and a
    value with a binary suffix is capped at 2**63-1, as the apiserver does both.
    """
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        return None
    text = quantity if isinstance(quantity, str) else repr(quantity)
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    sign, digits, suffix = found.group(1), found.group(2), found.group(3) or ""
    amount = Fraction(digits.rstrip(".")) * _factor(suffix)
    nanos = -(-amount.numerator * _NANO // amount.denominator)  # rounded up
    amount = Fraction(nanos, _NANO)
    if suffix in _BINARY:
        amount = min(amount, _GREATEST_BINARY)
    return -amount if sign == "-" else amount


def _factor(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return Fraction(10) ** exponent


def same(one: object, other: object) -> bool:
    """Whether two quantities have one value; what is no quantity is the same only as its equal."""
    first, second = value(one), value(other)
    if first is None or second is None:
        return type(one) is type(other) and one == other
    return first == second


def normal(quantity: object) -> object:
    """One text for all quantities of one value; what is no quantity is returned as it is."""
    amount = value(quantity)
    return quantity if amount is None else str(amount)


def is_positive(quantity: object) -> bool:
    """Whether a quantity asks for something."""
    amount = value(quantity)
    return amount is not None and amount > 0


def normal_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """A resource block with the quantities of its `limits` and `requests` in one text each."""
    return {
        key: {name: normal(each) for name, each in block.items()}
        if key in {"limits", "requests"} and isinstance(block, Mapping)
        else block
        for key, block in resources.items()
    }
