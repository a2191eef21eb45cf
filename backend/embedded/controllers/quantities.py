"""The scheduler adds quantities up, and Trainer's webhook writes them back in Kubernetes' canonical form."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
REFUSAL = f"quantities must match the regular expression '{PATTERN}'"

_FORM = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+|)")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENT = {suffix: power for power, suffix in _DECIMAL.items() if suffix}
_NANO = Decimal("1e-9")


class QuantityError(ValueError):
    """Text that is no quantity; the message is Kubernetes' own."""


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise QuantityError(REFUSAL)
    sign, digits, suffix = match.groups()
    number = Decimal(sign + digits)
    if suffix.endswith("i"):
        return number * 1024 ** _BINARY.index(suffix), "binary"
    if suffix in _EXPONENT:
        return number.scaleb(_EXPONENT[suffix]), "decimal"
    if suffix:
        return number.scaleb(int(suffix[1:])), "exponent"
    return number, "decimal"


def value(quantity: str | float) -> Decimal:
    """The amount a quantity stands for; raises QuantityError."""
    return _parse(str(quantity))[0]


@lru_cache(maxsize=4096)
def canonical(quantity: str | float) -> str:
    """The form in which Kubernetes writes a quantity: `1000m` is `1`, `0.5` is `500m`, `1.5Gi` is `1536Mi`; raises
    QuantityError.
    """
    amount, form = _parse(str(quantity))
    if form == "binary" and abs(amount) >= 1024:
        return _binary(amount)
    return _decimal(amount, exponent=form == "exponent")


def _binary(amount: Decimal) -> str:
    whole = int(amount.to_integral_value(rounding=ROUND_CEILING))
    power = 0
    while whole and whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY[power]}"


def _decimal(amount: Decimal, *, exponent: bool) -> str:
    if amount == 0:
        return "0"
    nanos = int((amount / _NANO).to_integral_value(rounding=ROUND_CEILING))
    power = -9
    while nanos % 1000 == 0 and power < 18:
        nanos //= 1000
        power += 3
    if exponent:
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL[power]}"
