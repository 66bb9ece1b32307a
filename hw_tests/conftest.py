"""Tests of one configuration share a worker, which has elaborated it."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests by module and configuration; begin with those of the core, which take longest."""
    here = Path(__file__).parent
    for item in items:
        given = getattr(item, "callspec", None)
        name = given.params.get("name") if given else None
        if here in item.path.parents and isinstance(name, str):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{name}"))
    items.sort(key=lambda item: item.path != here / "test_core.py")
