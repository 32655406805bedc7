"""Partition transforms are told from what is none."""

from __future__ import annotations

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
def test_transforms(transform: str) -> None:
    check_transforms([transform], "partition_by", "shop.t")


@pytest.mark.parametrize(
    "transform",
    [
        *("", "order-line", "bucket(id)", "bucket(0, id)", "bucket(8, id", "buckets(8, id)", "truncate(name)"),
        *("day(ts, 1)", "id) LOCATION 's3://elsewhere' --", "`open", "void(id) x"),
    ],
)
def test_what_is_none_is_refused_with_its_key(transform: str) -> None:
    with pytest.raises(SpecError, match=r"shop\.t: target\.partition_by has .*bucket\(8, column\)"):
        check_transforms([transform], "partition_by", "shop.t")


def test_both_settings_of_a_target_are_looked_at() -> None:
    history = {"history_table": "shop.h", "history_partition_by": ["weeks(ts)"]}
    with pytest.raises(SpecError, match="history_partition_by has 'weeks"):
        parse_targets({"table": "shop.t", **history})
