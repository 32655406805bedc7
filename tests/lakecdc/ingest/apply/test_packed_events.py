"""What tasks write of events is what Spark and Iceberg write of them."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.types import DateType, TimestampType
from pyspark.sql import functions as F

from lakecdc.ingest.apply.packed_events import TimePartition, key_json
from tests.conftest import Lake

TIMES = [
    *(datetime.datetime(1, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(1970, 1, 1)),
    *(datetime.datetime(2024, 2, 29, 23), datetime.datetime(9999, 12, 31, 23, 59, 59)),
]


def test_old_keys_are_the_json_of_spark(lake: Lake) -> None:
    texts = ["", 'a"b', "\\u001f", "\\\x1f", "/", "é東\u2028\x7f", "".join(map(chr, range(1, 48)))]
    keys = [(n, text) for n, text in enumerate(texts)]
    frame = lake.spark.createDataFrame(keys, "id bigint, `Part, u00b` string")
    rows = frame.select(F.to_json(F.struct("*")), "*").collect()
    assert [key_json(dict(zip(frame.columns, row[1:], strict=True))) for row in rows] == [row[0] for row in rows]


@pytest.mark.parametrize("kind", [TimestampType(), DateType()], ids=str)
def test_partitions_of_times_are_iceberg_s(kind: TimestampType | DateType) -> None:
    units: dict[str, Any] = {"D": DayTransform(), "M": MonthTransform(), "Y": YearTransform(), "h": HourTransform()}
    is_date = isinstance(kind, DateType)
    values = pa.array([t.date() for t in TIMES]) if is_date else pa.array(TIMES, pa.timestamp("us"))
    plain = values.cast(pa.int32() if is_date else pa.int64()).to_pylist()
    for unit, transform in units.items():
        if transform.can_transform(kind):
            partition = TimePartition("c0", unit)
            found = partition.numbers(pa.table({"c0": pa.concat_arrays([values, pa.nulls(1, values.type)])}))
            wanted = [transform.transform(kind)(value) for value in plain]
            texts = [partition.text(str(number)) for number in found.to_pylist()]
            days = (
                [(datetime.date(1970, 1, 1) + datetime.timedelta(n)).isoformat() for n in wanted] if unit == "D" else []
            )
            assert texts == [*(days or map(str, wanted)), "__HIVE_DEFAULT_PARTITION__"]
