"""The specification as data. There is no code here beyond finding the files; `machine.rules` reads them."""

from pathlib import Path


def directory() -> Path:
    """Where the tables are."""
    return Path(__file__).parent


def schema_directory() -> Path:
    """Where the JSON Schemas of the tables' form are."""
    return directory() / "schema"
