import json

from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects.digest import canonical, digest, plain

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_a_digest_survives_being_sent_and_read(value):
    assert digest(json.loads(json.dumps(value))) == digest(value)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_the_order_of_keys_and_dropped_nulls_do_not_matter(value):
    reordered = {key: value[key] for key in reversed(value) if value[key] is not None}
    assert digest(reordered) == digest(value)


def test_a_whole_number_written_with_a_point_is_the_same():
    assert digest({"numNodes": 2.0}) == digest({"numNodes": 2})
    assert digest({"numNodes": 2.5}) != digest({"numNodes": 2})


def test_true_is_not_one():
    assert digest(True) != digest(1)


def test_quantities_count_by_value_in_resource_blocks_alone():
    assert digest({"resources": {"limits": {"cpu": "1000m"}}}) == digest({"resources": {"limits": {"cpu": "1"}}})
    assert digest({"env": [{"name": "A", "value": "1000m"}]}) != digest({"env": [{"name": "A", "value": "1"}]})


def test_the_order_of_a_list_counts():
    assert digest([1, 2]) != digest([2, 1])


@given(values)
def test_the_canonical_form_is_its_own(value):
    assert canonical(canonical(value)) == canonical(value)


def test_plain_makes_fresh_containers_without_nulls():
    given_one = {"a": None, "b": (1, None), "c": {"d": None}}
    made = plain(given_one)
    assert made == {"b": [1], "c": {}}
    assert made["c"] is not given_one["c"]
