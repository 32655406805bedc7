"""Excluded columns are removed from quarantined messages."""

from __future__ import annotations

import pytest

from lakecdc.contract.target import Target
from lakecdc.ingest.excluded import key_without, value_without

TARGET = Target("shop.people", ("id",), exclude_columns=("ssn", "op", "type"))
ROW = '"id": 1, "ssn": "078-05-1120", "n": 1.10, "big": 12345678901234567890'
CUT = '"id": 1, "n": 1.10, "big": 12345678901234567890'


@pytest.mark.parametrize(
    ("format_name", "message", "rest"),
    [
        ("debezium-json", '{"op": "u", "before": null, "after": {%s}}', '{"op": "u", "before": null, "after": {%s}}'),
        ("debezium-json", '{"schema": {}, "payload": {"after": {%s}}}', '{"schema": {}, "payload": {"after": {%s}}}'),
        ("debezium-json", '{"source": {"query": "ssn"}, "after": {%s}}', '{"source": {}, "after": {%s}}'),
        (
            "canal-json",
            '{"type": "UPDATE", "data": [{%s}], "old": [{"ssn": "078"}], "sql": "ssn"}',
            '{"type": "UPDATE", "data": [{%s}], "old": [{}]}',
        ),
        ("maxwell-json", '{"type": "update", "data": {%s}}', '{"type": "update", "data": {%s}}'),
        ("dms-json", '{"data": {"BI_ssn": "078", %s}}', '{"data": {%s}}'),
        ("debezium-json", '{"op": "u", "value": {"after": {%s}}}', '{"op": "u", "value": {"after": {%s}}}'),
        ("debezium-json", "{%s}", "{%s}"),
        ("json", '{"data": {"ssn": true}, %s}', '{"data": {"ssn": true}, %s}'),
        ("debezium-flat-json", '{"payload": {%s}}', '{"payload": {%s}}'),
    ],
)
def test_the_rest_of_a_message_is_unchanged(format_name: str, message: str, rest: str) -> None:
    cut = value_without(TARGET, format_name)
    assert cut((message % ROW).encode()) == (rest % CUT).replace(" ", "").encode()


@pytest.mark.parametrize(
    "broken", [b'{"after": {"ssn": "078', b"1,078-05-1120", b"\x00\x00\x00\x00\x01\xff", b"[" * 99999]
)
def test_unparseable_messages_are_not_kept(broken: bytes) -> None:
    assert value_without(TARGET, "debezium-json")(broken) is None


@pytest.mark.parametrize(
    ("key", "rest"), [(b'{"id": 1, "ssn": "078"}', b'{"id":1}'), (b"7", b"7"), (b"\xff", b"\xff"), (None, None)]
)
def test_a_key_need_not_be_json(key: bytes | None, rest: bytes | None) -> None:
    assert key_without(TARGET)(key) == rest
