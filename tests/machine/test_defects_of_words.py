"""Words: unknown, misplaced, without a meaning or without a use."""

import pytest

CONFLICT = "id: request.conflict"


@pytest.mark.parametrize(
    ("old", "new", "marker", "text"),
    [
        ("reason: {not", "raeson: {not", "raeson:", "unknown input 'raeson'"),
        (
            "{not: AlreadyExists}",
            "{not: AlreadyThere}",
            "reason: {not: AlreadyThere",
            "unknown value of reason 'AlreadyThere'",
        ),
        ('result: "409"', 'result: "410 "', 'result: "410 "', "unknown value of result '410 '"),
        ("sentinel: ErrRejected", "sentinel: ErrRefused", "sentinel: ErrRefused", "unknown sentinel 'ErrRefused'"),
        ("stage: request", "stage: asked", "stage: asked", "unknown stage 'asked'"),
        ("concludes: not-applied", "concludes: hopeful", "concludes: hopeful", "unknown conclusion 'hopeful'"),
        ("concludes:", "effects: [luck]\n    concludes:", "effects: [luck]", "unknown effect 'luck'"),
        (
            "[method, target, status,",
            "[method, target, status, mood,",
            "details: [method, target, status, mood",
            "unknown detail 'mood'",
        ),
        (
            "stage: request",
            "stage: request\n    operations: [open, clsoe]",
            "operations: [open, clsoe]",
            "unknown operation 'clsoe'",
        ),
        ("stage: request", "stage: request\n    modes: [plian]", "modes: [plian]", "unknown mode 'plian'"),
    ],
)
def test_an_unknown_name_in_a_rule_is_a_defect(tables, old, new, marker, text):
    tables.replace("request.yaml", old, new, after=CONFLICT)
    complaint = tables.only(text)
    assert (complaint.file, complaint.rule) == ("request.yaml", "request.conflict")
    assert complaint.line == tables.line("request.yaml", marker, after=CONFLICT)
    assert "the known ones are" in complaint.text


def test_a_family_with_unknown_inputs_is_not_also_called_uncovered(tables):
    tables.replace("request.yaml", "reason: {not", "raeson: {not", after=CONFLICT)
    assert len(tables.check()) == 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("operations: [factory,", "operations: [factroy,", "unknown operation 'factroy'"),
        ("modes: [plain,", "modes: [plian,", "unknown mode 'plian'"),
        ("family: request", "family: requests", "the family requests stands in the file of request"),
    ],
)
def test_an_unknown_name_in_a_family_is_a_defect(tables, old, new, text):
    tables.replace("request.yaml", old, new)
    complaint = tables.only(text)
    assert complaint.file == "request.yaml"
    assert complaint.line == tables.line("request.yaml", new)


def test_an_id_given_twice_is_a_defect_that_names_the_first(tables):
    first = tables.line("request.yaml", "id: request.unsent")
    tables.replace("request.yaml", CONFLICT, "id: request.unsent")
    complaint = tables.only("the id is given twice")
    assert complaint.line == tables.line("request.yaml", "id: request.unsent", after="request.already-exists")
    assert complaint.text.endswith(f"first in request.yaml:{first}")
    assert complaint.rule == "request.unsent"


def test_an_id_given_twice_in_two_files_is_a_defect(tables):
    tables.replace("backend.yaml", "id: backend.closed", "id: request.unsent")
    assert "given twice" in "".join(each.text for each in tables.check())


def test_an_id_without_the_familys_prefix_is_a_defect(tables):
    tables.replace("request.yaml", CONFLICT, "id: requests.conflict")
    complaint = tables.only("the id must begin with request.")
    assert (complaint.line, complaint.rule) == (tables.line("request.yaml", "requests.conflict"), "requests.conflict")


def test_a_rule_of_ours_without_a_reason_is_a_defect(tables):
    tables.replace("request.yaml", "spec: A4", "spec: [A4, ours]", after=CONFLICT)
    complaint = tables.only("gives its reason")
    assert (complaint.line, complaint.rule) == (tables.line("request.yaml", "[A4, ours]"), "request.conflict")


@pytest.mark.parametrize("named", ["{colour}", "{retry_after}", "{0}", "{}", "{subject.x}"])
def test_a_message_that_names_what_the_required_details_do_not_give_is_a_defect(tables, named):
    tables.replace("request.yaml", "{target} changed", f"{named} changed", after=CONFLICT)
    complaint = tables.only("which the required details do not give")
    assert complaint.line == tables.line("request.yaml", f"{named} changed")
    assert complaint.rule == "request.conflict"


def test_a_malformed_message_is_a_defect(tables):
    tables.replace("request.yaml", "{target} changed", "{target changed", after=CONFLICT)
    assert tables.only("the message is malformed").rule == "request.conflict"


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("operations", '  dance: {verb: read, means: "x"}'),
        ("modes", '  brave: {means: "x"}'),
        ("stages", '  second: {means: "x"}'),
        ("concludes", '  hopeful: {means: "x", next: "y"}'),
        ("effects", '  luck: {means: "x"}'),
        ("details", '  mood: {means: "x"}'),
    ],
)
def test_a_word_without_use_is_a_defect(tables, kind, entry):
    tables.replace("vocabulary.yaml", f"\n{kind}:\n", f"\n{kind}:\n{entry}\n")
    name = entry.split(":")[0].strip()
    complaint = tables.only(f"no table uses {name} of the {kind}")
    assert (complaint.file, complaint.line) == ("vocabulary.yaml", tables.line("vocabulary.yaml", entry))


def test_a_sentinel_without_use_is_a_defect(small):
    small.add("vocabulary.yaml", "")
    small.replace("vocabulary.yaml", "sentinels:\n", 'sentinels:\n  ErrInvalid: {means: "x", next: "y"}\n')
    assert small.only("no table uses ErrInvalid of the sentinels").line == small.line("vocabulary.yaml", "ErrInvalid")


def test_a_parent_is_of_use_where_its_child_is(small):
    small.replace(
        "vocabulary.yaml",
        "sentinels:\n",
        'sentinels:\n  ErrPodsRemain: {parent: ErrUnreachable, means: "x", next: "y"}\n',
    )
    small.replace("small.yaml", "sentinel: ErrUnreachable", "sentinel: ErrPodsRemain")
    assert small.check() == []


def test_a_sentinel_that_is_no_error_class_is_a_defect(small):
    small.replace("vocabulary.yaml", "sentinels:\n", 'sentinels:\n  ErrBored: {means: "x", next: "y"}\n')
    assert small.only("unknown error class 'ErrBored'").file == "vocabulary.yaml"


def test_a_sentinel_with_another_parent_than_its_class_is_a_defect(tables):
    tables.replace("vocabulary.yaml", "parent: ErrRejected", "parent: ErrInvalid", after="ErrStaleHold:")
    complaint = tables.only("the class ErrStaleHold is one of ErrRejected, not of ErrInvalid")
    assert complaint.line == tables.line("vocabulary.yaml", "ErrStaleHold:")


def test_an_input_that_no_rule_asks_for_is_a_defect(tables):
    tables.replace("request.yaml", "inputs:\n", 'inputs:\n  moon: {values: [new, full], means: "x"}\n')
    complaint = tables.only("no rule asks for the input moon")
    assert complaint.line == tables.line("request.yaml", "moon:")


@pytest.mark.parametrize("name", ["operation", "mode"])
def test_an_input_named_as_what_every_family_has_is_a_defect(tables, name):
    tables.replace("request.yaml", "inputs:\n", f'inputs:\n  {name}: {{values: [new, full], means: "x"}}\n')
    tables.only(f"an input can't be named {name}")


def test_a_default_that_is_no_value_is_a_defect(small):
    small.replace("small.yaml", "means: colour}", "means: colour, default: pink}")
    assert small.only("unknown value 'pink'").line == small.line("small.yaml", "colour: {values")


def test_a_condition_that_leaves_no_value_is_a_defect(tables):
    tables.replace("request.yaml", "{not: AlreadyExists}", "{not: [AlreadyExists, other]}", after=CONFLICT)
    assert tables.only("leaves no value of reason").rule == "request.conflict"


def test_a_value_given_without_a_declared_output_is_a_defect(tables):
    tables.replace("request.yaml", "    sentinel", "    gives: joy\n    sentinel", after=CONFLICT)
    assert tables.only("the family declares no output").rule == "request.conflict"


def test_an_unknown_value_given_is_a_defect(tables):
    tables.replace("record.yaml", "gives: refused", "gives: refsued", after="id: record.invalid")
    complaint = tables.only("unknown value of recorded 'refsued'")
    assert complaint.line == tables.line("record.yaml", "refsued")


def test_a_classifying_rule_that_gives_nothing_is_a_defect(tables):
    tables.replace("record.yaml", "    gives: refused\n", "", after="id: record.invalid")
    assert tables.only("gives no recorded").rule == "record.invalid"


def test_a_classifying_family_may_also_refuse(small):
    small.replace("small.yaml", "inputs:", "output: {name: colour, values: [dark, light]}\ninputs:")
    for rule in ("small.fine", "small.rest"):
        small.replace("small.yaml", "    sentinel", "    gives: dark\n    sentinel", after=f"id: {rule}")
    assert small.check() == []
