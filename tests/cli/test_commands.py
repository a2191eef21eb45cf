"""The commands, as a script sees them: what goes to which stream, and with which exit code they end."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dispatch_kubeflow import backend as backends
from dispatch_kubeflow.backend.cli.app import app, execute
from dispatch_kubeflow.backend.cli.exits import MEANS, Exit, code_of_sentinel
from dispatch_kubeflow.backend.cli.journal import Attempt
from dispatch_kubeflow.backend.cli.pages import family_page
from dispatch_kubeflow.backend.cli.run import interrupted
from dispatch_kubeflow.backend.objects.found import Capabilities, Capability, Cause, Cessation, Evidence
from dispatch_kubeflow.backend.objects.record import Hold
from dispatch_kubeflow.backend.objects.state import Drift, PodCounts
from dispatch_kubeflow.backend.objects.workload import Waiting
from dispatch_kubeflow.machine import ErrRejected
from dispatch_kubeflow.machine.errors import sentinels
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.rules.model import Family, Rule

from .conftest import ScriptedBackend, found, ref, seen

DOCS = Path(__file__).parents[2] / "docs"
REF = str(ref("fit-1"))
JOB = str(DOCS / "examples/fit.yaml")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    path = tmp_path / "settings.yaml"
    path.write_text("{name: west, namespace: team-a, runtimes: [ClusterTrainingRuntime/torch-distributed]}\n")
    monkeypatch.setenv("DISPATCH_KUBEFLOW_SETTINGS", str(path))
    return path


@pytest.fixture
def command(settings, monkeypatch, capfd):
    """Runs one command line on a scripted Backend: its exit code, standard output and standard error."""

    def command(*arguments, **script):
        command.backend = ScriptedBackend(script)
        monkeypatch.setattr(backends, "factory", lambda *_, **__: command.backend)
        code = execute(arguments)
        return code, *capfd.readouterr()

    return command


def refusal():
    return ErrRejected(
        "fit-1 changed.", row="request.conflict", operation="open", subject="fit-1", details={"status": 409}
    )


# The calls


def test_start_prints_the_reference(command):
    code, out, _ = command("start", "fit", "1", JOB, start=[ref("fit-1")])
    assert (code, out) == (0, f"{REF}\n")
    assert command.backend.calls[0] == ("start", "fit", 1)


def test_find_shows_each_object_with_its_reference(command):
    objects = [
        seen(
            state="opened",
            hold_register=Hold(3, held=False),
            pods=PodCounts(running=2),
            failing=True,
            waiting=Waiting("ErrImagePull", "no image"),
            drift=(Drift("spec.suspend", "false", "true"),),
            cause=Cause("image", exit_code=None),
        ),
        seen("fit-1-x", "Pod", state="orphaned"),
    ]
    code, out, _ = command("find", "fit", find=[found(*objects, in_flight=(2,))])
    assert code == 0
    assert out.splitlines() == [
        (
            "TrainJob fit-1 · opened · hold 3 released · pods: 2 running · failing · waiting: ErrImagePull no image"
            " · drift: spec.suspend is true, the record wants false · cause: image"
        ),
        f"  {REF}",
        "Pod fit-1-x · orphaned",
        f"  {ref('fit-1-x', 'Pod')}",
        "attempt 2 is in flight: its create may still take effect",
    ]


def test_find_of_nothing_says_so(command):
    assert command("find", "fit", find=[found()])[:2] == (0, "nothing of fit\n")


def test_find_as_json_is_one_document(command):
    _, out, err = command("find", "fit", "--json", find=[found(seen())])
    assert json.loads(out)["objects"][0]["ref"] == REF
    assert err == ""


def test_watch_shows_each_view(command):
    code, out, _ = command("watch", "fit", "--timeout", "5", watch=[found(seen()), found(seen(state="opened"))])
    assert code == 0
    assert out.splitlines() == ["TrainJob fit-1 · gated", "TrainJob fit-1 · opened"]


@pytest.mark.parametrize(
    ("arguments", "call", "done"),
    [
        (("open", REF), ("open", REF), "opened"),
        (("hold", REF, "2"), ("hold", REF, 2), "held"),
        (("release", REF, "2"), ("release", REF, 2), "released"),
        (("stop", REF), ("stop", REF), "stopped"),
        (("stop-job", "fit"), ("stop_job", "fit"), "stopped"),
    ],
)
def test_a_call_that_gives_nothing_says_what_it_did(command, arguments, call, done):
    assert command(*arguments)[:2] == (0, f"{done}\n")
    assert command.backend.calls == [call, ("close",)]
    assert json.loads(command(*arguments, "--json")[1]) == {"done": done}


def test_output_prints_lines_as_they_are(settings, monkeypatch, capfdbinary):
    monkeypatch.setattr(backends, "factory", lambda *_, **__: ScriptedBackend({"output": [[b"a", b"\xff\x1b["]]}))
    assert execute(("output", "fit", "--tail", "2")) == 0
    assert capfdbinary.readouterr().out == b"a\n\xff\x1b[\n"


def test_output_as_json_is_a_document_a_line(command):
    _, out, _ = command("output", "fit", "-f", "--json", output=[[b"a", b"b"]])
    assert [json.loads(line) for line in out.splitlines()] == [{"line": "a"}, {"line": "b"}]


def test_ceased_shows_its_evidence(command):
    evidence = (Evidence("terminated", "fit-1-x", "u", text="ended at noon"),)
    code, out, _ = command("ceased", REF, ceased=[Cessation(True, evidence)])
    assert code == 0
    assert out == "ceased\n  terminated     fit-1-x: ended at noon (from the cluster)\n"


def test_what_is_not_shown_to_have_ceased_has_an_exit_code_of_its_own(command):
    code, out, _ = command("ceased", REF, ceased=[Cessation(False, may_make_pods=("Job fit-1-node-0",))])
    assert (code, out) == (92, "not shown to have ceased\n  may still make pods: Job fit-1-node-0\n")


def test_capabilities_are_shown_with_their_reasons(command):
    yes = Capability("yes", "it may")
    code, out, _ = command("capabilities", JOB, capabilities=[Capabilities(yes, Capability("no", "off"), yes)])
    assert code == 0
    assert out.splitlines()[1] == "output_read  no: off"


def test_run_ends_with_the_jobs_exit_status(command, tmp_path):
    view = found(seen(state="ended", cause=Cause("application", exit_code=3)))
    code, out, err = command(
        "run",
        JOB,
        "--journal",
        str(tmp_path / "j"),
        find=[found()],
        start=[ref("fit-1")],
        watch=[view],
        output=[[b"hello"]],
    )
    assert (code, out) == (3, "hello\n")
    assert err.splitlines()[-1] == "fit-1 ended: application (exit status 3)"


# Errors


def test_an_error_is_its_sentence_its_row_and_the_next_step(command):
    code, out, err = command("open", REF, open=[refusal()])
    assert code == Exit.ERR_REJECTED
    assert out == ""
    first, second, third = err.splitlines()
    assert first == "fit-1 changed."
    assert "ErrRejected, row request.conflict." in second
    assert third.strip().startswith("Next: ")


def test_an_error_as_json_is_a_document_on_standard_output(command):
    code, out, err = command("open", REF, "--json", open=[refusal()])
    error = json.loads(out)["error"]
    assert (code, err) == (Exit.ERR_REJECTED, "")
    assert error["sentinel"] == "ErrRejected"
    assert error["row"] == "request.conflict"
    assert error["details"] == {"status": 409}
    assert error["concludes"] == "not-applied"
    assert error["next"]


def test_every_sentinel_has_an_exit_code_of_its_own():
    codes = {code_of_sentinel(name) for name in sentinels()}
    assert len(codes) == len(sentinels())


def test_every_exit_code_is_documented():
    reference = (DOCS / "cli.md").read_text()
    assert set(MEANS) == set(Exit)
    for code in Exit:
        assert f"\n| {int(code)} |" in reference


def test_every_command_is_documented():
    reference = (DOCS / "cli.md").read_text()
    names = [each.name or each.callback.__name__ for each in app.registered_commands]
    assert len(names) == 16
    for name in names:
        assert f"| `{name}" in reference


def test_a_fault_of_the_program_is_one_line(command):
    code, _, err = command("find", "fit", find=[ZeroDivisionError("division by zero")])
    assert code == Exit.INTERNAL
    assert err == "dispatch-kubeflow itself failed: ZeroDivisionError: division by zero\n"


def test_a_fault_of_the_program_shows_where_if_asked(command, monkeypatch):
    monkeypatch.setenv("DISPATCH_KUBEFLOW_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        command("find", "fit", find=[ZeroDivisionError()])


def test_an_interrupt_has_the_shells_exit_code(command):
    assert command("find", "fit", find=[KeyboardInterrupt()])[0] == 130


def test_a_wrong_command_line_ends_with_2(command):
    code, out, err = command("hold", REF)
    assert (code, out) == (2, "")
    assert "INSTANCE" in err


def test_a_wrong_option_is_told_with_its_value_and_whose_help_to_ask_for(command):
    _, _, err = command("find", "fit", "--timeout", "-1")
    assert "'--timeout'" in err
    assert "it is '-1'" in err
    assert "Try: dispatch-kubeflow find --help" in err
    assert "it is '-2'" in command("find", "fit", "--timeout=-2")[2]
    assert "Try: dispatch-kubeflow --help" in command("nonsense")[2]


def test_a_wrong_command_line_is_json_too(command):
    code, out, err = command("explain", "--json")
    assert code == Exit.USAGE
    assert "explain --help" in json.loads(out)["error"]["next"]
    assert err == ""


def test_the_version_can_be_asked_for(command):
    code, out, _ = command("--version")
    assert (code, out) == (0, f"dispatch-kubeflow {version('dispatch-kubeflow')}\n")


def test_a_kubeconfig_that_cannot_be_written_is_refused_with_the_next_step(command, tmp_path):
    code, _, err = command("cluster", "--kubeconfig", str(tmp_path / "nowhere/kubeconfig"))
    assert code == Exit.USAGE
    assert "Name a file in a folder that is there." in err


def test_a_job_file_whose_name_is_no_job_id_asks_for_one(command, tmp_path):
    job = tmp_path / "My_Job.yaml"
    job.write_text(Path(JOB).read_text())
    code, _, err = command("run", str(job))
    assert code == Exit.USAGE
    assert "--job" in err


def test_a_job_that_is_not_valid_uses_up_no_attempt(command, tmp_path):
    job = tmp_path / "none.yaml"
    job.write_text(Path(JOB).read_text().replace("nodes: 2", "nodes: 0"))
    code, _, err = command("run", str(job))
    assert code == Exit.ERR_INVALID
    assert f"In {job}" in err
    assert not (tmp_path / "none.journal.jsonl").exists()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, "nothing of the job was left running"),
        ("opened", "fit-2 goes on. The same command follows it; `dispatch-kubeflow stop-job fit` ends it."),
        ("gated", "fit-2 stays gated."),
        ("planned", "fit-2 may have been created."),
    ],
)
def test_an_interrupted_run_says_what_becomes_of_the_job(state, told):
    assert told in interrupted("fit", None if state is None else Attempt(2, state))


def test_an_interrupt_of_run_is_told(command, tmp_path):
    code, _, err = command("run", JOB, "--journal", str(tmp_path / "journal"), find=[KeyboardInterrupt()])
    assert code == Exit.INTERRUPTED
    assert "interrupted; nothing of the job" in err


def test_settings_must_be_named(command, monkeypatch):
    monkeypatch.delenv("DISPATCH_KUBEFLOW_SETTINGS")
    code, _, err = command("find", "fit")
    assert code == Exit.USAGE
    assert "--settings" in err


def test_invalid_settings_are_errinvalid_with_the_line(command, settings):
    settings.write_text("name: west\nnamespace: team-a\nruntimes: []\n")
    code, _, err = command("find", "fit", "--settings", str(settings))
    assert code == Exit.ERR_INVALID
    assert "runtimes" in err
    assert f"In {settings}, line 3" in err


def test_a_refusal_of_the_command_line_itself_is_json_too(command, monkeypatch):
    monkeypatch.delenv("DISPATCH_KUBEFLOW_SETTINGS")
    _, out, _ = command("find", "fit", "--json")
    assert json.loads(out)["error"]["sentinel"] is None


def test_a_reader_that_goes_away_is_no_fault():
    program = [sys.executable, "-m", "dispatch_kubeflow.backend.cli", "tables", "show", "start"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait() == Exit.PIPE
        assert process.stderr.read() == b""


def test_without_its_extra_the_command_says_so_in_one_line():
    hidden = "import sys; sys.modules['typer'] = None; from dispatch_kubeflow.backend.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "dispatch-kubeflow: the command line needs its extra: pip install 'dispatch-kubeflow[cli]'\n"


@pytest.mark.parametrize("arguments", [["demo"], ["cluster", "--kubeconfig", "unused"]])
def test_without_its_extra_the_embedded_cluster_says_so(arguments):
    hidden = "import sys; sys.modules['cryptography'] = None; from dispatch_kubeflow.backend.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", hidden, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == Exit.USAGE
    assert "dispatch-kubeflow[cli,embedded]" in done.stderr
    assert "Traceback" not in done.stderr


# The rules


def test_explain_of_a_row_gives_the_pages_sentence_and_its_rules(command):
    code, out, _ = command("explain", "C25")
    assert code == 0
    assert "“Open or Release while pods of the object remain" in out
    assert "open.pods-remain" in out
    assert "next " in out


def test_explain_of_a_sentinel_gives_every_rule_that_raises_it(command):
    _, out, _ = command("explain", "ErrStaleHold", "--json")
    document = json.loads(out)
    assert document["parent"] == "ErrRejected"
    assert "object.stale-hold" in [rule["rule"] for rule in document["rules"]]
    assert command("explain", "ErrStaleHold")[1].startswith("ErrStaleHold, a kind of ErrRejected\n")


def test_explain_of_a_rule_gives_its_reason(command):
    code, out, _ = command("explain", "start.leftover")
    assert code == 0
    assert "reason " in out


def test_explain_of_a_rule_shows_its_effects(command):
    assert "effect " in command("explain", "start.create-unanswered")[1]


def test_explain_of_something_else_is_refused_with_what_is_like_it(command):
    code, _, err = command("explain", "conflict")
    assert code == Exit.USAGE
    assert "Did you mean request.conflict" in err
    assert "ErrStaleHold" in command("explain", "ErrStalehol")[2]
    assert "tables show" in command("explain", "quite something else")[2]


def test_explain_does_not_mind_the_case(command):
    assert command("explain", "c25") == command("explain", "C25")
    assert command("explain", "errstalehold") == command("explain", "ErrStaleHold")


def test_the_embedded_cluster_imported_without_its_extra_says_which():
    hidden = "import sys; sys.modules['cryptography'] = None; import dispatch_kubeflow.backend.embedded"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert "the embedded cluster needs the extra `embedded`: cryptography" in done.stderr


def test_tables_check_proves_the_installed_tables(command):
    code, out, _ = command("tables", "check")
    assert code == 0
    assert "every case has one rule" in out


@pytest.fixture
def broken(tmp_path):
    from dispatch_kubeflow.tables import directory

    folder = tmp_path / "tables"
    for source in Path(directory()).rglob("*"):
        if source.is_file() and source.suffix in (".yaml", ".json", ".txt"):
            target = folder / source.relative_to(directory())
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    record = folder / "record.yaml"
    record.write_text(record.read_text().replace("when: {error: ErrInvalid}", "when: {error: ErrUnsupported}"))
    return folder


def test_tables_check_names_each_fault_of_a_folder(command, broken):
    code, out, _ = command("tables", "check", str(broken))
    assert code == 1
    assert "record.yaml:" in out
    assert out.splitlines()[-1].endswith("faults")


def test_tables_check_as_json_lists_the_faults(command, broken):
    code, out, _ = command("tables", "check", str(broken), "--json")
    assert code == 1
    assert json.loads(out)["faults"][0]["file"].endswith("record.yaml")


def test_tables_that_are_wrong_are_not_shown(command, broken):
    code, _, err = command("tables", "show", "--dir", str(broken))
    assert code == 1
    assert "record.yaml:" in err


def test_a_folder_that_is_not_there_does_not_pass(command, tmp_path):
    assert command("tables", "check", str(tmp_path / "none"))[0] == 1


def test_tables_show_gives_one_page(command):
    code, out, _ = command("tables", "show", "record")
    assert code == 0
    assert "\n# record\n" in out


def test_tables_show_without_a_page_gives_the_index(command):
    assert "[record](record.md)" in command("tables", "show", "--format", "markdown")[1]


def test_tables_show_of_no_page_is_refused(command):
    assert command("tables", "show", "nothing")[0] == Exit.USAGE


def test_a_family_that_depends_on_no_operation_has_a_page():
    family = Family(
        "plain", "About.", (), (), (), (Rule("plain.all", "plain", ("ours",), "result", (), (), {}, "none"),)
    )
    page = "\n".join(family_page(family, rulebook().tables))
    assert "Speaks for" not in page
    assert "### plain.all" in page


def test_the_pages_in_docs_are_what_the_tables_make(command, tmp_path):
    assert command("tables", "show", "--out", str(tmp_path / "made"))[0] == 0
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    kept = {path.name: path.read_text() for path in (DOCS / "tables").iterdir()}
    assert made == kept


def test_every_link_between_the_pages_leads_somewhere():
    import re

    pages = {path: path.read_text() for path in DOCS.rglob("*.md")}
    pages[DOCS.parent / "README.md"] = (DOCS.parent / "README.md").read_text()
    for path, text in pages.items():
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            there = (path.parent / target).resolve() if target else path
            assert there.exists(), f"{path.name}: {target}"
            if anchor:
                heads = {
                    re.sub(r"[^\w\- ]", "", head).lower().replace(" ", "-")
                    for head in re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                }
                assert anchor in heads, f"{path.name}: {target}#{anchor}"
