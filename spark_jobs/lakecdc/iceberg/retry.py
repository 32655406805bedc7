"""Retries of commits of branches and tags while other writers are faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.jvm import java_class_name

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

T = TypeVar("T")


class MetadataMovedError(ConflictError):
    """The table has changed since the commit was prepared."""


_ATTEMPTS = 20


def retried(table: IcebergTable, commit: Callable[[], T]) -> T:
    """Execute a commit that creates, moves or removes branches or tags, with retries.

    Iceberg retries a commit of files by itself. It retries one of references, alone or in a transaction, with its
    original metadata (``UpdateSnapshotReferencesOperation`` of 1.12), so that any other commit in between fails it
    however many retries the table allows.

    :param commit: starts from the table's metadata at each call; called at most 20 times.
    :return: its result.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    attempts = Retrying(
        retry=retry_if_exception(_is_overtaken),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        before_sleep=lambda _: _refresh(table),
        reraise=True,
    )
    return attempts(commit)


def _is_overtaken(error: BaseException) -> bool:
    return isinstance(error, MetadataMovedError) or java_class_name(error) == "CommitFailedException"


def _refresh(table: IcebergTable) -> None:
    table.refresh()
