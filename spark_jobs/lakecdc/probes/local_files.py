"""Check the local files of a ``files`` source without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.spec import JobSpec
from lakecdc.ingest.probe_api import have_read_files
from lakecdc.metadata.positions import Position
from lakecdc.metadata.source_state import SourceState, may_be_idle, state_unless_unknown

# with these settings, a path without a scheme may be in another file system than this machine's
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
# characters that Java does not escape in a file's URI
_PLAIN = "/~!$&'()*+,;=:@"


class UnknownListingError(Exception):
    """Spark may list other files than this machine."""


def check(spec: JobSpec, source: FilesSource, positions: Mapping[str, Position] | None) -> SourceState:
    """Check the folders of the paths, and compare their files with those that the targets have read.

    :param positions: of tables that were fed; None if unknown.
    :raises InputError: a folder is missing.
    """
    for path in source.paths:
        check_path(path)
    # a batch may be in a history table but not yet in its target, and its files may have been removed
    if positions is None or not may_be_idle(spec, positions) or any(target.history_table for target in spec.targets):
        return SourceState()
    return state_unless_unknown(
        _compare_files, source, {target.table: positions[target.table] for target in spec.targets}
    )


def _compare_files(source: FilesSource, positions: Mapping[str, Position]) -> SourceState:
    """Prove that every target has read every file, as far as its position names files."""
    files = {name for path in source.paths for name in _files(path)}
    # an empty folder may not be Spark's folder
    is_idle = bool(files) and have_read_files(positions.values(), files)
    return SourceState(idle=positions if is_idle else None)


def _files(path: str) -> Iterator[str]:
    """Yield the URIs of a path's files as Spark writes them, if it is a folder, file, or simple pattern."""
    if not is_local(path):
        raise UnknownListingError
    parts = urlsplit(path)
    place = Path(unquote(parts.path) if parts.scheme else path)
    folder, pattern = (place, "*") if place.is_dir() else (place.parent, place.name)
    if not place.is_absolute() or re.search(r"[*?\[{\\]", str(folder)) or re.search(r"[\[{\\]|^[_.]", pattern):
        raise UnknownListingError
    entries = [entry for entry in os.scandir(folder) if fnmatchcase(entry.name, pattern)]
    if not entries and folder != place:
        raise UnknownListingError
    for entry in entries:
        # Spark skips hidden files, but not partitions
        if entry.name.startswith((".", "_")) and "=" not in entry.name:
            continue
        if not entry.is_file():
            raise UnknownListingError
        name = os.path.join(folder, entry.name)
        # letters beyond ASCII are not escaped
        yield "file://" + "".join(quote(each, safe=_PLAIN) if each.isascii() else each for each in name)


def is_local(path: str) -> bool:
    """Check whether a path is certainly in this machine's file system."""
    scheme = urlsplit(path).scheme
    return scheme == "file" or (not scheme and not any(name in os.environ for name in _HADOOP))


def check_path(path: str) -> None:
    """Raise an :class:`InputError` if the folder of a local path does not exist."""
    if not is_local(path):
        return
    parts = urlsplit(path)
    local = unquote(parts.path) if parts.scheme else path
    # Hadoop has more patterns than Python: only what precedes the first one is checked
    fixed = re.split(r"[*?\[{\\]", local, maxsplit=1)[0]
    place = Path(fixed if fixed == local else fixed.rpartition("/")[0] or "/")
    if not place.exists():
        what = "file or folder" if fixed == local else "folder"
        raise InputError(f"source.path is {path}, but the {what} {place} does not exist.", hint="Correct source.path.")
