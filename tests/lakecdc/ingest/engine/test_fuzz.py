"""Tasks survive any bytes: a message is decoded, set aside, or recognized as not a row event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakecdc.contract.target import Target
from lakecdc.ingest.engine import facts, packing, pieces
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
from lakecdc.ingest.engine.message_facts import message_facts
from lakecdc.ingest.engine.packing import UnpackTask
from lakecdc.ingest.engine.run import Scan
from lakecdc.ingest.engine.schemas import first_schema
from lakecdc.ingest.engine.tasks import Buffering, DecodeTask
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.payloads import unwrap
from lakecdc.ingest.formats.values import Field
from lakecdc.model.order import Marks, arrival_of
from tests.lakecdc.ingest.engine.decodings import decoding_of
from tests.lakecdc.ingest.formats.fuzz import COUNT, FORMATS, is_json, messages, written

FIELDS = (Field("id", "bigint"), Field("name", "string"), Field("description", "string"), Field("weight", "double"))


def payload_of(text: bytes) -> bytes:
    """Return the row event in a message, without its schema: the schema of another table's event is not checked."""
    parts = unwrap(text)
    return text if parts is None else parts[1]


def fuzzed(folder: Path, name: str, count: int, seed: int) -> None:
    messages_by_place = written(folder / "in.jsonl", list(messages(name, count, seed)))
    planned = pieces.plan({(folder / "in.jsonl").as_uri(): 0}, 1, 1 << 40)
    assert planned is not None
    target = Target("test.t", key=("id",), source_table="PRODUCTS" if name == "ogg" else "products")
    decoding = decoding_of(FIELDS, FORMATS[name], target)
    schema = first_schema(pa.record_batch({"value": [messages_by_place[0][0].decode()]}), decoding)
    if schema is not None:
        decoding = replace(decoding, fields=schema)
    task = DecodeTask(
        replace(decoding, sets_aside=True),
        planned[0],
        Buffering.of(decoding, None, Marks(), every=True, alone=True),
    )
    rows = list(task([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])]))
    reported = facts.merged(facts.from_json(row["facts"][0].as_py()) for row in rows if row["facts"][0].is_valid)
    assert reported.odd is None, reported.odd
    aside = {p for row in rows for cell in packing.unpacked(row["aside"]) for p in cell["arrival"].to_pylist()}
    unpack = UnpackTask(("id", "name", "description", "weight"), ("id",), "rcudx")
    events = [e for row in rows for b in unpack([row.select(["packed"])]) for e in b.select(["order"]).to_pylist()]
    applied = {arrival_of(event["order"]) for event in events}
    assert aside | applied <= {*messages_by_place}
    passed_over = {place: messages_by_place[place][0] for place in {*messages_by_place} - aside - applied}
    assert [text for text in passed_over.values() if not is_json(payload_of(text))] == []
    # messages that a tool writes beside events, such as DDL, are skipped everywhere
    known = {text for text, good in messages_by_place.values() if good and text in passed_over.values()}
    good = {place for place, (text, is_good) in messages_by_place.items() if is_good and text not in known}
    assert good <= applied | aside and len(applied) > count // 20
    # a first pass reads columns, or none
    scan = Scan(None, planned[0], 1, 1, keyed=False)  # type: ignore[arg-type]
    for one in message_facts(scan.first_values(200), EnvelopeReader(decoding.format, Reading(1), ())):
        assert one.fields is not None


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_messages_are_decoded_or_set_aside(tmp_path: Path, name: str) -> None:
    fuzzed(tmp_path, name, COUNT // len(FORMATS) + 1, 0)


@pytest.mark.soak
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(1, 21))
def test_more_mutated_messages_are_decoded_or_set_aside(tmp_path: Path, name: str, seed: int) -> None:
    fuzzed(tmp_path, name, COUNT, seed)
