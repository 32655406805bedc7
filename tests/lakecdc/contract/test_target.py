"""Partition transforms and readers of a target."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import check_transforms, parse_targets


@pytest.mark.parametrize(
    "transform",
    [
        *("id", "a.b", "`odd name`", "größe", "`a``b`.c"),
        *("bucket(8, id)", "BUCKET( 8 ,id )", "truncate(4, `odd name`)"),
        *("days(ts)", "day(ts)", "years(ts)", "months(ts)", "hours(_lakecdc_source_time)", "identity(id)"),
    ],
)
def test_partition_transforms_are_parsed(transform: str) -> None:
    check_transforms([transform], "partition_by", "shop.t")


@pytest.mark.parametrize(
    "transform",
    [
        *("", "order-line", "bucket(id)", "bucket(0, id)", "bucket(8, id", "buckets(8, id)", "truncate(name)"),
        *("day(ts, 1)", "id) LOCATION 's3://elsewhere' --", "`open", "void(id) x"),
    ],
)
def test_invalid_transforms_are_refused_with_their_path(transform: str) -> None:
    with pytest.raises(SpecError, match=r"shop\.t: target\.partition_by has .*bucket\(8, column\)"):
        check_transforms([transform], "partition_by", "shop.t")


def test_both_settings_of_a_target_are_validated() -> None:
    history = {"history_table": "shop.h", "history_partition_by": ["weeks(ts)"]}
    with pytest.raises(SpecError, match="history_partition_by has 'weeks"):
        parse_targets({"table": "shop.t", **history})


@pytest.mark.parametrize(
    ("settings", "version", "deletes"),
    [
        ({"readers": []}, 2, "equality"),
        ({"readers": ["trino", "spark"]}, 2, "equality"),
        ({"readers": ["pyiceberg", "athena"]}, 2, "resolved"),
        ({"readers": ["databricks"]}, 3, "resolved"),
        ({"readers": ["databricks"], "mode": "auto"}, 3, "resolved"),
        # explicit settings stay if the readers support them
        ({"readers": ["trino"], "format_version": 3}, 3, "equality"),
        ({"readers": ["trino"], "deletes": "resolved"}, 2, "resolved"),
        ({"readers": ["snowflake"], "format_version": 3}, 3, "resolved"),
        # these modes write no equality deletes
        ({"readers": ["databricks"], "mode": "append"}, 2, "equality"),
        ({"readers": ["databricks"], "mode": "history"}, 2, "equality"),
        ({"readers": ["snowflake"], "mode": "merge"}, 2, "equality"),
        ({"readers": ["databricks"], "mode": "merge"}, 3, "equality"),
        ({"readers": ["databricks"], "mode": "merge", "merge_mode": "copy-on-write"}, 2, "equality"),
    ],
)
def test_readers_choose_format_version_and_deletes(settings: dict[str, Any], version: int, deletes: str) -> None:
    (target,) = parse_targets({"table": "shop.t", **settings})
    assert (target.format_version, target.deletes) == (version, deletes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"readers": ["snowflake", "snowpipe"]}, r"target\.readers\[1\] is 'snowpipe'.*'snowflake'"),
        (
            {"readers": ["athena", "databricks"]},
            r"shop\.t: No table .* read by Amazon Athena and Databricks Runtime 18: .*",
        ),
        (
            {"readers": ["databricks"], "format_version": 2},
            "version 2 is known to be read by Databricks .* deletion vec",
        ),
        ({"readers": ["athena"], "format_version": 3}, "version 3 is known to be read by Amazon Athena.*up to format"),
        ({"readers": ["snowflake"], "deletes": "equality"}, "with equality deletes is known to be read by Snowflake"),
        ({"readers": ["trino"], "properties": {"format-version": "3"}}, "Remove it, or set format_version"),
    ],
)
def test_readers_that_cannot_read_a_target_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_targets({"table": "shop.t", **settings})
