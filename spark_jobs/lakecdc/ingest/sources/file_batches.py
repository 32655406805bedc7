"""Cutting a table's new files into micro-batches of bounded size."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SLASHES = re.compile(r"^([\w+.-]+):/+")


@dataclass
class Queue:
    """Files that a table has not read yet.

    :param files: their URIs, in the order in which they are to be read.
    :param taken: how many of them are in the batch under way.
    """

    files: list[str]
    taken: int = field(default=0)

    def take(self, sizes: Mapping[str, int], most_bytes: int) -> list[str]:
        """Return the next batch: as many files as fit, at least one.

        :param sizes: bytes by URI; a file that is not named counts nothing.
        :param most_bytes: 0 is no bound.
        """
        total = self.taken = 0
        for name in self.files:
            total += sizes.get(name, 0)
            if self.taken and most_bytes and total > most_bytes:
                break
            self.taken += 1
        return self.files[: self.taken]

    def done(self) -> None:
        """Note that the batch has been applied."""
        del self.files[: self.taken]
        self.taken = 0


def sizes(spark: SparkSession, paths: Sequence[str], files: Sequence[str]) -> dict[str, int]:
    """Bytes of files as they are stored, by URI.

    :param paths: the paths and globs they were found by.
    """
    try:
        return {name: os.path.getsize(_local(name)) for name in files}
    except OSError:
        found = spark.read.format("binaryFile").load(list(paths)).select("path", "length").collect()
    lengths = {_plain(row["path"]): int(row["length"]) for row in found}
    return {name: lengths.get(_plain(unquote(name)), 0) for name in files}


def _local(uri: str) -> str:
    """Return a file's path.

    :raises OSError: if it is not on this machine.
    """
    path = _plain(unquote(uri))
    if not path.startswith("file:/"):
        raise FileNotFoundError(uri)
    return path.removeprefix("file:")


def _plain(path: str) -> str:
    """Spark writes ``file:/a`` for some and ``file:///a`` for others."""
    return _SLASHES.sub(r"\1:/", path)
