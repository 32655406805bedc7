"""Regular expressions take linear time on every text."""

from __future__ import annotations

import re

import pytest

from airflow_provider_lakecdc.submit import failures
from lakecdc.contract import secrets
from lakecdc.ingest.sources.mysql import sql_tokens
from tests.patterns import Use, is_linear, slow_texts, uses
from tests.test_house_rules import LIBRARY, PROVIDER, modules

LONGEST = 256 * 1024
# patterns that a specification defines for names, and patterns without a repetition
GIVEN = {
    "airflow_provider_lakecdc.observe.lineage: re.fullmatch(pattern, table)",
    "lakecdc.contract.errors: re.match(f'{re.escape(table)}(?![\\\\w.])', text)",
    "lakecdc.contract.sources.formats: re.compile(_JAVA_GROUP.sub('(?P<\\\\1>', self.pattern))",
    "lakecdc.contract.sources.kafka: re.compile(pattern or '')",
    "lakecdc.contract.sources.kafka: re.fullmatch(self.topic_pattern, topic)",
    "lakecdc.contract.sources.kafka: re.fullmatch(self.routes[target.table], topic)",
    "lakecdc.contract.target: re.compile(pattern)",
    "lakecdc.contract.target: re.fullmatch(p, n)",
    "lakecdc.erase.mentions: re.finditer(f'{around[0]}{re.escape(value)}{around[1]}', text)",
    "lakecdc.erase.mentions: re.search(f'(?<!\\\\w){re.escape(value)}(?!\\\\w)', text)",
    "lakecdc.ingest.engine.decoder: re.compile(f'\"((?i:{re.escape(k)}))\"\\\\s*:')",
}
# patterns in a table or function of ours, which are tested by name
TABLED = {
    "airflow_provider_lakecdc.submit.failures: re.search(pattern, text)",
    "lakecdc.ingest.sources.mysql.sql_tokens: re.compile(f'(?P<space>{space})|(?P<quoted>{name})|(?P<text>{text})"
    "|(?P<word>{_WORD})|(?P<mark>.)', re.DOTALL)",
}
ROOTS = {PROVIDER: PROVIDER.parent, LIBRARY: LIBRARY.parent}
ALL_USES = [use for folder, root in ROOTS.items() for path in modules(folder) for use in uses(root, path)]
USES = [
    *(use for use in ALL_USES if isinstance(use, Use)),
    *(Use(f"failures:{n}", re.compile(pattern), "search") for n, (pattern, _) in enumerate(failures.SYMPTOMS)),
    *(Use(f"sql_tokens:{mode}", sql_tokens._pattern(mode), "search") for mode in (0, 4, 0x100000, 0x100004)),
]


def test_every_pattern_is_known() -> None:
    assert {use for use in ALL_USES if isinstance(use, str)} == GIVEN | TABLED


@pytest.mark.parametrize("use", USES, ids=[f"{use.place}-{use.method}" for use in USES])
def test_patterns_take_linear_time(use: Use) -> None:
    assert is_linear(use.run, slow_texts(use.pattern), LONGEST)


def test_masking_takes_linear_time() -> None:
    patterns = [use.pattern for use in USES if use.place.startswith(secrets.__name__)]
    assert is_linear(secrets.mask, [text for pattern in patterns for text in slow_texts(pattern)], LONGEST)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [(r"\b[a-z][\w+.-]*://", "search"), (r"a+b", "search"), (r"\s*(\(x\))?(\s+\w)*", "fullmatch")],
)
def test_quadratic_patterns_are_noticed(pattern: str, method: str) -> None:
    quadratic = re.compile(pattern)
    assert not is_linear(Use("here", quadratic, method).run, slow_texts(quadratic), LONGEST // 16)
