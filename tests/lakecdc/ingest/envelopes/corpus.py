"""Messages of all JSON formats: the stories of each tool, captured events, damaged messages, and rare ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakecdc.ingest.envelopes.json_values import UnreadableError, parse_json
from lakecdc.ingest.envelopes.message import Message
from lakecdc.model.tokens import Number, to_text
from tests.lakecdc.ingest.formats import fuzz, stories

CAPTURED = Path(__file__).parent.parent / "formats" / "captured"
#: damaged messages of each format
DAMAGED = 100


def _event(op: str = "u", **source: Any) -> str:
    origin = {"db": "d", "schema": "s", "table": "t", "ts_ms": 1_700_000_000_000, **source}
    return json.dumps({"op": op, "before": None, "after": {"id": 1}, "source": origin, "ts_ms": 1})


_LSN, _DB2 = "00000027:00000758:0005", "00000000:000102b5:000000000007bf55"
RARE = [
    _event(connector="sqlserver", commit_lsn=_LSN, change_lsn="00000027:00000758:0003", event_serial_no=2),
    _event(connector="sqlserver", commit_lsn=_LSN, change_lsn="00000026:00000700:0010", event_serial_no="1"),
    _event("r", connector="sqlserver", commit_lsn=_LSN, snapshot="true"),
    _event(connector="sqlserver", commit_lsn="00000027:00000758:ffff", change_lsn="NULL"),
    _event(connector="db2", commit_lsn=_DB2, change_lsn="00000000:00000000:00000000000f42a5"),
    _event("r", connector="db2", commit_lsn=_DB2, snapshot="last"),
    _event(connector="db2", commit_lsn=_LSN, change_lsn="00000027:00000758:0003"),
    _event(connector="oracle", scn="12345", commit_scn="12350"),
    _event(connector="oracle", scn="12345", commit_scn="", snapshot="true"),
    _event(connector="mongodb"),
    _event(connector="postgresql", sequence='["24023119","24023128"]', lsn=24023128),
    _event(connector="postgresql", sequence='[null,"24023128"]', lsn=24023128, snapshot="incremental"),
    _event(connector="postgresql", lsn=-5),
    _event(connector="postgresql", lsn=1.5),
    _event(connector="postgresql", lsn="77"),
    _event(connector="mysql", file="binlog.000012", pos=7, row=3),
    _event(connector="mysql", file="binlog.999999999999", pos=7, row=3),
    _event(connector="mysql", file="x", pos=7, row=3, ts_us=99999999999999999999),
    _event("t", connector="mysql"),
    *('{"op":"m"}', '{"ts_ms":5}', '{"status":"BEGIN"}', '{"ddl":"ALTER …"}', "null", "[]", "7", '"x"', '{"op":"c"}'),
    *(
        '{"payload":null,"schema":{}}',
        '{"payload":{"op":"c","after":{"id":1}},"schema":null}',
        '{"payload":{"op":"c"}}',
    ),
    *(
        '{"op":"c","after":[1]}',
        '{"op":"c","after":7}',
        '{"op":"c","after":{"":1}}',
        '{"op":"c","after":{"a\\u0000":1}}',
    ),
    *(
        '{"op":"c","op":"d"}',
        '{"op":"c","after":{"id":1,"id":2}}',
        '{"op":"c"} x',
        '{"op":NaN}',
        "{" * 3000,
        '{"op": "\\ud800"}',
    ),
]


@dataclass(frozen=True)
class Corpus:
    """Messages of one format.

    :param lines: one message each, as its value, or as a dumped Kafka record.
    """

    name: str
    format: str
    lines: tuple[bytes, ...]
    are_records: bool = False

    def messages(self) -> Iterator[Message]:
        """Yield the messages; a line's place is its arrival, a record's its offset."""
        for place, line in enumerate(self.lines):
            yield _record(line, place) if self.are_records else Message(line, arrival=place)


def corpora() -> Iterator[Corpus]:
    """Yield the corpora of all formats."""
    yield Corpus("rare", "debezium-json", tuple(text.encode() for text in RARE))
    for name, (format, encode, story) in stories.ENCODINGS.items():
        yield Corpus(f"story of {name}", format, tuple(line.encode() for line in encode(story)))
    for name, format in fuzz.FORMATS.items():
        yield Corpus(f"damaged {name}", format, tuple(text for text, _ in fuzz.messages(name, DAMAGED, 1)))
    for path in sorted(CAPTURED.glob("*.jsonl")):
        format = "debezium-flat-json" if "flat" in path.stem else "debezium-json"
        yield Corpus(f"captured {path.stem}", format, tuple(path.read_bytes().splitlines()), are_records=True)


def _record(line: bytes, place: int) -> Message:
    try:
        record = parse_json(line)
    except UnreadableError:
        return Message(line, arrival=place)
    headers = {name: _raw(value) or b"" for name, value in record.get("headers") or []}
    offset = record["offset"]
    arrival = place if offset is None else int(offset)
    return Message(_raw(record["value"]), _raw(record["key"]), record["topic"], None, headers, arrival)


def _raw(value: Any) -> bytes | None:
    if value is None:
        return None
    is_text = isinstance(value, str) and not isinstance(value, Number)
    return (value if is_text else to_text(value)).encode()
