"""What workers take a table to be sorted by."""

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
    found = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    found.create_namespace("shop")
    return found


def table(catalog: SqlCatalog, *order: SortField, key: bool = False, **recorded: Any) -> Table:
    properties = {names.SORTED_LAYOUT: json.dumps({"table_order": 0, **recorded})} if recorded else {}
    schema = Schema(*FIELDS, identifier_field_ids=[2, 1] if key else [])
    return catalog.create_table("shop.orders", schema, sort_order=SortOrder(*order), properties=properties)


def by(found: Table, **options: Any) -> list[int] | None:
    return sorted_columns(found, SortDataFilesOptions(**options))


B = SortField(2, IdentityTransform())
BUCKET = SortField(2, BucketTransform(4))


def test_options_go_before_everything(catalog: SqlCatalog) -> None:
    found = table(catalog, B, key=True)
    assert by(found, columns=("b", "a")) == [2, 1]
    assert by(found, columns=("b", "c")) is None
    assert by(found, columns=("a", "b"), curve="hilbert") is None


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
        # the table has been given another order since
        ((B,), False, {"fields": [1], "table_order": 0}, [2]),
    ],
)
def test_what_the_table_says(
    catalog: SqlCatalog, order: tuple[SortField, ...], key: bool, recorded: dict[str, Any], columns: list[int] | None
) -> None:
    assert by(table(catalog, *order, key=key, **recorded)) == columns


def test_another_curve_than_the_one_recorded(catalog: SqlCatalog) -> None:
    found = table(catalog, fields=[2, 1], curve="zorder")
    assert by(found, curve="linear") == [2, 1]
    assert by(found, curve="hilbert") is None
