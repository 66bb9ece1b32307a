"""How the hardware tests are shared out: between the two suites, and in order."""

from pathlib import Path

import pytest

ORDINARY = {"blocks": {"tiny"}, "control": {"tiny"}, "units": {"plain", "tiny"}}
"""Configurations of parts with nothing odd about them, by folder.

The complete core runs in such a one in `make test`; its parts run in them in `make test-full`.
"""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests of ordinary configurations."""
    given = getattr(item, "callspec", None)
    if given and given.params.get("name") in ORDINARY.get(item.path.parent.name, ()):
        item.add_marker(pytest.mark.full)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: the core, then all of hardware."""
    here = Path(__file__).parent
    items.sort(key=lambda i: (i.path != here / "test_core.py", here not in i.path.parents))
