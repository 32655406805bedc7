"""The last erasure of rows, as a property of each table that had a part in it.

Ingestion goes by it as by the floor: a batch that began before an erasure is not committed after it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

from lakecdc.metadata.names import ERASED


def erasure_begun(key_digest: str) -> dict[str, str]:
    """The property of an erasure that has begun, unlike that of any other.

    :param key_digest: of the keys whose rows go, which tells none of them.
    """
    return {ERASED: json.dumps({"id": uuid.uuid4().hex, "unfinished": key_digest})}


def erasure_ended() -> dict[str, str]:
    """The property of an erasure that was proven."""
    return {ERASED: json.dumps({"id": uuid.uuid4().hex})}


def unfinished_erasure(properties: Mapping[str, str]) -> str | None:
    """The digest of the keys of an erasure that has begun and not ended; None if there is none."""
    found: str | None = json.loads(properties.get(ERASED, "{}")).get("unfinished")
    return found
