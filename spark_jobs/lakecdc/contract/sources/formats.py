"""Names of the event formats that message sources take."""

from __future__ import annotations

from typing import Literal

MessageFormat = Literal[
    "debezium-json",
    "debezium-flat-json",
    "canal-json",
    "maxwell-json",
    "ogg-json",
    "dms-json",
    "json",
]
#: Debezium's default for ``unavailable.value.placeholder``
UNAVAILABLE_VALUE = "__debezium_unavailable_value"
