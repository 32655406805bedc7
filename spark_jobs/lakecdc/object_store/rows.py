"""Rows of a database by which writes exclude each other, for a store that has no conditional writes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from lakecdc.contract.errors import SourceUnavailableError, SpecError
from lakecdc.contract.secrets import mask
from lakecdc.metadata.locations import split
from lakecdc.object_store.s3_client import aws_client
from lakecdc.object_store.storage import Answer

#: table of a SQL database, created at the first use
TABLE = "lakecdc_objects"
_DYNAMO = "dynamodb://"
_DATABASES = ("postgresql", "mysql", "mariadb", "sqlite")
# requests that did nothing, and never will
_REJECTED = {"ValidationException", "AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException"}


@dataclass(frozen=True)
class Row:
    """The current body of an object.

    :param tag: differs for every write.
    :param body: location of the body, which is written once.
    :param size: of the body in bytes.
    :param modified: when it was written, in seconds since 1970 by the writer's clock.
    """

    tag: str
    body: str
    size: int
    modified: int

    @property
    def time(self) -> datetime:
        """Return when it was written (UTC)."""
        return datetime.fromtimestamp(self.modified, UTC)


class Rows(Protocol):
    """Rows by the location of an object; reads see the latest write."""

    def read(self, location: str) -> Row | None:
        """Return the row of an object."""

    def write(self, location: str, row: Row, tag: str | None) -> Answer:
        """Write the row of an object if the present one has a tag, or with None if there is none."""

    def delete(self, location: str) -> None:
        """Delete the row of an object."""

    def list(self, prefix: str) -> Iterator[tuple[str, Row]]:
        """Yield the rows of all objects whose location begins with a prefix."""

    def bodies(self) -> Iterator[str]:
        """Yield the locations of the bodies that rows name."""


def open_rows(service: str, properties: Mapping[str, str], create: bool = True) -> Rows:
    """Return the rows of a database.

    :param service: a URL of SQLAlchemy, or ``dynamodb://table``.
    :param properties: pyiceberg's; only ``dynamodb.…`` and ``client.…`` are read.
    """
    if service.startswith(_DYNAMO):
        return DynamoRows(service.removeprefix(_DYNAMO), properties, create)
    return SqlRows(service, create)


class SqlRows:
    """Rows of one table of a SQL database.

    :raises SpecError: the URL cannot be used here.
    """

    def __init__(self, url: str, create: bool) -> None:
        try:
            import sqlalchemy as sql
            from sqlalchemy.dialects import mysql

            database = sql.make_url(url).get_backend_name()
            self._engine: Any = sql.create_engine(url, pool_pre_ping=True) if database in _DATABASES else None
        except Exception as error:
            # SQLAlchemy's message may repeat a password in the URL
            raise SpecError(
                f"commit_service cannot be opened: {type(error).__name__}.",
                hint="Give a URL of SQLAlchemy, and install sqlalchemy and the database's driver here.",
            ) from None
        if self._engine is None:
            raise SpecError(
                f"commit_service cannot be a database of type {database!r}.",
                hint=f"Use {', '.join(_DATABASES)} or dynamodb.",
            )
        # bytes have the same order in every database, so that an index finds a prefix
        path = sql.LargeBinary(2048).with_variant(mysql.VARBINARY(2048), "mysql", "mariadb")
        columns: list[Any] = [
            sql.Column("id", sql.String(64), primary_key=True),
            sql.Column("location", path, index=True),
            sql.Column("tag", sql.String(64)),
            sql.Column("body", sql.String(2048)),
        ]
        columns += [sql.Column(name, sql.BigInteger()) for name in ("size", "modified")]
        self._rows = sql.Table(TABLE, sql.MetaData(), *columns)
        if create:
            with self._explained_errors("open"):
                self._rows.create(self._engine, checkfirst=True)

    def __str__(self) -> str:
        return f"the rows of {self._engine.url.render_as_string()}"

    def read(self, location: str) -> Row | None:
        with self._explained_errors(location), self._engine.connect() as connection:
            record = connection.execute(self._rows.select().where(self._is(location))).first()
        return Row(*record[2:]) if record else None

    def write(self, location: str, row: Row, tag: str | None) -> Answer:
        from sqlalchemy.exc import DBAPIError, IntegrityError

        if tag is None:
            statement: Any = self._rows.insert().values(id=_id(location), location=location.encode(), **asdict(row))
        else:
            # the database checks the tag again if it had to wait for another writer
            there = self._is(location) & (self._rows.c.tag == tag)
            statement = self._rows.update().where(there).values(**asdict(row))
        try:
            with self._engine.begin() as connection:
                changed = connection.execute(statement).rowcount
            # not every driver counts what an insert adds
            return Answer.REFUSED if tag is not None and changed == 0 else Answer.WRITTEN
        except IntegrityError:
            return Answer.REFUSED
        # the answer may be lost, but the row shows the outcome
        except DBAPIError:
            return Answer.UNCLEAR

    def delete(self, location: str) -> None:
        with self._explained_errors(location), self._engine.begin() as connection:
            connection.execute(self._rows.delete().where(self._is(location)))

    def list(self, prefix: str) -> Iterator[tuple[str, Row]]:
        begin, location = prefix.encode(), self._rows.c.location
        # no text in UTF-8 has a byte that nothing follows
        below = (location >= begin) & (location < begin[:-1] + bytes([begin[-1] + 1]))
        with self._explained_errors(prefix), self._engine.connect() as connection:
            records = connection.execute(self._rows.select().where(below)).all()
        yield from ((bytes(each[1]).decode(), Row(*each[2:])) for each in records)

    def bodies(self) -> Iterator[str]:
        with self._explained_errors(TABLE), self._engine.connect() as connection:
            yield from connection.execute(self._rows.select().with_only_columns(self._rows.c.body)).scalars()

    def _is(self, location: str) -> Any:
        return self._rows.c.id == _id(location)

    def _explained_errors(self, what: str) -> AbstractContextManager[None]:
        from sqlalchemy.exc import SQLAlchemyError

        return _failing_as(what, SQLAlchemyError)


class DynamoRows:
    """Rows of one table of DynamoDB: partition key ``store`` and sort key ``path``, both texts.

    :param table: created at the first use if missing.
    """

    def __init__(self, table: str, properties: Mapping[str, str], create: bool) -> None:
        self._table = table
        # a client that repeats a conditional write is refused because of its own first attempt
        self._client = aws_client("dynamodb", properties, attempts=1)
        self._reader = aws_client("dynamodb", properties)
        if create:
            with self._explained_errors("open"):
                self._make()

    def __str__(self) -> str:
        return f"the rows of {self._table} in DynamoDB"

    def read(self, location: str) -> Row | None:
        with self._explained_errors(location):
            response = self._reader.get_item(TableName=self._table, Key=_key(location), ConsistentRead=True)
        return _row(response["Item"]) if "Item" in response else None

    def write(self, location: str, row: Row, tag: str | None) -> Answer:
        from botocore.exceptions import ClientError

        values = {"tag": {"S": row.tag}, "body": {"S": row.body}}
        item = _key(location) | values | {name: {"N": str(getattr(row, name))} for name in ("size", "modified")}
        if tag is None:
            condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(#tag)"}
        else:
            condition = {"ConditionExpression": "#tag = :tag", "ExpressionAttributeValues": {":tag": {"S": tag}}}
        # DynamoDB reserves many words
        condition["ExpressionAttributeNames"] = {"#tag": "tag"}
        try:
            self._client.put_item(TableName=self._table, Item=item, **condition)
        except self._client.exceptions.ConditionalCheckFailedException:
            return Answer.REFUSED
        except ClientError as error:
            if error.response["Error"]["Code"] in _REJECTED:
                raise _unavailable(location, error) from error
            return Answer.UNCLEAR
        # the connection was lost, but the row shows the outcome
        except Exception:
            return Answer.UNCLEAR
        return Answer.WRITTEN

    def delete(self, location: str) -> None:
        with self._explained_errors(location):
            self._reader.delete_item(TableName=self._table, Key=_key(location))

    def list(self, prefix: str) -> Iterator[tuple[str, Row]]:
        key, root = _key(prefix), prefix.removesuffix(split(prefix)[2])
        query = self._reader.get_paginator("query").paginate(
            TableName=self._table,
            ConsistentRead=True,
            KeyConditionExpression="#store = :store AND begins_with(#path, :path)",
            ExpressionAttributeNames={"#store": "store", "#path": "path"},
            ExpressionAttributeValues={":store": key["store"], ":path": key["path"]},
        )
        with self._explained_errors(prefix):
            items = [item for page in query for item in page["Items"]]
        yield from ((root + item["path"]["S"], _row(item)) for item in items)

    def bodies(self) -> Iterator[str]:
        scan = self._reader.get_paginator("scan").paginate(
            TableName=self._table, ConsistentRead=True, ProjectionExpression="body"
        )
        with self._explained_errors(self._table):
            yield from (item["body"]["S"] for page in scan for item in page["Items"])

    def _make(self) -> None:
        try:
            self._reader.describe_table(TableName=self._table)
            return
        except self._reader.exceptions.ResourceNotFoundException:
            pass
        names = {"store": "HASH", "path": "RANGE"}
        with suppress(self._reader.exceptions.ResourceInUseException):
            self._reader.create_table(
                TableName=self._table,
                KeySchema=[
                    {"AttributeName": name, "KeyType": "HASH" if name == "store" else "RANGE"} for name in names
                ],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
                BillingMode="PAY_PER_REQUEST",
            )
        self._reader.get_waiter("table_exists").wait(TableName=self._table)

    def _explained_errors(self, what: str) -> AbstractContextManager[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        return _failing_as(what, BotoCoreError, ClientError)


@contextmanager
def _failing_as(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise a database's errors as errors that say what to do."""
    try:
        yield
    except kinds as error:
        raise _unavailable(what, error) from error


def _id(location: str) -> str:
    return hashlib.sha256(location.encode()).hexdigest()


def _key(location: str) -> dict[str, dict[str, str]]:
    """Return the key of an item: bucket and path."""
    path = split(location)[2]
    return {"store": {"S": location.removesuffix(path) or "file:"}, "path": {"S": path}}


def _row(item: Mapping[str, Mapping[str, str]]) -> Row:
    return Row(item["tag"]["S"], item["body"]["S"], int(item["size"]["N"]), int(item["modified"]["N"]))


def _unavailable(what: str, error: Exception) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"commit_service: cannot read or write the row of {what}: {mask(str(error).rstrip('.'))}.",
        hint="Check that the database answers and that the login may create, read and write its table, then retry.",
    )
