"""Performs the cases on the real control plane and keeps its answers, so that nobody has to guess what it says."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from . import programs
from .api import JSON, MERGE_PATCH, Answer, Api, NotSeen, Object, Refused
from .cluster import Cluster
from .control_plane import ControlPlane
from .expand import BadCase, CaseFile, Step, dig, fill, load_all
from .normal import Normaliser, record, record_object
from .targets import NoSuchUser, RealTarget, Target

RECORDED = Path(__file__).resolve().parent / "recorded"
_CONTENT_TYPES = {
    "json": JSON,
    "merge": MERGE_PATCH,
    "json-patch": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "yaml": "application/yaml",
}
_SHOW_BY_DEFAULT = ["metadata.name", "metadata.namespace", "metadata.generation"]
_WAIT = 15.0

Recorded = dict[str, Any]


class CannotRecord(Exception):
    """Steps that did not even get an answer, or did not prepare what they should: which, and why."""


class Performer:
    """Performs one file of cases on one target."""

    def __init__(self, target: Target, file: CaseFile) -> None:
        self._target = target
        self._file = file
        self._normaliser = Normaliser()
        self._run = uuid.uuid4().hex[:6]
        self._variables: dict[str, Any] = {}

    def perform(self) -> dict[str, Recorded]:
        """Every case of the file, in order, in a namespace of its own that is deleted afterwards."""
        for name, rules in self._file.users.items():
            self._target.prepare_user(name, rules)
        namespace = f"cases-{self._run}"
        self._target.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self._normaliser.name(namespace, "ns")
        self._normaliser.name(self._run, "run")
        try:
            results: dict[str, Recorded] = {}
            kind: str | None = None
            for step in self._file.steps:
                if step.kind != kind or not self._variables:
                    kind = step.kind
                    self._variables = self._first_variables(namespace, kind)
                found = self._perform(step)
                if found is not None:
                    results[step.case] = found
            return results
        finally:
            self._target.api.send("DELETE", f"/api/v1/namespaces/{namespace}")

    def _first_variables(self, namespace: str, kind: str | None) -> dict[str, Any]:
        variables: dict[str, Any] = {"ns": namespace, "run": self._run}
        for source in (self._file.kinds.get(kind or "", {}), self._file.variables):
            for name, value in source.items():
                variables[name] = fill(value, variables)
        return variables

    def _perform(self, step: Step) -> Recorded | None:
        """Runs a step. One without a `case` prepares, and is kept only when that fails: on a real one it must not."""
        content = step.content
        try:
            if "wait" in content:
                self._wait(fill(content["wait"], self._variables))
            if "refresh" in content:
                self._refresh(fill(content["refresh"], self._variables))
            if "request" not in content:
                return None
            self._normaliser.forget_uids()
            if "watch" in content:
                return self._watch(content)
            answer = self._send(content["request"])
            self._save(content, answer)
        except (NotSeen, Refused, OSError, KeyError, BadCase) as error:
            return {"failed": self._normaliser.text(f"{type(error).__name__}: {error}")[:300]}
        if "case" not in content:
            prepared = 200 <= answer.status < 300
            return None if prepared else {"failed": f"{answer.status} {self._normaliser.text(answer.text())[:300]}"}
        return record(answer, self._show(content), self._normaliser)

    def _show(self, content: Any) -> list[str]:
        shown = content.get("show") or self._variables.get("show") or _SHOW_BY_DEFAULT
        return list(fill(shown, self._variables))

    def _client(self, request: Any) -> Api:
        return self._target.as_user(request["as"]) if "as" in request else self._target.api

    def _send(self, request: Any) -> Answer:
        wanted = fill(request, self._variables)
        sort = wanted.get("type", "json")
        body = wanted.get("body")
        if "raw" in wanted:
            body = wanted["raw"]
        return self._client(wanted).send(
            wanted.get("method", "GET"),
            wanted["path"],
            body,
            content_type=_CONTENT_TYPES.get(sort, sort),
            query=wanted.get("query"),
            headers=wanted.get("headers"),
        )

    def _save(self, content: Any, answer: Answer) -> None:
        """Keeps parts of an answer as variables; those under `names` become placeholders in the record as well."""
        for variable, path in {**content.get("save", {}), **content.get("names", {})}.items():
            value = dig(answer.json(), path)
            if value is None:
                raise KeyError(f"{path} is not in the answer to {content['request']}: {answer.text()[:300]}")
            self._variables[variable] = value
            if variable in content.get("names", {}):
                self._normaliser.name(value, variable)

    def _refresh(self, wanted: Any) -> None:
        """Reads an object again, for its newest version and uid."""
        seen = self._target.api.get(wanted["path"])
        prefix = wanted.get("as", "")
        self._variables[f"{prefix}uid"] = seen["metadata"]["uid"]
        self._variables[f"{prefix}rv"] = seen["metadata"]["resourceVersion"]
        self._variables[f"{prefix}object"] = seen

    def _wait(self, wanted: Any) -> None:
        """Waits until an object has a condition, a field a value, or it is gone, or so many have a label."""
        if "count" in wanted:
            self._wait_for_list(wanted)
            return

        def holds(seen: Object | None) -> bool:
            if wanted.get("gone"):
                return seen is None
            if seen is None:
                return False
            if "condition" in wanted:
                conditions = {each["type"]: each["status"] for each in dig(seen, "status.conditions") or []}
                return conditions.get(wanted["condition"]) == str(wanted.get("is", "True"))
            return "field" not in wanted or dig(seen, wanted["field"]) == wanted["is"]

        self._target.api.wait_for(wanted["collection"], wanted["name"], holds, seconds=wanted.get("seconds", _WAIT))

    def _wait_for_list(self, wanted: Any) -> None:
        """Waits until so many objects carry a label, and a field of each has a value."""

        def enough(seen: list[Object]) -> bool:
            fit = [each for each in seen if "field" not in wanted or dig(each, wanted["field"]) == wanted["is"]]
            return len(seen) == len(fit) == int(wanted["count"])

        self._target.api.wait_for_list(
            wanted["collection"], enough, selector=wanted.get("selector", ""), seconds=wanted.get("seconds", _WAIT)
        )

    def _watch(self, content: Any) -> Recorded:
        """Opens a watch, makes requests once it is open, and keeps the events that came."""
        wanted = fill(content["request"], self._variables)
        limits = content["watch"]
        events: list[Recorded] = []
        show = self._show(content)
        try:
            stream = self._client(wanted).events(
                wanted["path"], seconds=limits.get("seconds", 3), query=wanted.get("query")
            )
            later = threading.Timer(0.3, self._during, [limits.get("during", [])])
            later.start()
            for event in stream:
                kept = record_object(event["object"], show, self._normaliser)
                events.append({"type": event["type"], **kept})
                if len(events) >= limits.get("events", 1):
                    break
            later.join()
        except Refused as refused:
            return record(refused.answer, show, self._normaliser)
        return {"status": 200, "events": events}

    def _during(self, requests: list[Any]) -> None:
        for request in requests:
            self._send(request)


def perform(target: Target, pattern: str = "*") -> dict[str, dict[str, Recorded]]:
    """Every file of cases whose name fits the pattern, on a target."""
    results: dict[str, dict[str, Recorded]] = {}
    for file in load_all(pattern):
        target.renew()
        try:
            results[file.name] = Performer(target, file).perform()
        except NoSuchUser as missing:
            programs.say(f"{file.name}: left out, no token for {missing}")
    return results


def write(results: dict[str, dict[str, Recorded]], target: Target, folder: Path) -> int:
    """Writes one file a case file, with the versions that gave the answers; returns how many cases there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, cases in results.items():
        content = {"versions": dict(target.versions), "cases": cases}
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    failed = {case: kept["failed"] for cases in results.values() for case, kept in cases.items() if "failed" in kept}
    if failed:
        raise CannotRecord("\n".join(f"{case}: {why}" for case, why in failed.items()))
    return sum(len(cases) for cases in results.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="real.record", description=__doc__)
    parser.add_argument("--cases", default="*", help="which files of cases: a pattern without .yaml")
    parser.add_argument("--kueue", action="store_true", help="on one that has Kueue, as cases `queues/*` want it")
    parser.add_argument("--folder", type=Path, help="the folder of a running control plane; without it one is started")
    parser.add_argument("--into", type=Path, default=RECORDED)
    arguments = parser.parse_args()
    if arguments.folder:
        target = RealTarget(Cluster.at(arguments.folder))
        count = write(perform(target, arguments.cases), target, arguments.into)
    else:
        with ControlPlane(kueue=arguments.kueue) as plane:
            target = RealTarget(plane.cluster)
            count = write(perform(target, arguments.cases), target, arguments.into)
    programs.say(f"{count} cases recorded in {arguments.into}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
