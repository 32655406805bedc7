"""Envelopes of all JSON formats equal those that the SQL engine read from the same messages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakecdc.ingest.envelopes.json_values import parse_each
from lakecdc.ingest.envelopes.message import Envelope, Message, Rows, read_message
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.model.tokens import to_text
from tests.lakecdc.ingest.envelopes.corpus import Corpus, corpora
from tests.lakecdc.ingest.formats import fuzz

GOLDEN = json.loads(Path(__file__).with_name("envelopes_of_the_sql_engine.json").read_text())
EPOCH = 1
#: messages that are read differently on purpose, by corpus and place
DIFFERENT = {
    ("rare", 2): "a read of a snapshot of SQL Server has no change, so that its ordinal is that of the commit alone",
    ("rare", 3): "so has a change without a change LSN",
    ("damaged ogg", 42): "a date with a month of one digit is not a moment",
    ("damaged ogg", 50): "a damaged time is not passed over",
    ("damaged ogg", 67): "a damaged time is not passed over",
    ("damaged dms", 31): "a damaged time is not passed over, as the message would lose against every other",
    ("damaged dms", 80): "a damaged time is not passed over, as the message would lose against every other",
}


def summarize(envelope: Envelope, arrival: int) -> dict[str, Any]:
    """Return an envelope as a dict; only the problem if it has one or is not a row event."""
    if envelope.problem is not None:
        return {"problem": envelope.problem[0]}
    if envelope.op is None:
        return {}
    keys = envelope.keys
    images = {
        "before": _comparable(envelope.before),
        "after": _comparable(envelope.after),
        "record_key": _comparable(keys.record_key() if keys else None),
        "old_key": _comparable(keys.old_key() if keys else None),
    }
    known = {
        "op": envelope.op,
        "source_table": envelope.source_table or None,
        "order": envelope.place.order(EPOCH, arrival),
        "time_us": envelope.place.source_time,
        "key_names": list(envelope.key_names) if envelope.key_names else None,
        **images,
    }
    return {name: value for name, value in known.items() if value is not None}


def _comparable(image: dict[str, Any] | None) -> str | None:
    """Return an image as JSON in which numbers of the same value are equal."""
    if image is None:
        return None
    return json.dumps(json.loads(to_text(image), parse_int=float), sort_keys=True, ensure_ascii=False)


def envelopes_of(rows: Rows, message: Message) -> Iterator[Envelope]:
    (value,) = parse_each(pa.array([message.value], pa.binary()))
    return read_message(rows, message, value)


def read(corpus: Corpus) -> list[list[dict[str, Any]]]:
    """Return the envelopes of each message, in the order of their rows."""
    rows = find_format(corpus.format).rows(Reading(EPOCH))
    messages = [[summarize(one, m.arrival) for one in envelopes_of(rows, m)] for m in corpus.messages()]
    return [sorted(envelopes, key=lambda each: str(each.get("order", ""))) for envelopes in messages]


@pytest.mark.parametrize("corpus", [*corpora()], ids=lambda each: each.name)
def test_envelopes_equal_those_of_the_sql_engine(corpus: Corpus) -> None:
    expected, envelopes = GOLDEN[corpus.name], read(corpus)
    assert len(expected) == len(envelopes)
    differing = [place for place, pair in enumerate(zip(envelopes, expected, strict=True)) if pair[0] != pair[1]]
    assert differing == [place for name, place in DIFFERENT if name == corpus.name]


@pytest.mark.parametrize("name", fuzz.FORMATS)
def test_no_message_fails_a_task(name: str) -> None:
    rows, rng = find_format(fuzz.FORMATS[name]).rows(Reading(EPOCH)), random.Random(name)
    for text, _ in fuzz.messages(name, 3_000, 2):
        message = Message(text, fuzz.mutated_bytes(rng, text)[:60], "t", 0, {"__debezium.oldkey": text[:50]})
        for envelope in envelopes_of(rows, message):
            assert (envelope.op is None) or envelope.problem is None
            assert len(envelope.place.order(EPOCH, 0)) == 65


def test_a_read_sorts_below_a_change_of_the_same_commit_of_sql_server() -> None:
    place = {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005"}
    read_of, change = (
        {"op": op, "after": {"id": 1}, "source": {**place, **more}}
        for op, more in (("r", {"snapshot": "true"}), ("u", {"change_lsn": "00000027:00000758:0004"}))
    )
    rows = find_format("debezium-json").rows(Reading(EPOCH))
    orders = [
        one.place.order(EPOCH, 0)
        for event in (read_of, change)
        for one in envelopes_of(rows, Message(json.dumps(event).encode()))
    ]
    assert orders == sorted(orders)
