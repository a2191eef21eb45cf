from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import quantities


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        (2, "2"),
        (0.5, "500m"),
        ("1e3", "1k"),
        ("1E3", "1k"),
        ("1E", "1000P"),
        ("1e-3", "1m"),
        ("100n", "0.1u"),
        (".5", "5e-1"),
        ("5.", "5"),
        ("+1", "1"),
        ("0", "0Gi"),
        ("1Ei", "1024Pi"),
        ("12345678901234567890123456789", "12345678901234567890123456789.0"),
    ],
)
def test_spellings_of_one_value_are_the_same(sent, stored):
    assert quantities.same(sent, stored)
    assert quantities.normal(sent) == quantities.normal(stored)


@pytest.mark.parametrize(("one", "other"), [("1", "1m"), ("1G", "1Gi"), ("1M", "1m"), ("1", "-1"), ("1k", "1001")])
def test_different_values_are_not_the_same(one, other):
    assert not quantities.same(one, other)


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "abc", "1K", "1ki", "1mi", "--1", "1.2.3", "1e", "1ee3", ".", "1_0", "٣", "0x10", "1e9999"],
)
def test_what_kubernetes_refuses_has_no_value(text):
    assert quantities.value(text) is None


@pytest.mark.parametrize("other", [None, True, [], {}, b"1"])
def test_other_types_have_no_value(other):
    assert quantities.value(other) is None


def test_a_text_too_long_for_a_quantity_has_no_value():
    assert quantities.value("1" * 500) is None


def test_what_is_no_quantity_is_the_same_only_as_its_equal():
    assert quantities.same("abc", "abc")
    assert not quantities.same("abc", "abd")
    assert not quantities.same("abc", "1")
    assert not quantities.same(True, 1)
    assert quantities.normal("abc") == "abc"


def test_finer_than_nano_is_rounded_away_from_zero_as_the_apiserver_does():
    assert quantities.same("0.1n", "1n")
    assert quantities.same("-0.1n", "-1n")


def test_binary_values_are_capped_as_the_apiserver_does():
    assert quantities.value("1000Ei") == Fraction(2**63 - 1)
    assert quantities.value("1000E") == Fraction(1000 * 10**18)


@given(st.integers(-(10**30), 10**30), st.sampled_from(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]))
def test_a_decimal_suffix_is_its_exponent(number, suffix):
    exponent = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}[suffix]
    assert quantities.value(f"{number}{suffix}") == Fraction(number) * Fraction(10) ** exponent
    assert quantities.same(f"{number}{suffix}", f"{number}e{exponent}")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**12), max_value=10**12))
def test_every_decimal_keeps_its_exact_value(number):
    assert quantities.value(f"{number:f}") == Fraction(number)


@given(st.text(max_size=20))
def test_no_text_raises(text):
    assert quantities.same(text, text)


def test_only_amounts_above_zero_ask_for_something():
    assert quantities.is_positive("1m")
    assert not any(quantities.is_positive(each) for each in ("0", "-1", "abc", None))


def test_a_resource_block_is_normalised_in_its_limits_and_requests_alone():
    block = {"limits": {"cpu": "1000m"}, "claims": [{"name": "1000m"}], "requests": "1000m"}
    assert quantities.normal_resources(block) == {
        "limits": {"cpu": "1"},
        "claims": [{"name": "1000m"}],
        "requests": "1000m",
    }
