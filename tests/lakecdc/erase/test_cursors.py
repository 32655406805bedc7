"""Keys in source positions and settings are replaced by a value next to them, and metadata with a key is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakecdc.erase.cursors import cursor_entries, order_without, position_without
from lakecdc.erase.mentions import Mentions
from lakecdc.metadata import names
from lakecdc.metadata.positions import Carrier, Position, SideOf, beside_others, encode_idle
from lakecdc.model.order import order_key

SIGNED = 1 << 63
KEYS = frozenset({6, 7, -8})


@pytest.mark.parametrize(
    ("offsets", "after"),
    [
        ({"through": 7, "last": [2, 7]}, {"through": 5, "last": [5, 5]}),
        ({"through": 9, "last": [7, 9]}, {"through": 9, "last": [9, 9]}),
        ({"through": -8, "last": [None, -8]}, {"through": -9, "last": [-9, -9]}),
        ({"through": 9, "last": [8, 9]}, {"through": 9, "last": [8, 9]}),
        # counts, not values
        ({"partitions": {"t/7": 7}, "epoch": 6}, {"partitions": {"t/7": 7}, "epoch": 6}),
        ({"marks": {"t/0": order_key(1, 7)}}, {"marks": {"t/0": order_key(1, 8)}}),
    ],
)
def test_cursors_move_below_the_key_and_order_keys_above_it(offsets: dict[str, Any], after: dict[str, Any]) -> None:
    position = Position("jdbc", "id", offsets)
    assert position_without(position, KEYS).offsets == after
    reported = {names.POSITIONS: position.encode()}
    idle = {names.of_feed(names.IDLE_POSITION, feed): encode_idle(1, position) for feed in ("", "shop")}
    beside = beside_others(Position("kafka", "k"), "crm", Carrier(1, position.encode()), {})
    assert position_without(beside, KEYS).others[""]["position"]["offsets"] == after
    cursors = [cursor_entries(entries, KEYS) for entries in (reported, {names.POSITIONS: beside.encode()}, idle)]
    assert cursors == ([[], [], []] if offsets == after else [[*reported], [*reported], [*idle]])


@pytest.mark.parametrize(
    ("order", "after"),
    [
        (order_key(1, SIGNED ^ 7, offset=3), order_key(1, SIGNED ^ 8)),
        (order_key(1, SIGNED - 8), order_key(1, SIGNED - 7)),
        (order_key(1, 5, 6), order_key(1, 5, 8)),
        (order_key(1, 5, 5, offset=7), order_key(1, 5, 5, offset=7)),
        ("0007", "0007"),
    ],
)
def test_order_keys_that_contain_a_key_move_above_it(order: str, after: str) -> None:
    assert order_without(order, KEYS) == after
    assert after >= order
    assert bool(cursor_entries(SideOf("uuid", None, False, order).encode(), KEYS)) == (order != after)


def test_bounds_of_unfinished_loads_are_keys() -> None:
    position = Position("mysql", "server", {"load": {"bound": "'M'", "leading": "f"}})
    assert cursor_entries({names.POSITIONS: position.encode()}, KEYS)
    over = Position("mysql", "server", {"load": {"bound": None, "leading": "f"}})
    assert not cursor_entries({names.POSITIONS: over.encode()}, KEYS)


@pytest.mark.parametrize(
    ("settings", "is_key"),
    [
        ({"comment": "the row id=7 is wrong"}, True),
        ({"note": json.dumps({"id": 7})}, True),
        ({"partitions.bucket=3/id=7": "added-data-files=1"}, True),
        ({"added-records": "7", "history.expire.min-snapshots-to-keep": "6", "engine-version": "4.7.1"}, False),
    ],
)
def test_a_key_is_recognized_in_the_values_of_settings(settings: dict[str, str], is_key: bool) -> None:
    assert Mentions(["id"], [["7"], ["6"]], {"t"}).in_settings(settings) == is_key


def test_cursors_in_reports_match_only_where_the_cursor_is_the_key() -> None:
    report = json.loads('{"position": {"through": 7, "last": [1, 7]}}')
    assert not Mentions(["id"], [["7"]], {"t"}).in_value(report)
    assert Mentions(["id"], [["7"]], {"t"}, by_cursor=True).in_value(report)
    assert not Mentions(["id"], [["8"]], {"t"}, by_cursor=True).in_value(report)
