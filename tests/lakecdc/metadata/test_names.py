"""Names of side tables."""

from __future__ import annotations

from lakecdc.contract.feeding import IngestOptions
from lakecdc.ingest import quarantine, tombstones
from lakecdc.ingest.sources import file_memory
from lakecdc.metadata.names import AUDIT, HEALTH, is_lake_table, is_side_table, quarantine_of, side_tables


def test_side_tables_have_the_names_that_ingestion_uses() -> None:
    assert side_tables("eu.shop.orders") == (
        "eu.shop.orders" + tombstones.SUFFIX,
        "eu.shop.orders_lakecdc_erased",
        "eu.shop.orders" + file_memory.SUFFIX,
        quarantine.table_name(IngestOptions(), "eu.shop.orders"),
        "eu.shop.lakecdc_parked",
    )


def test_each_target_may_have_its_own_quarantine() -> None:
    assert quarantine_of("eu.shop.orders") == "eu.shop.lakecdc_quarantine"
    assert quarantine_of("eu.shop.orders", "restricted.all") == "restricted.all"
    assert quarantine_of("eu.shop.orders", "{namespace}.{table}_bad") == "eu.shop.orders_bad"


def test_shared_tables_of_the_lake_are_own_tables() -> None:
    assert all(is_lake_table(table) and is_side_table(table) for table in (AUDIT, HEALTH, "LakeCDC.other"))
    assert not any(is_side_table(table) for table in ("lakecdc_shop.audit", "shop.lakecdc", "shop.audit"))
    assert is_side_table("shop.orders_lakecdc_files") and not is_lake_table("shop.orders_lakecdc_files")
