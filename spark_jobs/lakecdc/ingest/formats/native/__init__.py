"""Messages of known columns, decoded, folded and written inside Python tasks.

Events of known columns are decoded at once. What a task cannot judge itself (a TRUNCATE, a new column, text that is not
JSON) is set aside: a survey tells what it is, and the messages are decoded with that (``decode_messages``).

``decoding`` is what a table wants, ``events`` are read out of messages, those that are ``alike`` as structs with
``members``, ``places`` are theirs in the source's log, ``decoder`` makes tables of them, ``parts`` are decoded at
once, ``schemas`` are those that messages carry, ``layout`` the columns, ``fold`` keeps the last event of each key,
``placeholders`` fills what that one left out, ``grouping`` says which task gets which keys, ``packing`` is how rows
travel, ``pieces`` reads files, ``log`` takes the events of databases' logs, ``tasks`` are the Python tasks, ``packed``
is what they have made and ``engine`` plans them.
"""

from lakecdc.ingest.formats.native.decoding import FORMATS, Decoding, Judged
from lakecdc.ingest.formats.native.engine import (
    FoldPlan,
    Native,
    Scan,
    SurveyNeededError,
    check_fields,
    decode_native,
    judge_events,
)
from lakecdc.ingest.formats.native.packed import PackedRows

__all__ = [
    "FORMATS",
    "Decoding",
    "FoldPlan",
    "Judged",
    "Native",
    "PackedRows",
    "Scan",
    "SurveyNeededError",
    "check_fields",
    "decode_native",
    "judge_events",
]
