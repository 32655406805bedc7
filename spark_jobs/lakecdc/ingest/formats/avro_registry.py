"""Read schemas from a registry, each once per run, on the driver.

Source: Confluent Schema Registry's API, ``GET /schemas/ids/{id}``, which Apicurio Registry and Karapace also have.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.contract.secrets import resolve
from lakecdc.contract.sources.formats import RegistrySettings
from lakecdc.ingest.formats.avro_schema import AvroSchema, read_schema

Headers = Sequence[tuple[str, str | bytes | None]] | None
log = logging.getLogger(__name__)

_SECONDS = 30.0
_ATTEMPTS = 4
_AT_ONCE = 8
# ids are signed numbers of 64 bits
_MOST_ID_BYTES = 8
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json, */*;q=0.5"


class Registry:
    """The schemas read from a registry.

    :raises SpecError: a secret reference cannot be resolved.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings, self.id_bytes = settings, settings.id_bytes
        self._known: dict[int, AvroSchema | str] = {}
        secrets = resolve({"password": settings.password, "token": settings.token}, "source.registry")
        login = base64.b64encode(f"{settings.user}:{secrets['password']}".encode()).decode()
        self._login = f"Bearer {secrets['token']}" if settings.token else f"Basic {login}" if settings.user else None

    def schemas(self, ids: Iterable[int]) -> dict[int, AvroSchema | str]:
        """Return schemas by id, or why one cannot be used.

        :raises SourceUnavailableError: the registry does not answer or refuses the login.
        """
        id_list = list(ids)
        # there may be thousands of bytes that only look like ids, each a request
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(id_list, pool.map(self.schema, id_list), strict=True))

    def schema(self, number: int) -> AvroSchema | str:
        if number not in self._known:
            self._known[number] = self._fetch(number)
        return self._known[number]

    def key_names(self, key: bytes | None, headers: Headers = None) -> set[str] | None:
        """Return the fields of the schema of a message's key; None without a known one."""
        id_header = next((value for name, value in headers or () if name in id_headers("key")), None)
        number, _ = split_id(key or b"", id_header if isinstance(id_header, bytes) else None, self.id_bytes)
        schema = "" if number is None else self.schema(number)
        return None if isinstance(schema, str) else set(schema.members)

    def _fetch(self, number: int) -> AvroSchema | str:
        answer = self._get(number)
        if answer is None:
            return f"the registry has no schema {number}"
        try:
            return read_schema(_schema_text(answer))
        except ValueError as error:
            return f"schema {number} cannot be used: {error}"

    def _get(self, number: int) -> str | None:
        """Return the registry's answer; None if it does not know the id."""
        # only needed with a registry
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

        url = self._settings.url.rstrip("/") + self._settings.path.replace("{id}", str(number))
        attempts = Retrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(multiplier=0.5, max=8),
            retry=retry_if_exception(_may_pass),
            before_sleep=lambda state: log.warning("The schema registry does not answer, retrying: %s", url),
            reraise=True,
        )
        try:
            return attempts(self._request, url)
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 404:
                return None
            raise SourceUnavailableError(
                f"The schema registry cannot be queried for {url}: {error}.",
                hint="Check source.registry; a retry helps only if it was unreachable for a moment.",
            ) from error

    def _request(self, url: str) -> str:
        request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
        if self._login:
            # not sent to redirected addresses
            request.add_unredirected_header("Authorization", self._login)
        trust = ssl.create_default_context(cafile=self._settings.ca_file) if url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=_SECONDS, context=trust) as answer:
            return str(answer.read().decode())


def id_headers(part: str) -> tuple[str, ...]:
    """Return the headers in which Apicurio's converters put the id of a schema, of ``key`` or ``value``."""
    return (f"apicurio.{part}.globalId", f"apicurio.{part}.contentId")


def split_id(data: bytes, header: bytes | None, id_bytes: int) -> tuple[int | None, bytes]:
    """Return the id of a schema, from its header or before the record, and the record; None and the data without one.

    A message is a zero byte, the id (big-endian) and the record; source: Confluent's "Wire format". Apicurio's
    converters put the id into a header of 8 bytes instead, and the message is only the record.
    """
    number = header
    if header is None and data[:1] == b"\0" and len(data) > 1 + id_bytes:
        number, data = data[1 : 1 + id_bytes], data[1 + id_bytes :]
    return schema_id(number), data


def schema_id(number: bytes | None) -> int | None:
    """Return the id of a schema in bytes; None if they are not a positive number of at most 64 bits."""
    if not number or len(number) > _MOST_ID_BYTES or number[0] > 127 and len(number) == _MOST_ID_BYTES:
        return None
    return int.from_bytes(number, "big")


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, OSError) and not isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)


def _schema_text(answer: str) -> str:
    """Return the schema in an answer.

    :raises ValueError: it is not Avro, or refers to other schemas.
    """
    document = json.loads(answer)
    if not isinstance(document, dict) or "schema" not in document or "type" in document:
        return answer
    if document.get("schemaType", "AVRO") != "AVRO":
        raise ValueError(f"it is of type {document['schemaType']}")
    if document.get("references"):
        raise ValueError("it refers to other schemas of the registry")
    return str(document["schema"])
