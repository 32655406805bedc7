"""The columns by which workers consider a table sorted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from airflow_provider_lakecdc.lake.tables import sorted_columns
from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.metadata import names

FIELDS = (NestedField(1, "a", StringType(), required=True), NestedField(2, "b", LongType(), required=True))


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    opened = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    opened.create_namespace("shop")
    return opened


def table(catalog: SqlCatalog, *order: SortField, key: bool = False, **recorded: Any) -> Table:
    properties = {names.SORTED_LAYOUT: json.dumps({"table_order": 0, **recorded})} if recorded else {}
    schema = Schema(*FIELDS, identifier_field_ids=[2, 1] if key else [])
    return catalog.create_table("shop.orders", schema, sort_order=SortOrder(*order), properties=properties)


def by(table: Table, **options: Any) -> list[int] | None:
    return sorted_columns(table, SortDataFilesOptions(**options))


B = SortField(2, IdentityTransform())
BUCKET = SortField(2, BucketTransform(4))


def test_options_take_precedence(catalog: SqlCatalog) -> None:
    unsorted = table(catalog, B, key=True)
    assert by(unsorted, columns=("b", "a")) == [2, 1]
    assert by(unsorted, columns=("b", "c")) is None
    assert by(unsorted, columns=("a", "b"), curve="hilbert") is None


@pytest.mark.parametrize(
    ("order", "key", "recorded", "columns"),
    [
        ((), False, {}, []),
        ((), True, {}, [1, 2]),
        ((B,), True, {}, [2]),
        ((BUCKET,), True, {}, None),
        ((), True, {"fields": [2], "curve": "linear"}, [2]),
        ((), True, {"fields": [2, 1], "curve": "zorder"}, None),
        ((), True, {"fields": [7]}, [1, 2]),
        # the sort order has changed since
        ((B,), False, {"fields": [1], "table_order": 0}, [2]),
    ],
)
def test_properties_sort_order_and_key_decide(
    catalog: SqlCatalog, order: tuple[SortField, ...], key: bool, recorded: dict[str, Any], columns: list[int] | None
) -> None:
    assert by(table(catalog, *order, key=key, **recorded)) == columns


def test_a_curve_other_than_the_recorded_one_is_unsorted(catalog: SqlCatalog) -> None:
    recorded_table = table(catalog, fields=[2, 1], curve="zorder")
    assert by(recorded_table, curve="linear") == [2, 1]
    assert by(recorded_table, curve="hilbert") is None
