"""Measure how fast a task decodes and folds change events, by kind of event.

    python -m benchmarks.decode [--events 100000] [--kinds plain,odd,…] [--repeats 3]

Eight columns of an orders table, one process, no Spark. ``plain`` are Debezium's events. The other kinds deviate:
``one-odd`` and ``odd`` have text where a number is expected, in 1 % of the events and in all; ``misfits`` do not fit
their table in 1 %; ``placeholders`` omit a value in each update; ``nested`` have an object in a text column; ``tables``
are nine tenths other tables' events; ``columns`` have 61 columns; ``schemas`` carry Connect's; ``avro`` are the same
events in Avro, with keys; formats have their names. The peer is msgspec alone, which only parses the same texts (of
``avro`` those with schemas). The fastest repeat counts. The last line is JSON, in events per second of CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from benchmarks import avro, events
from benchmarks.encodings import ENCODINGS
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.engine.fold import grouping
from lakecdc.ingest.engine.tasks import Buffering, DecodeTask
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.values import Field
from lakecdc.model.order import Marks

_KEYS, _MORE, _UNAVAILABLE = 30_000, 53, "__debezium_unavailable_value"
_DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "12"},
}
_CONNECT: dict[str, dict[str, Any]] = {
    "bigint": {"type": "int64"},
    "string": {"type": "string"},
    "decimal(12,2)": _DECIMAL,
    "timestamp_ntz": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}


def _odd(number: int, event: dict[str, Any]) -> None:
    if event["after"]:
        event["after"]["version"] = str(event["after"]["version"])


def _misfit(number: int, event: dict[str, Any]) -> None:
    if event["after"]:
        event["after"]["version"] = 1.5


def _placeholder(number: int, event: dict[str, Any]) -> None:
    if event["op"] == "u":
        event["after"]["note"] = _UNAVAILABLE


def _nested(number: int, event: dict[str, Any]) -> None:
    for image in filter(None, (event["after"], event["before"])):
        image["note"] = {"text": image["note"], "tags": ["a", number]}


def _another_table(number: int, event: dict[str, Any]) -> None:
    if number % 10:
        event["source"]["table"] = f"table{number % 10}"


def _columns(number: int, event: dict[str, Any]) -> None:
    for image in filter(None, (event["after"], event["before"])):
        image |= {f"more{n}": f"value {n} {number}" for n in range(_MORE)}


def _schema(number: int, event: dict[str, Any]) -> None:
    for image in filter(None, (event["after"], event["before"])):
        cents = round(image["amount"] * 100)
        image["amount"] = b64encode(cents.to_bytes(5, "big", signed=True)).decode()
        image["updated_at"] = round(datetime.fromisoformat(image["updated_at"] + "Z").timestamp() * 1_000_000)
    columns = [{"field": name, "optional": name != "id", **_CONNECT[kind]} for name, kind in events.COLUMNS.items()]
    row = {"type": "struct", "optional": True, "fields": columns}
    fields = [{"field": "before", **row}, {"field": "after", **row}, {"field": "op", "type": "string"}]
    payload = dict(event)
    event.clear()
    event |= {"schema": {"type": "struct", "fields": fields}, "payload": payload}


#: change applied to Debezium's events, and in how many percent of them
KINDS: dict[str, tuple[Callable[[int, dict[str, Any]], None], int]] = {
    "plain": (lambda number, event: None, 0),
    "one-odd": (_odd, 1),
    "odd": (_odd, 100),
    "misfits": (_misfit, 1),
    "placeholders": (_placeholder, 100),
    "nested": (_nested, 100),
    "tables": (_another_table, 100),
    "columns": (_columns, 100),
    "schemas": (_schema, 100),
    "avro": (_schema, 100),
}
FORMATS = tuple(name for name in ENCODINGS if name.endswith("json") and name != "debezium-json")


def written(kind: str, count: int) -> list[bytes]:
    """Write the events of a kind."""
    change, of_hundred = KINDS.get(kind, KINDS["plain"])
    with tempfile.TemporaryDirectory() as folder:
        events.Writer(_KEYS, kind if kind in FORMATS else "debezium-json").write(Path(folder), count)
        lines = [line for path in sorted(Path(folder).iterdir()) for line in path.read_text().splitlines()]
    return [
        _changed(number, line, change) if number % 100 < of_hundred else line.encode()
        for number, line in enumerate(lines)
    ]


def _changed(number: int, line: str, change: Callable[[int, dict[str, Any]], None]) -> bytes:
    # decimals are short enough for a float
    event = json.loads(line)
    change(number, event)
    return json.dumps(event, separators=(",", ":")).encode()


def decoding(kind: str) -> Decoding:
    """Return the decoding of a kind of events."""
    types = dict(events.COLUMNS)
    if kind == "columns":
        types |= {f"more{n}": "string" for n in range(_MORE)}
    fields = tuple(Field(name, sql_type) for name, sql_type in types.items())
    order_by = ENCODINGS[kind].settings.get("order_by") if kind in FORMATS else None
    # canal's messages name the key
    key = () if kind == "canal-json" else ("id",)
    return Decoding(
        fields,
        ("id",),
        kind if kind in FORMATS else "debezium-avro" if kind == "avro" else "debezium-json",
        Target("shop.orders", key=key, source_table="orders"),
        Reading(0, _UNAVAILABLE, order_by, schemas=avro.schemas(types) if kind == "avro" else None),
        keyed=kind == "avro",
        rejects=True,
        sets_aside=True,
    )


def decoded(lines: Sequence[bytes], of: Decoding) -> float:
    """Return the CPU seconds a task takes."""
    if of.reading.schemas is None:
        values, arrival = pa.array(lines, pa.string()), pa.array(range(len(lines)), pa.int64())
        batch = pa.record_batch({"value": values, "arrival": arrival})
    else:
        batch = avro.messages((json.dumps(json.loads(line)["payload"]).encode() for line in lines), events.COLUMNS)

    def read(named: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (batch.slice(start, 16_384) for start in range(0, len(batch), 16_384))

    task = DecodeTask(of, read, Buffering.of(of, grouping(["bucket(4, id)"], ["id"], ["bigint"], 2), Marks()))
    begun = time.process_time()
    batches = list(task([]))
    seconds = time.process_time() - begun
    facts = [json.loads(text.as_py()) for batch in batches for text in batch.column("facts") if text.is_valid]
    odd = [one for one in facts if one["odd"] or one["left_out"] or one["aside"]]
    assert not odd, odd[0]
    return seconds


def parsed(lines: Sequence[bytes]) -> float:
    """Return the CPU seconds msgspec takes to parse the texts."""
    decode = msgspec.json.Decoder().decode
    gc.disable()
    begun = time.process_time()
    for line in lines:
        decode(line)
    seconds = time.process_time() - begun
    gc.enable()
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kinds", default=",".join((*KINDS, *FORMATS)))
    arguments = parser.parse_args()
    ours, peer = {}, {}
    for kind in arguments.kinds.split(","):
        lines, of = written(kind, arguments.events), decoding(kind)
        ours[kind] = round(len(lines) / min(decoded(lines, of) for _ in range(arguments.repeats)))
        peer[kind] = round(len(lines) / min(parsed(lines) for _ in range(arguments.repeats)))
        print(f"{kind}: {ours[kind]:,} events a second, msgspec alone {peer[kind]:,}")
    ratio = {kind: round(rate / ours["plain"], 2) for kind, rate in ours.items()} if "plain" in ours else {}
    facts = {"unit": "events/s", "events": arguments.events, "of_plain": ratio}
    print(json.dumps({"name": "bench-decode", "ours": ours, "peers": {"msgspec": peer}, **facts}))


if __name__ == "__main__":
    main()
