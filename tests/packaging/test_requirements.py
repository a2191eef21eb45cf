"""A fresh checkout installs exactly what was pinned, by hash, from whatever index its user has."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PINNED = (ROOT / "requirements/dev.txt").read_text()


def pins():
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", PINNED, re.MULTILINE))


def wanted():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for group in project["optional-dependencies"].values() for each in group]
    lines = (ROOT / "requirements/dev.in").read_text().splitlines()
    return [*project["dependencies"], *extras, *(line for line in lines if line and not line.startswith("#"))]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_everything_the_project_asks_for_is_pinned_to_a_version_that_will_do():
    pinned = pins()
    for line in wanted():
        requirement = Requirement(line)
        assert canonical(requirement.name) in pinned, line
        assert pinned[canonical(requirement.name)] in requirement.specifier, line


def test_every_pin_has_hashes():
    blocks = re.split(r"^(?=[a-z0-9-]+==)", PINNED, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pins())
    for block in blocks:
        assert "--hash=sha256:" in block


def test_the_pins_name_no_host_and_no_option_of_an_index():
    assert not re.search(r"https?://|--index-url|--extra-index-url|--find-links|--trusted-host|file://", PINNED)
