"""Engines that read tables: what each of them reads, and the form of a table that several of them read.

Every fact about an engine has a source in docs/guides/readers.md; a fact that was neither stated nor tested is None.
Such an engine counts neither as able nor as unable to read a table, and a form is only chosen for engines that are
known to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any, Literal

from lakecdc.contract.errors import SpecError

ReaderName = Literal[
    "athena",
    "bigquery",
    "clickhouse",
    "databricks",
    "duckdb",
    "flink",
    "pyiceberg",
    "redshift",
    "snowflake",
    "spark",
    "starrocks",
    "trino",
]
#: the newest format version that Iceberg 1.12 writes, with the files of version 3 and absolute locations
NEWEST_VERSION = 4
_LAST_WITH_EQUALITY = 3


@dataclass(frozen=True)
class Reader:
    """Read capabilities of one engine; None where nothing is known.

    :param short: the name in ``readers``.
    :param name: the engine, with the first version that they apply to.
    :param equality_deletes: whether it applies equality-delete files.
    :param position_deletes: whether it applies position-delete files (format version 2).
    :param deletion_vectors: whether it applies deletion vectors (format version 3).
    :param timestamps_ns: whether it reads timestamps in nanoseconds (format version 3).
    :param variant: whether it reads columns of type variant (format version 3).
    :param default_values: whether older rows have the default value of a column (format version 3).
    :param tried: the version in this project's tests; without one, all facts are from documents.
    """

    short: ReaderName
    name: str
    max_format_version: int
    equality_deletes: bool | None
    position_deletes: bool | None
    deletion_vectors: bool | None
    timestamps_ns: bool | None
    variant: bool | None
    default_values: bool | None
    tried: str = ""


# format version; equality deletes, position deletes, deletion vectors; timestamps_ns, variant, default values
READERS: tuple[Reader, ...] = (
    Reader("athena", "Amazon Athena", 2, True, True, False, False, False, False),
    Reader("redshift", "Amazon Redshift", 3, None, True, True, None, None, True),
    Reader("flink", "Apache Flink with Iceberg 1.10", 3, True, True, True, True, False, None),
    Reader("spark", "Apache Spark with Iceberg 1.12", 4, True, True, True, False, True, True, "1.12.0"),
    Reader("clickhouse", "ClickHouse 26.9", 3, True, True, False, True, False, False, "chdb-core 26.9.0"),
    Reader("databricks", "Databricks Runtime 18", 3, False, False, True, None, True, None),
    Reader("duckdb", "DuckDB 1.5", 3, True, True, True, True, True, True, "1.5.5"),
    Reader("bigquery", "Google BigQuery", 3, None, True, True, False, False, False),
    Reader("pyiceberg", "PyIceberg 0.12", 3, False, True, True, True, False, True, "0.12.0"),
    Reader("snowflake", "Snowflake", 3, False, True, True, True, True, True),
    Reader("starrocks", "StarRocks", 2, True, True, None, None, None, None),
    Reader("trino", "Trino", 3, True, True, True, True, None, True, "483"),
)
#: what columns can need of an engine
_FEATURES = {
    "timestamps_ns": "timestamps in nanoseconds",
    "variant": "columns of type variant",
    "default_values": "default values",
}
_OF_TYPE = {"timestamp_ns": "timestamps_ns", "timestamptz_ns": "timestamps_ns", "variant": "variant"}
_BY_SHORT: dict[str, Reader] = {reader.short: reader for reader in READERS}
#: names of the readers in settings
SHORT_NAMES = frozenset(_BY_SHORT)


def can_read(reader: Reader, format_version: int, equality_deletes: int, position_deletes: int) -> bool | None:
    """Check whether an engine can read a table with numbers of deletes, in files or rows; None if it is not known.

    In format version 3 position deletes count as deletion vectors, including position-delete files of an upgraded table
    until ``rewrite_delete_files`` converts them.
    """
    known = [sure for _, sure in _obstacles(reader, format_version, equality_deletes, position_deletes)]
    return False if True in known else None if known else True


def _obstacles(
    reader: Reader, format_version: int, equality: int, position: int, features: Iterable[str] = ()
) -> Iterator[tuple[str, bool]]:
    """Yield what an engine is not known to read, and whether it is known not to read it."""
    if format_version > reader.max_format_version:
        yield f"format version {format_version}", True
        return
    if equality and reader.equality_deletes is not True:
        yield "equality deletes", reader.equality_deletes is False
    vectors = format_version >= 3
    applies = reader.deletion_vectors if vectors else reader.position_deletes
    if position and applies is not True:
        yield "deletion vectors" if vectors else "position deletes", applies is False
    for feature in features:
        if (reads := getattr(reader, feature)) is not True:
            yield _FEATURES[feature], reads is False


def readable_by(format_version: int, equality_deletes: int, position_deletes: int) -> list[str]:
    """Return the names of the engines that can read a table; see :func:`can_read`."""
    return [r.name for r in READERS if can_read(r, format_version, equality_deletes, position_deletes)]


def refused_by(format_version: int, equality_deletes: int, position_deletes: int) -> list[str]:
    """Return the names of the engines that are known not to read a table; see :func:`can_read`."""
    return [r.name for r in READERS if can_read(r, format_version, equality_deletes, position_deletes) is False]


def gained_by_rewrite(format_version: int, equality_deletes: int, position_deletes: int) -> list[str]:
    """Return the names of the engines that can read a table only after its equality deletes are rewritten."""
    refused = refused_by(format_version, equality_deletes, position_deletes)
    after = readable_by(format_version, 0, equality_deletes + position_deletes)
    return [name for name in after if name in refused]


def equality_refusal(format_version: int) -> tuple[str, str] | None:
    """Explain why a table must not get equality deletes, and what to do; None if it may.

    Format version 4 does not allow new ones (https://github.com/apache/iceberg/pull/17783); Iceberg 1.12 still writes
    them.
    """
    if format_version <= _LAST_WITH_EQUALITY:
        return None
    return (
        f"It has format version {format_version}, which does not allow new equality deletes.",
        'Set "deletes": "resolved" in its target, or use mode merge.',
    )


Deletes = Literal["equality", "resolved", "none"]
#: equality and position deletes that a table of each kind may have; jobs turn equality deletes into position deletes
_WRITTEN: dict[Deletes, tuple[int, int]] = {"equality": (1, 1), "resolved": (0, 1), "none": (0, 0)}


@dataclass(frozen=True)
class Form:
    """Format version and deletes of a table.

    :param deletes: ``equality`` deletes, which jobs resolve later; ``resolved`` ones, which are position deletes or
        deletion vectors; or ``none``.
    """

    format_version: int
    deletes: Deletes

    @property
    def is_allowed(self) -> bool:
        """Check whether the format version allows these deletes."""
        return self.deletes != "equality" or equality_refusal(self.format_version) is None

    def __str__(self) -> str:
        resolved = "deletion vectors" if self.format_version >= 3 else "position deletes"
        deletes = {"equality": "with equality deletes", "resolved": f"with {resolved}", "none": "without deletes"}
        return f"format version {self.format_version} {deletes[self.deletes]}"


def choose_form(
    names: Sequence[str],
    versions: Sequence[int] = (2, 3),
    deletes: Sequence[Deletes] = ("equality", "resolved"),
    table: str | None = None,
) -> Form:
    """Choose the cheapest form of a table that all readers are known to read.

    :param names: of the readers, as in ``Reader.short``.
    :param versions: format versions to choose from, the preferred one first.
    :param deletes: kinds of deletes to choose from, the cheapest first.
    :raises SpecError: no form is read by all of them; it names contradicting readers, and what each reads.
    """
    forms = [form for form in starmap(Form, product(versions, deletes)) if form.is_allowed]
    for form in forms:
        if not _unread(names, form.format_version, *_WRITTEN[form.deletes]):
            return form
    readers = [_BY_SHORT[name] for name in _contradicting(names, forms)]
    each = "; ".join(f"{reader.name} reads {_abilities(reader)}" for reader in readers)
    kind = " with equality deletes" if tuple(deletes) == ("equality",) else ""
    raise SpecError(
        f"No table of format version {_joined(map(str, versions), 'or')}{kind} is known to be read by "
        f"{_joined(reader.name for reader in readers)}: {each}.",
        table=table,
        hint="Remove one of them from readers and feed a separate table for it, or remove format_version and deletes "
        "if they are set.",
    )


def explain_form(names: Sequence[str], form: Form, deletes: Iterable[Deletes] = ("equality", "resolved")) -> str:
    """Explain in one sentence why a form is chosen for readers: which of them cannot read the cheaper ones."""
    forms = [Form(*pair) for pair in product((2, 3), deletes)]
    cheaper = forms[: forms.index(form)] if form in forms else []
    obstacles = dict.fromkeys(o for f in cheaper for o in _unread(names, f.format_version, *_WRITTEN[f.deletes]))
    text = str(form).capitalize()
    return f"{text}, because {', and '.join(obstacles)}." if obstacles else f"{text}, which all its readers can read."


@dataclass(frozen=True)
class Misfit:
    """Why a table does not fit its readers, and what to do, each in one sentence."""

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text} {self.remedy}"


def find_misfit(
    names: Sequence[str],
    format_version: int,
    summary: Mapping[str, str],
    deletes: Deletes = "none",
    columns: Sequence[Mapping[str, Any]] = (),
) -> Misfit | None:
    """Return why a table does not fit its readers; None if it does.

    :param summary: of the table's head; empty if it has no snapshot.
    :param deletes: the kind that will be written to it.
    :param columns: as Iceberg's JSON of its schema has them.
    """
    # a missing total proves nothing
    live = [int(summary.get(f"total-{kind}-deletes", 1)) if summary else 0 for kind in ("equality", "position")]
    equality, position = (max(pair) for pair in zip(live, _WRITTEN[deletes], strict=True))
    obstacles = _unread(names, format_version, equality, position, _features(columns))
    if not obstacles:
        return None
    text = f"The table has format version {format_version}, and {', and '.join(obstacles)}."
    if any(format_version > _BY_SHORT[name].max_format_version for name in names):
        return Misfit(text, "The format version cannot be lowered: feed a new table for them.")
    by_job = _unread(names, format_version, equality, position)
    return Misfit(text, "Run the job set_readers." if by_job else "Feed a table without such columns for them.")


def _features(columns: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the fields of :class:`Reader` for what columns need of an engine, nested ones included."""
    features = set[str]()
    for column in columns:
        if column.get("initial-default") is not None:
            features.add("default_values")
        kinds = [column.get(key) for key in ("type", "element", "key", "value")]
        features.update(_OF_TYPE[kind] for kind in kinds if isinstance(kind, str) and kind in _OF_TYPE)
        nested = [kind for kind in kinds if isinstance(kind, Mapping)]
        features |= _features([*nested, *(field for kind in nested for field in kind.get("fields", ()))])
    return features


def _unread(
    names: Iterable[str], format_version: int, equality: int, position: int, features: Iterable[str] = ()
) -> list[str]:
    """Return what readers are not known to read in a table, as clauses; empty if they can read it."""
    readers_by_obstacle: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        for obstacle in _obstacles(_BY_SHORT[name], format_version, equality, position, sorted(features)):
            readers_by_obstacle.setdefault(obstacle, []).append(_BY_SHORT[name].name)
    return [
        f"{_joined(who)} cannot read {what}" if sure else f"it is not known that {_joined(who)} can read {what}"
        for (what, sure), who in readers_by_obstacle.items()
    ]


def _contradicting(names: Sequence[str], forms: Sequence[Form]) -> list[str]:
    """Return the fewest readers that have no form in common."""
    left = list(names)
    for name in names:
        fewer = [each for each in left if each != name]
        if all(_unread(fewer, form.format_version, *_WRITTEN[form.deletes]) for form in forms):
            left = fewer
    return left


def _abilities(reader: Reader) -> str:
    kinds = {
        "equality deletes": reader.equality_deletes,
        "position deletes": reader.position_deletes,
        "deletion vectors": reader.deletion_vectors,
    }
    known = _joined(kind for kind, applied in kinds.items() if applied) or "no deletes"
    return f"{known}, up to format version {reader.max_format_version}"


def _joined(parts: Iterable[str], word: str = "and") -> str:
    *first, last = list(parts) or [""]
    return f"{', '.join(first)} {word} {last}" if first else last
