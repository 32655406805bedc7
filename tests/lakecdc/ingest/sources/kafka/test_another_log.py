"""Another log in the same topic is noticed wherever it begins; similar sequences are not refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.sources.kafka.progress import Progress
from lakecdc.ingest.sources.kafka.source import refuse_another_log
from lakecdc.model.order import RANK_READ, order_key
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.formats.decoding import decode_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: an offset far behind the others
FAR = 1 << 14
TARGET = Target("shop.t", key=("id",))
Event = tuple[int, int, int]


def in_envelopes(offset: int, at: int, moment: int, op: str = "c") -> dict[str, Any]:
    source = {"connector": "mysql", "db": "shop", "table": "t", "file": "binlog.000003", "pos": at, "row": 0}
    value = {"op": op, "before": None, "after": {"id": offset}, "source": {**source, "ts_ms": moment}}
    return {"topic": "db.shop.t", "offset": offset, "key": {"id": offset}, "value": value, "headers": []}


def flattened(offset: int, at: int, moment: int, commit: int | None = None) -> dict[str, Any]:
    about = {"__op": "u", "__table": "t", "__lsn": at, "__source_ts_ms": moment}
    sequence = {"__source_sequence": json.dumps([str(commit), str(at)])} if commit else {}
    return {**in_envelopes(offset, at, moment), "value": {"id": offset, **about, **sequence}}


def refusal(
    spark: SparkSession,
    events: Iterable[dict[str, Any]],
    mark: str = "",
    seen: str | None = None,
    *,
    engine: str = "tasks",
    name: str = "debezium-json",
) -> str | None:
    lines = [json.dumps({"partition": 0, **event}) for event in events]
    decoded = decode_lines(spark, name, lines, TARGET, Known({"id": "bigint"}), records=True, engine=engine)
    assert decoded.passes.partition(":")[0] == ("one pass" if engine == "tasks" else "two passes")
    progress = Progress(marks={("db.shop.t", 0): mark} if mark else {})
    try:
        refuse_another_log(progress, seen, decoded)
    except InputError as error:
        return str(error)
    return None


@both_engines
def test_a_new_log_beyond_the_former_one_in_one_batch_is_refused(spark: SparkSession, engine: str) -> None:
    before = [in_envelopes(i, 1000 + i, 10_000 + i) for i in range(3)]
    after = [in_envelopes(FAR + i, 500 + 400 * i, 20_000 + i) for i in range(4)]
    assert "others before them in this batch, of 1970-01-01T00:00:10.002" in str(
        refusal(spark, before + after, engine=engine)
    )
    # a crashed connector sends events again, then continues
    again = [in_envelopes(FAR + i, 1000 + i, 10_000 + i) for i in range(5)]
    assert refusal(spark, before + again, engine=engine) is None


@both_engines
def test_a_new_log_that_passes_the_mark_in_one_batch_is_refused(spark: SparkSession, engine: str) -> None:
    mark, seen = order_key(1, (3 << 32) + 1000, time=10_000), "1970-01-01T00:00:10+00:00"
    log = [in_envelopes(i, 500 + 400 * i, 20_000 + i) for i in range(4)]
    assert f"newer than {seen}" in str(refusal(spark, log, mark, seen, engine=engine))
    # the same events, read before
    assert refusal(spark, log, mark, "1970-01-01T00:00:30+00:00", engine=engine) is None


@both_engines
def test_incremental_snapshot_reads_at_the_mark_are_accepted(spark: SparkSession, engine: str) -> None:
    mark, seen = order_key(1, (3 << 32) + 1000, 0, time=10_000), "1970-01-01T00:00:10+00:00"
    assert refusal(spark, [in_envelopes(1, 1000, 20_000, "r")], mark, seen, engine=engine) is None
    assert refusal(spark, [in_envelopes(1, 999, 20_000, "r")], mark, seen, engine=engine)


@both_engines
def test_overlapping_transactions_are_accepted(spark: SparkSession, engine: str) -> None:
    # the transaction that begins first commits last
    events = [
        flattened(0, 200, 10_000),
        flattened(1, 210, 10_000),
        flattened(2, 100, 20_000),
        flattened(3, 110, 20_000),
    ]
    assert refusal(spark, events, engine=engine, name="debezium-flat-json") is None
    mark, seen = order_key(1, 210, 210, time=10_000), "1970-01-01T00:00:10+00:00"
    assert refusal(spark, events[2:], mark, seen, engine=engine, name="debezium-flat-json") is None
    # positions of commits reveal another log
    events = [flattened(FAR * i, 500 - 100 * i, 10_000 * i, commit=490 - 100 * i) for i in range(2)]
    assert refusal(spark, events, engine=engine, name="debezium-flat-json")


def test_a_snapshot_is_not_a_mark_for_bare_positions(spark: SparkSession) -> None:
    mark, seen = order_key(1, 300, 300, RANK_READ, time=10_000), "1970-01-01T00:00:10+00:00"
    assert refusal(spark, [flattened(0, 200, 20_000)], mark, seen, name="debezium-flat-json") is None
