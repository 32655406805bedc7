"""The tables that Flink writes: each is difficult in some way for conversions of equality deletes.

Standard library only, see :mod:`local_services.flink_changes`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from local_services.flink_changes import MakeRow, Row

NAMESPACE = "flink"
_FLINK = {
    "long": "BIGINT",
    "int": "INT",
    "string": "STRING",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP(6)",
    "timestamptz": "TIMESTAMP_LTZ(6)",
    "binary": "BYTES",
}


@dataclass(frozen=True)
class Column:
    """A column.

    :param type: Iceberg's type, in its JSON form if nested.
    """

    name: str
    type: Any
    required: bool = False

    @property
    def flink_type(self) -> str:
        """Return the type in Flink's SQL."""
        return _flink_type(self.type) + (" NOT NULL" if self.required else "")


@dataclass(frozen=True)
class Evolution:
    """Changes of a table before its second half is written.

    :param columns: the columns afterwards; None: as before.
    :param make: creates the rows afterwards; None: as before.
    :param key: the equality columns afterwards; None: as before.
    :param widen: columns that become long.
    :param rename: new names by old name.
    :param drop: dropped columns.
    :param add: added text columns.
    :param unpartition: dropped partition fields.
    :param format_version: the format version afterwards.
    """

    columns: tuple[Column, ...] | None = None
    make: MakeRow | None = None
    key: tuple[str, ...] | None = None
    widen: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    unpartition: tuple[str, ...] = ()
    format_version: int | None = None

    def carried(self, row: Row) -> Row:
        """Convert a row from before the evolution to the columns after it."""
        renamed = {self.rename.get(name, name): value for name, value in row.items() if name not in self.drop}
        return renamed | dict.fromkeys(self.add)


@dataclass(frozen=True)
class Shape:
    """A kind of table.

    :param partitions: pairs of Iceberg's transform and column.
    :param upsert: Flink's upsert mode; otherwise updates come with their old row.
    :param properties: table properties.
    :param then: the evolution after the first half.
    :param versions: format versions to write it in.
    :param endless: whether it is written until it is stopped.
    """

    key: tuple[str, ...]
    columns: tuple[Column, ...]
    make: MakeRow
    partitions: tuple[tuple[str, str], ...] = ()
    upsert: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)
    then: Evolution | None = None
    versions: tuple[int, ...] = (2, 3)
    endless: bool = False

    @property
    def required(self) -> set[str]:
        """Return the columns that must not be null."""
        return {column.name for column in self.columns if column.required}


def tables() -> dict[str, tuple[Shape, int]]:
    """Return the shape and initial format version of each table, by its name without namespace."""
    return {f"{name}_v{version}": (shape, version) for name, shape in shapes().items() for version in shape.versions}


def shapes() -> dict[str, Shape]:
    """Return all shapes by name."""
    plain, by_region = (ID, *PAYLOAD), (REGION, ID, *PAYLOAD)
    return {
        "plain": Shape(("id",), plain, numbered),
        "identity": Shape(("region", "id"), by_region, in_region, (("identity", "region"),)),
        "buckets": Shape(("id",), plain, numbered, (("bucket[4]", "id"),)),
        "nested": Shape(("tenant", "code"), (TENANT, CODE, *PAYLOAD, *NESTED), of_tenant),
        "text_key": Shape(("code",), (CODE, *PAYLOAD), coded),
        "text_buckets": Shape(("code",), (CODE, *PAYLOAD), coded, (("bucket[3]", "code"),)),
        # not upsert: the delete files hold whole rows, the equality ids name the key only
        "changelog": Shape(("id",), plain, numbered, upsert=False),
        "changelog_identity": Shape(("region", "id"), by_region, in_region, (("identity", "region"),), upsert=False),
        "hidden": Shape(
            ("moment", "code"), (MOMENT, CODE, *PAYLOAD), at_moment, (("month", "moment"), ("truncate[2]", "code"))
        ),
        "key_types": Shape(tuple(column.name for column in KEY_TYPES), (*KEY_TYPES, *PAYLOAD), typed),
        "avro": Shape(("id",), plain, numbered, properties={"write.format.default": "avro"}),
        "orc": Shape(("id",), plain, numbered, properties={"write.format.default": "orc"}),
        "evolved_columns": Shape(("id",), NARROW, narrow, then=EVOLVED_COLUMNS),
        # the equality deletes of the second half reach the whole table
        "evolved_partitions": Shape(
            ("region", "id"),
            by_region,
            in_region,
            (("identity", "region"),),
            then=Evolution(unpartition=("region",)),
        ),
        "two_keys": Shape(("id",), (ID, CODE, *PAYLOAD), numbered_and_coded, then=Evolution(key=("code",))),
        # position-delete files of v2 and deletion vectors of v3 in one table
        "upgraded": Shape(("id",), plain, numbered, then=Evolution(format_version=3), versions=(2,)),
        "stream": Shape(("id",), plain, numbered, (("bucket[2]", "id"),), endless=True),
    }


def columns_at_the_end(shape: Shape) -> tuple[Column, ...]:
    """Return the columns after the shape's evolution."""
    return (shape.then.columns if shape.then else None) or shape.columns


def numbered(random: Random, number: int, version: int) -> Row:
    """Create a row with a number as its key; the smallest and largest are among them."""
    return {"id": _EDGES.get(number, number), **payload(random, version)}


def in_region(random: Random, number: int, version: int) -> Row:
    """Create a row of a region whose name is hard to use as a folder name."""
    return {"region": _REGIONS[number % len(_REGIONS)], "id": number, **payload(random, version)}


def coded(random: Random, number: int, version: int) -> Row:
    """Create a row with a text as its key."""
    return {"code": code(number), **payload(random, version)}


def numbered_and_coded(random: Random, number: int, version: int) -> Row:
    """Create a row that both its number and its text identify."""
    return {"id": number, "code": code(number), **payload(random, version)}


def of_tenant(random: Random, number: int, version: int) -> Row:
    """Create a row with a key of two columns, and nested columns."""
    key = {"tenant": number % 7 - 3, "code": code(number // 7)}
    return {**key, **payload(random, version), **nested(random, version)}


def at_moment(random: Random, number: int, version: int) -> Row:
    """Create a row of one of three months."""
    return {"moment": _moment(number), "code": code(number), **payload(random, version)}


def typed(random: Random, number: int, version: int) -> Row:
    """Create a row whose key has a column of every type allowed in keys."""
    day = _moment(number // 9)[:10]
    fraction = f"{(number // 3 % 1000 - 40) * 1234567890123:d}.{number // 4 % 10000:04d}"
    values = [day, _moment(number // 7), _moment(number // 5) + "Z", fraction, number % 2 == 0, number // 2]
    binary = _base64(bytes([number % 256, number // 256 % 256]))
    names = [column.name for column in KEY_TYPES]
    return {**dict(zip(names, [*values, binary], strict=True)), **payload(random, version)}


def narrow(random: Random, number: int, version: int) -> Row:
    """Create a row before the columns evolve."""
    key = number - 50 if number < 1_000_000 else number
    values = {"b": random.choice([None, version]), "c": random.choice([None, 0.5, version / 4])}
    return {"id": key, "a": random.choice(_WORDS), **values}


def wide(random: Random, number: int, version: int) -> Row:
    """Create a row after the columns evolved; earlier keys keep their number."""
    key = number - 50 if number < 1_000_000 else number + 2**40
    values = {"b": random.choice([None, version << 33]), "d": random.choice([None, f"d{version}"])}
    return {"id": key, "renamed": random.choice(_WORDS), **values}


def code(number: int) -> str:
    """Return a text for a number, first the texts that some programs confuse."""
    return _HARD[number] if number < len(_HARD) else f"ключ-{number:05d}-{'é' if number % 2 else 'e'}"


def payload(random: Random, version: int) -> Row:
    """Create values of :data:`PAYLOAD`, about one of seven null."""
    day = f"20{random.randrange(10, 30):02d}-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}"
    clock = f"{random.randrange(24):02d}:{random.randrange(60):02d}:{random.randrange(60):02d}"
    moment = f"{day}T{clock}.{random.randrange(1, 10**6):06d}"
    values = {
        "name": f"{random.choice(_WORDS)}#{version}",
        "quantity": random.choice([0, -1, 2**31 - 1, -(2**31), version]),
        "price": f"{random.randrange(-(10**6), 10**6) / 100:.2f}",
        "score": random.choice([0.0, 1.5, random.random(), 1e300, "NaN", "Infinity"]),
        "born": day,
        "seen": moment,
        "seen_at": moment + "Z",
        "flag": random.random() < 0.5,
        "raw": _base64(random.randbytes(random.randrange(9))),
    }
    return {name: None if random.random() < 0.15 else value for name, value in values.items()}


def nested(random: Random, version: int) -> Row:
    """Create values of :data:`NESTED`."""
    pair = {"a": random.choice([None, version]), "b": random.choice(_WORDS)}
    words = [random.choice([*_WORDS, None]) for _ in range(random.randrange(4))]
    counts = {word: random.choice([None, version]) for word in random.sample(["k", "é", "🦀"], random.randrange(3))}
    return {
        name: None if random.random() < 0.2 else value
        for name, value in {"pair": pair, "words": words, "counts": counts}.items()
    }


def _flink_type(kind: Any) -> str:
    if isinstance(kind, str):
        return _FLINK.get(kind) or kind.replace("decimal", "DECIMAL").replace(" ", "")
    if kind["type"] == "struct":
        return f"ROW<{', '.join(f['name'] + ' ' + _flink_type(f['type']) for f in kind['fields'])}>"
    if kind["type"] == "list":
        return f"ARRAY<{_flink_type(kind['element'])}>"
    return f"MAP<{_flink_type(kind['key'])}, {_flink_type(kind['value'])}>"


def _moment(number: int) -> str:
    return f"2024-{number % 3 + 1:02d}-{number % 20 + 1:02d}T{number % 24:02d}:00:00.{number:06d}"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _columns(required: bool, types: Mapping[str, Any]) -> tuple[Column, ...]:
    return tuple(Column(name, kind, required) for name, kind in types.items())


_EDGES = {0: -(2**63), 1: 2**63 - 1, 2: -1, 3: 0}
_REGIONS: Sequence[str] = ["eu west", "東京", "a/b=c%", "São Paulo", "", "🦀", "null", "Ω" * 20]
_WORDS: Sequence[str] = [
    "plain",
    "naïve",
    "Zoë",
    "東京",
    "🦀 crab",
    "a'b\"c",
    "",
    " lead",
    "tail ",
    "tab\there",
    "Ω" * 30,
]
# combined and single characters, cases, more than the 16 characters that bounds keep, the last code points
_HARD: Sequence[str] = [
    *["", " ", "é", "e\u0301", "É", "ß", "SS", "ﬀ", "ff", "🦀", "🦀🦀", "\U0010ffff", "\uffff", "\u00a0"],
    *[
        "z" * 40,
        "z" * 40 + "é",
        "日本語" * 8,
        "日本語" * 8 + "x",
        "common-prefix-0123456789-a",
        "common-prefix-0123456789-b",
    ],
    *["null", "NULL", "a/b=c%2F", "'; --"],
]

ID, CODE, REGION = Column("id", "long", True), Column("code", "string", True), Column("region", "string", True)
TENANT, MOMENT = Column("tenant", "int", True), Column("moment", "timestamp", True)
PAYLOAD = _columns(
    False,
    {
        "name": "string",
        "quantity": "int",
        "price": "decimal(12, 2)",
        "score": "double",
        "born": "date",
        "seen": "timestamp",
        "seen_at": "timestamptz",
        "flag": "boolean",
        "raw": "binary",
    },
)
NESTED = _columns(
    False,
    {
        "pair": {
            "type": "struct",
            "fields": [
                {"id": 101, "name": "a", "required": False, "type": "int"},
                {"id": 102, "name": "b", "required": False, "type": "string"},
            ],
        },
        "words": {"type": "list", "element-id": 103, "element-required": False, "element": "string"},
        "counts": {
            "type": "map",
            "key-id": 104,
            "key": "string",
            "value-id": 105,
            "value-required": False,
            "value": "long",
        },
    },
)
KEY_TYPES = _columns(
    True,
    {
        "k_date": "date",
        "k_local": "timestamp",
        "k_moment": "timestamptz",
        "k_decimal": "decimal(20, 4)",
        "k_flag": "boolean",
        "k_int": "int",
        "k_binary": "binary",
    },
)
NARROW = (Column("id", "int", True), Column("a", "string"), Column("b", "int"), Column("c", "float"))
EVOLVED_COLUMNS = Evolution(
    columns=(ID, Column("renamed", "string"), Column("b", "long"), Column("d", "string")),
    make=wide,
    widen=("id", "b"),
    rename={"a": "renamed"},
    drop=("c",),
    add=("d",),
)
