"""The page: rows nobody cites, rows that are not there, sentences that are not the page's any more."""

ROWS = "page/rows.yaml"


def test_a_row_that_no_rule_cites_is_a_defect(tables):
    tables.replace(ROWS, "rows:\n", "rows:\n  Z9:\n    - {text: '404 Not Found ErrNotFound', sha256: HASH}\n")
    tables.replace(ROWS, "HASH", "f9945be41ad668a9f36ce59fa5237b4171dde37a792be8e59e54212edfeb71e3")
    complaint = tables.only("no rule cites the row Z9")
    assert (complaint.file, complaint.line) == (ROWS, tables.line(ROWS, "Z9:"))


def test_a_rule_that_cites_no_row_of_the_page_is_a_defect(tables):
    tables.replace("request.yaml", "spec: A4", "spec: A99")
    complaint = tables.only("cites A99, no row of the page")
    assert (complaint.file, complaint.rule) == ("request.yaml", "request.conflict")
    assert complaint.line == tables.line("request.yaml", "spec: A99")


def test_an_edge_that_cites_no_row_of_the_page_is_a_defect(tables):
    tables.replace("lifecycles/hold_register.yaml", "spec: C24", "spec: C99")
    assert tables.only("cites C99").rule == "hold_register.first-hold"


def test_a_sentence_whose_hash_differs_names_the_rules_that_stand_on_it(tables):
    tables.replace(ROWS, "sha256: b6714673", "sha256: b6714674", after="  A4:")
    complaint = tables.only("the sentence of A4 differs from its hash")
    assert complaint.line == tables.line(ROWS, "sha256: b6714674")
    assert "it concerns request.conflict" in complaint.text


def test_a_sentence_that_is_not_on_the_page_names_the_rules_that_stood_on_it(tables):
    tables.replace("page/error-mapping.txt", "409 Conflict ErrRejected", "409 Conflict ErrUnreachable")
    complaint = tables.only("the sentence of A4 is not on the page")
    assert complaint.line == tables.line(ROWS, "- text:", after="  A4:")
    assert "request.conflict" in complaint.text


def test_a_page_that_changed_elsewhere_is_a_defect_too(tables):
    tables.write("page/error-mapping.txt", tables.text("page/error-mapping.txt") + "One more row.\n")
    complaint = tables.only("the page is another than the one whose hash this is")
    assert complaint.line == tables.line(ROWS, "sha256:")


def test_a_page_that_is_missing_is_a_defect(tables):
    (tables.path / "page/error-mapping.txt").unlink()
    assert tables.only("the page can't be read").line == tables.line(ROWS, "page:")


def test_a_sentence_of_a_row_that_nobody_cites_concerns_no_rule(small):
    small.replace(
        ROWS, "rows:\n", "rows:\n  B1:\n    - {text: 'not there', sha256: '{HASH}'}\n".replace("{HASH}", "0" * 64)
    )
    assert small.only("the sentence of B1 is not on the page").text.endswith("it concerns no rule")
