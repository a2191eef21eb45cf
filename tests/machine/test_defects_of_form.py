"""The form: the loader and the published JSON Schema refuse the same, and the loader says where."""

import copy
import json

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatch_kubeflow.machine.marked import read
from dispatch_kubeflow.machine.rules.form import faults, schema
from dispatch_kubeflow.tables import directory, schema_directory

KINDS = {"vocabulary.yaml": "vocabulary", "page/rows.yaml": "rows"}
FILES = sorted(
    path.relative_to(directory()).as_posix()
    for pattern in ("*.yaml", "lifecycles/*.yaml", "page/*.yaml")
    for path in directory().glob(pattern)
)


def kind_of(file: str) -> str:
    return KINDS.get(file, "lifecycle" if file.startswith("lifecycles/") else "family")


def by_jsonschema(kind: str, data: object) -> bool:
    return not list(jsonschema.Draft202012Validator(schema(kind)).iter_errors(data))


@pytest.mark.parametrize("path", sorted(schema_directory().glob("*.json")), ids=lambda path: path.stem)
def test_each_schema_is_a_json_schema(path):
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", FILES)
def test_each_real_file_has_the_form_of_its_schema(file):
    data = read((directory() / file).read_text(encoding="utf-8")).data
    assert by_jsonschema(kind_of(file), data)
    assert faults(kind_of(file), data) == []


def rule(data):
    return data["rules"][0]


REQUEST, REGISTER = "request.yaml", "lifecycles/hold_register.yaml"
PLANTED = {
    "unknown key of a family": (REQUEST, lambda d: d.update(colour="red")),
    "unknown key of a rule": (REQUEST, lambda d: rule(d).update(colour="red")),
    "family without rules": (REQUEST, lambda d: d.update(rules=[])),
    "rules are no list": (REQUEST, lambda d: d.update(rules={})),
    "family without about": (REQUEST, lambda d: d.pop("about")),
    "empty about": (REQUEST, lambda d: d.update(about="")),
    "other hit policy": (REQUEST, lambda d: d.update(hit_policy="first")),
    "rule without id": (REQUEST, lambda d: rule(d).pop("id")),
    "rule without sentinel": (REQUEST, lambda d: rule(d).pop("sentinel")),
    "rule that refuses without a message": (REQUEST, lambda d: rule(d).pop("message")),
    "rule that refuses without a conclusion": (REQUEST, lambda d: rule(d).pop("concludes")),
    "id without a dot": (REQUEST, lambda d: rule(d).update(id="request")),
    "number for a value": (REQUEST, lambda d: rule(d).update(when={"result": 409})),
    "number in a list of values": (REQUEST, lambda d: rule(d).update(when={"result": ["a", 409]})),
    "empty list of values": (REQUEST, lambda d: rule(d).update(when={"result": []})),
    "value twice": (REQUEST, lambda d: rule(d).update(when={"result": ["a", "a"]})),
    "condition neither value nor not": (REQUEST, lambda d: rule(d).update(when={"result": {"nor": "a"}})),
    "null for a condition": (REQUEST, lambda d: rule(d).update(when={"result": None})),
    "when is a list": (REQUEST, lambda d: rule(d).update(when=["result"])),
    "input with a bad name": (REQUEST, lambda d: d["inputs"].update({"Big-Input": {"values": ["a"], "means": "x"}})),
    "input without values": (REQUEST, lambda d: d["inputs"].update(a={"values": [], "means": "x"})),
    "input with an empty mapping of values": (REQUEST, lambda d: d["inputs"].update(a={"values": {}, "means": "x"})),
    "input without meaning": (REQUEST, lambda d: d["inputs"].update(a={"values": ["a"]})),
    "detail with a bad name": (REQUEST, lambda d: rule(d).update(details=["a-b"])),
    "rule is a string": (REQUEST, lambda d: d["rules"].append("rule")),
    "state without meaning": (REGISTER, lambda d: d["states"].update(x={})),
    "initial is a string": (REGISTER, lambda d: d["states"]["none"].update(initial="yes")),
    "edge with operation and event": (REGISTER, lambda d: d["edges"][0].update(event="x")),
    "edge with neither operation nor event": (REGISTER, lambda d: d["edges"][0].pop("operation")),
    "edge without to": (REGISTER, lambda d: d["edges"][0].pop("to")),
    "edge from an empty list": (REGISTER, lambda d: d["edges"][0].update({"from": []})),
    "refusal without a rule": (REGISTER, lambda d: d["refusals"][0].pop("rule")),
    "verb of another kind": ("vocabulary.yaml", lambda d: d["operations"]["open"].update(verb="dance")),
    "conclusion without next": ("vocabulary.yaml", lambda d: d["concludes"]["refused"].pop("next")),
    "vocabulary without details": ("vocabulary.yaml", lambda d: d.pop("details")),
    "bad hash": ("page/rows.yaml", lambda d: d["rows"]["A1"][0].update(sha256="0")),
    "bad row name": ("page/rows.yaml", lambda d: d["rows"].update(a1=d["rows"]["A1"])),
    "row without sentences": ("page/rows.yaml", lambda d: d["rows"].update(A1=[])),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_loader_and_schema_both_refuse_a_planted_defect(planted):
    file, plant = PLANTED[planted]
    data = copy.deepcopy(read((directory() / file).read_text(encoding="utf-8")).data)
    plant(data)
    assert not by_jsonschema(kind_of(file), data)
    assert faults(kind_of(file), data)


@pytest.mark.parametrize("data", [None, [], "text", 3, True])
@pytest.mark.parametrize("kind", ["family", "lifecycle", "vocabulary", "rows"])
def test_loader_and_schema_both_refuse_what_is_no_mapping(kind, data):
    assert not by_jsonschema(kind, data)
    assert faults(kind, data) == [((), "must be a mapping")]


def test_a_defect_of_form_is_told_with_its_place_and_rule(tables):
    tables.replace("request.yaml", 'result: "409"', "result: 409", after="id: request.conflict")
    complaint = tables.only("must be a string; quote it if it is one")
    assert (complaint.file, complaint.rule) == ("request.yaml", "request.conflict")
    assert complaint.line == tables.line("request.yaml", "result: 409")
    assert str(complaint) == (
        f"request.yaml:{complaint.line}:{complaint.column}: request.conflict: "
        "must be a string; quote it if it is one or a list or a mapping"
    )


def test_an_unknown_key_is_told_with_those_that_are_known(tables):
    tables.replace("request.yaml", "stage: request", "stgae: request", after="id: request.conflict")
    complaint = tables.only("unknown key stgae")
    assert "the keys are id, spec" in complaint.text
    assert complaint.line == tables.line("request.yaml", "stgae")


def test_a_rule_without_a_usable_id_is_told_by_its_place_alone(tables):
    tables.replace("request.yaml", "id: request.conflict", "id: [request.conflict]")
    assert {each.rule for each in tables.check()} == {None}


def test_a_rule_that_is_no_mapping_is_told_by_its_place_alone(tables):
    tables.add("request.yaml", "  - request.again\n")
    assert tables.only("must be a mapping").rule is None


def test_malformed_yaml_is_told_with_its_place(tables):
    tables.replace("request.yaml", "inputs:", "inputs: [")
    complaint = tables.check()[0]
    assert complaint.file == "request.yaml"
    assert complaint.line >= tables.line("request.yaml", "inputs: [")


def test_a_key_given_twice_is_told_with_its_place(tables):
    tables.replace(
        "request.yaml", "    stage: request", "    spec: A4\n    stage: request", after="id: request.conflict"
    )
    complaint = tables.only("the key 'spec' twice")
    assert complaint.line == tables.line("request.yaml", "spec: A4", after="spec: A4\n") + 1


def test_a_file_that_is_not_utf_8_is_told(tables):
    (tables.path / "request.yaml").write_bytes(b"family: \xff")
    assert tables.only("can't be read").file == "request.yaml"


@pytest.mark.parametrize("file", ["vocabulary.yaml", "page/rows.yaml", "request.yaml"])
def test_half_of_a_character_is_told(tables, file):
    tables.write(file, json.dumps({"a": "\ud800"}))
    assert any("half of a character" in each.text for each in tables.check())


def test_a_defect_outside_the_rules_has_no_rule(tables):
    tables.replace("request.yaml", "hit_policy: unique", "hit_policy: first")
    complaint = tables.only("must be unique")
    assert (complaint.rule, complaint.line) == (None, tables.line("request.yaml", "hit_policy"))


REAL = {file: read((directory() / file).read_text(encoding="utf-8")).data for file in FILES}
VALIDATORS = {
    kind: jsonschema.Draft202012Validator(schema(kind)) for kind in ("family", "lifecycle", "vocabulary", "rows")
}
anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.just(""), st.just("all"), st.just("none"),
    st.just([]), st.just({}), st.just(["a", "a"]), st.just(["a", 1]), st.just({"not": "a"}), st.just({"not": []}),
    st.just({"means": "x"}), st.just({"values": ["a"], "means": "x"}), st.text(max_size=3),
)  # fmt: skip


def spoil(data, choose, value):
    """Walk down to some part, and replace it, remove it, or put something beside it."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = choose(keys)
        if isinstance(data[key], dict | list) and data[key] and choose([True, True, True, False]):
            data = data[key]
            continue
        how = choose(["replace", "remove", "add"])
        if how == "replace":
            data[key] = value
        elif how == "remove":
            del data[key]
        elif isinstance(data, dict):
            data[choose(["colour", "not", "when", "reason", "event", "default"])] = value
        else:
            data.append(value)
        return


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["request.yaml", "record.yaml", REGISTER, "vocabulary.yaml", "page/rows.yaml"]), st.data(), anything
)
def test_loader_and_schema_agree_on_whatever_is_spoilt(file, drawn, value):
    data = copy.deepcopy(REAL[file])
    spoil(data, lambda options: drawn.draw(st.sampled_from(options)), value)
    assert bool(faults(kind_of(file), data)) is not VALIDATORS[kind_of(file)].is_valid(data)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file=st.sampled_from(["small.yaml", "lifecycles/door.yaml", "vocabulary.yaml", "page/rows.yaml"]),
    drawn=st.data(),
    value=anything,
)
def test_whatever_is_spoilt_is_complained_of_or_proved_and_nothing_else_happens(small, file, drawn, value):
    original = small.text(file)
    data = copy.deepcopy(read(original).data)
    spoil(data, lambda options: drawn.draw(st.sampled_from(options)), value)
    small.write(file, json.dumps(data))
    try:
        complaints = small.check()
    finally:
        small.write(file, original)
    assert all(each.file and each.line >= 1 and each.text for each in complaints)
