"""Read AWS DMS' messages to Kafka or Kinesis.

Order: the time of the commit or of the change, then arrival. DMS keeps the order of a transaction in a partition, and
of a key if ``partition-key-type`` is ``primary-key``. A row of a full load has the time of its message, which is after
it was read; changes committed in between are sent later, with an earlier time. So every change is newer than any loaded
row.

The row before an update is in the member ``before-image`` (``BeforeImageSettings``) or in further columns ``BI_…``
(transformation ``add-before-image-columns``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakecdc.ingest.envelopes.json_values import Object
from lakecdc.ingest.envelopes.message import (
    Envelope,
    Keys,
    Message,
    Place,
    as_object,
    dotted,
    member,
    moment_of,
    placed,
    text,
)
from lakecdc.model.order import RANK_CHANGE, RANK_READ

OLD_PREFIX = "BI_"
_OPS = {"load": "r", "insert": "c", "update": "u", "delete": "d", "truncate-table": "t"}


def read(message: Message, event: Any) -> Iterator[Envelope]:
    if event is None and message.value is None:
        return
    about = member(event, "metadata")
    operation, kind = text(about, "operation"), text(about, "record-type")
    is_control = kind == "control" and operation is not None and operation != "truncate-table"
    op = None if is_control else _OPS.get(operation or "")
    problem = None if op or is_control else ("unknown-message", "its operation is not a DMS operation")
    now, old = _images(as_object(member(event, "data")))
    before = now if operation == "delete" else None
    if operation == "update":
        image = as_object(member(event, "before-image"))
        before = old if image is None else image
    after = None if operation == "delete" else now
    committed = text(about, "commit-timestamp")
    moment = moment_of(text(about, "timestamp") if committed is None else committed)
    is_load = operation == "load"
    yield Envelope(
        op,
        Place(0 if is_load else placed(moment), rank=RANK_READ if is_load else RANK_CHANGE, time_us=moment),
        dotted(text(about, "schema-name"), text(about, "table-name")) or (message.topic if op or problem else None),
        before,
        after,
        Keys.of(message),
        problem=problem,
    )


def _images(row: Object | None) -> tuple[Object | None, Object | None]:
    """Return the row, and the row before by the columns ``BI_…``."""
    if row is None:
        return None, None
    # a regular column may have such a name
    was = {name for name in row if name.startswith(OLD_PREFIX) and name.removeprefix(OLD_PREFIX) in row}
    if not was:
        return row, {}
    now = {name: value for name, value in row.items() if name not in was}
    return now, {name.removeprefix(OLD_PREFIX): row[name] for name in was}
