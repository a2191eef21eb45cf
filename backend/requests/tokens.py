"""Nothing may be sent anonymously by accident: so the token is fetched and looked at before a connection is made.

The official loader logs a failing plugin and sends without a token, keeps a rotated one for ever, and sends blank ones.
Here a source either gives a credential that can be sent or raises `TokenFailed`, within the bound of the call.
"""

from __future__ import annotations

import base64
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .call import Call

_SENDABLE = re.compile(r"[\x21-\x7e]+")
# A file changed less than so many seconds ago may change again within the same time stamp, so it is read again.
_SETTLED = 2.0
_LARGEST = 1_048_576


class TokenFailed(Exception):
    """The token source failed or gave nothing that can be sent. Its text never holds what the source gave."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What is shown to the server: the Authorization header's value, a certificate with its key, both or none."""

    authorization: str | None = None
    certificate: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"Credential(authorization={self.authorization is not None}, certificate={self.certificate is not None})"


class TokenSource(Protocol):
    """Where the credential of a request comes from."""

    def credential(self, call: Call) -> Credential:
        """The credential to send now. Raises TokenFailed, or Abandoned if the call ended while it was fetched."""
        ...

    def refused(self) -> None:
        """The server did not know the last credential: the next one is fetched anew."""
        ...


class Fixed:
    """A credential that is written in the configuration, or none at all where none is meant."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def credential(self, call: Call) -> Credential:  # noqa: ARG002 - nothing to wait for
        return self._credential

    def refused(self) -> None:
        """Nothing to fetch anew."""


class Broken:
    """A configuration whose user cannot be told: every request fails before it begins."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def credential(self, call: Call) -> Credential:  # noqa: ARG002 - it fails at once
        raise TokenFailed(self._problem)

    def refused(self) -> None:
        """Nothing to fetch anew."""


class FileToken:
    """A token in a file that another program keeps fresh: read again whenever the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[tuple[int, int, int], Credential] | None = None

    def credential(self, call: Call) -> Credential:
        call.left()
        try:
            found = os.stat(self._path)  # noqa: PTH116 - a request's whole cost is some tens of microseconds
            state = (found.st_ino, found.st_mtime_ns, found.st_size)
            if self._read is not None and self._read[0] == state:
                return self._read[1]
            credential = Credential(bearer(self._content(found), f"the token file {self._path}"))
        except OSError as error:
            raise TokenFailed(f"the token file {self._path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            # That error holds what the file held.
            raise TokenFailed(f"the token file {self._path} is not text") from None
        except ValueError as error:
            raise TokenFailed("the token file's name is not that of any file") from error
        self._read = (state, credential) if time.time() - found.st_mtime > _SETTLED else None
        return credential

    def refused(self) -> None:
        self._read = None

    def _content(self, found: os.stat_result) -> str:
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise TokenFailed(f"the token file {self._path} is not a file of a token's size")
        return self._path.read_text("utf-8")


def bearer(token: object, source: str) -> str:
    """The Authorization value for a token. Raises TokenFailed for one that is blank or not one line of plain text."""
    text = token.strip() if isinstance(token, str) else ""
    if not text:
        raise TokenFailed(f"{source} holds no token")
    if _SENDABLE.fullmatch(text) is None:
        raise TokenFailed(f"{source} does not hold one line that can be sent as a token")
    return f"Bearer {text}"


def basic(username: str, password: str) -> str:
    """The Authorization value for a user name and password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
