"""Writing results: whole files or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


class OutputError(ValueError):
    """A result cannot be written where the user wants it."""


def write_files(files: Mapping[Path, str | bytes]) -> None:
    """Write files, each into its place at once and all of them after all have been written.

    Missing directories are made.  On any failure nothing new is in place.

    Raises
    ------
    OutputError
        A directory or file cannot be written; the message names it.
    """
    waiting: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    raise IsADirectoryError(f"{path} is a directory")
                handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
                waiting[path] = Path(name)
                with os.fdopen(handle, "wb") as file:
                    file.write(content if isinstance(content, bytes) else content.encode())
                os.chmod(name, 0o644)
            except OSError as error:
                raise OutputError(f"out: cannot write {path}: {error}") from None
        for path in list(waiting):
            os.replace(waiting.pop(path), path)
    finally:
        for leftover in waiting.values():
            leftover.unlink(missing_ok=True)


def writable_directory(path: Path) -> Path:
    """Make a directory and return it, or raise `OutputError`: to be asked before long work."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OutputError(f"out: cannot write into {path}: {error}") from None
    return path
