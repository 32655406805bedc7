"""Checks that stop a table at the start of a run, with faked catalog answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.postgres.log_server import PostgresServer
from lakecdc.metadata.positions import Position

POSITION = Position("postgres", "7:1", {"lsn": "0/1000", "oid": 16385})
SLOT = ("pgoutput", "shop", None, "0/1000", "reserved", 12 * 1024**2)


def admitted(answers: Mapping[str, Any], position: Position | None) -> InputError:
    """Return why a run refuses a table, given the answers of the source's catalog to statements that contain a text."""

    class Session:
        def execute(self, statement: str, parameters: object = None) -> Any:
            return Rows(next((rows for text, rows in answers.items() if text in statement), []))

    class Rows(list[Any]):
        def fetchone(self) -> Any:
            return self[0] if self else None

    run: Any = SimpleNamespace(_session=Session(), source=SimpleNamespace(slot="s"))
    with pytest.raises(InputError) as refused:
        PostgresServer.describe(run, 0, Target("shop.orders"), position, [])
    return refused.value


def test_a_dropped_source_table_is_reported_with_the_log_its_slot_retains() -> None:
    error = admitted({"pg_replication_slots": [SLOT]}, POSITION)
    assert "The source table shop.orders was dropped." in error.message
    assert "The slot 's' keeps the log from 0/1000 on for its target, 12 MB by now." in error.message
    assert "Remove the target from the configuration" in str(error.hint)
    assert error.table == "shop.orders"


def test_a_renamed_source_table_is_reported_by_its_new_name() -> None:
    error = admitted({"pg_replication_slots": [SLOT], "c.oid = %s": [("shop", "orders_2026")]}, POSITION)
    assert "was renamed to shop.orders_2026" in error.message and "12 MB" in error.message
    assert '"shop.orders_2026"' in str(error.hint)


@pytest.mark.parametrize("name", ["order", "Orders"])
def test_a_missing_table_is_reported_with_near_misses(name: str) -> None:
    error = admitted({"relpersistence": [("shop", name), ("crm", "people")]}, None)
    assert error.message == "The source has no table shop.orders."
    assert f"Did you mean 'shop.{name}'?" in str(error.hint) and "people" not in str(error.hint)
