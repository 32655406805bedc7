"""What tasks write of events is what Spark and Iceberg write of them."""

from __future__ import annotations

from pyspark.sql import functions as F

from lakecdc.ingest.apply.packed_events import key_json
from tests.conftest import Lake


def test_old_keys_are_the_json_of_spark(lake: Lake) -> None:
    texts = ["", 'a"b', "\\u001f", "\\\x1f", "/", "é東\u2028\x7f", "".join(map(chr, range(1, 48)))]
    keys = [(n, text) for n, text in enumerate(texts)]
    frame = lake.spark.createDataFrame(keys, "id bigint, `Part, u00b` string")
    rows = frame.select(F.to_json(F.struct("*")), "*").collect()
    assert [key_json(dict(zip(frame.columns, row[1:], strict=True))) for row in rows] == [row[0] for row in rows]
