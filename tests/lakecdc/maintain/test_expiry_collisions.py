"""Users of a snapshot that appear during its expiry."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.history import History
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.expire import _refuse_needed_expired
from lakecdc.metadata.consumers import Consumer

TABLE = cast(IcebergTable, SimpleNamespace(name="shop.orders"))
TAG, BRANCH = {"type": "tag", "max-ref-age-ms": 1}, {"type": "branch"}


def history(*ids: int, refs: dict[str, Any] | None = None, consumers: dict[str, int] | None = None) -> History:
    """Return a history with snapshots, each the parent of the next one."""
    snapshots = [
        {"snapshot-id": number, "timestamp-ms": number, "parent-snapshot-id": number - 1, "summary": {}}
        for number in ids
    ]
    known = [Consumer(name, number, 3600, datetime.now(UTC)) for name, number in (consumers or {}).items()]
    return History.of(
        {
            "snapshots": snapshots,
            "refs": {"main": BRANCH | {"snapshot-id": ids[-1]}} | (refs or {}),
            "properties": {consumer.property_name: consumer.encode() for consumer in known},
        }
    )


BEFORE = history(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("after", "who"),
    [
        (history(4, refs={"month": TAG | {"snapshot-id": 2}}), "tag month"),
        (history(4, refs={"lakecdc-job-sort-1": TAG | {"snapshot-id": 1}}), "job lakecdc-job-sort-1"),
        (history(4, consumers={"mart": 3}), "consumer mart"),
        # its own snapshot still exists, but not the unread ones
        (history(1, 4, consumers={"mart": 1}), "consumer mart"),
    ],
)
def test_new_users_of_a_file_are_reported(after: History, who: str) -> None:
    with pytest.raises(ConflictError, match=f"needed meanwhile by .*{who}.* No file was deleted"):
        _refuse_needed_expired(TABLE, BEFORE, after)


def test_users_of_remaining_snapshots_do_not_matter() -> None:
    after = history(3, 4, 5, refs={"day": TAG | {"snapshot-id": 3}}, consumers={"mart": 4})
    _refuse_needed_expired(TABLE, BEFORE, after)


def test_consumers_that_were_already_silent_do_not_matter() -> None:
    silent = history(1, 2, 3, 4, consumers={"mart": 1})
    after = History(silent.document, history(4).snapshots, history(4).refs)
    _refuse_needed_expired(TABLE, silent, after)
