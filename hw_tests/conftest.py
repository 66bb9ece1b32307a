"""How the hardware tests are shared out: by configuration, and between the two suites."""

from pathlib import Path

import pytest

ORDINARY = {"blocks": {"tiny"}, "control": {"tiny"}, "units": {"plain", "tiny"}}
"""Configurations of parts with nothing odd about them, by folder.

The complete core runs in such a one in `make test`; its parts run in them in `make test-full`.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark and order the tests.

    Tests of one configuration share a worker, which has elaborated it.  Those of the core come
    first, since they take longest.
    """
    here = Path(__file__).parent
    for item in items:
        given = getattr(item, "callspec", None)
        name = given.params.get("name") if given else None
        if here not in item.path.parents or not isinstance(name, str):
            continue
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{name}"))
        if name in ORDINARY.get(item.path.parent.name, ()):
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: item.path != here / "test_core.py")
