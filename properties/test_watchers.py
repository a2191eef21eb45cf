"""A watch loses nothing and never goes back."""

from __future__ import annotations

import pytest

from .watchers import Watched


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(2))
def test_the_last_view_of_a_watch_shows_what_there_is(part: int) -> None:
    views = 0
    for seed in range(part * 40, (part + 1) * 40):
        watched = Watched(seed)
        try:
            watched.run()
        finally:
            watched.close()
        views += len(watched.views)
    assert views
