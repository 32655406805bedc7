"""The documented type mappings of MySQL equal those of the code."""

from __future__ import annotations

import re

import pytest

from local_services.mysql import MySQL
from tests.demo.test_docs import ROOT, quoted, rows

from .conftest import Shop, both

pytestmark = pytest.mark.services


@both
def test_mapped_types_equal_the_documentation(shop: Shop) -> None:
    unknown = () if isinstance(shop.server, MySQL) else ("vector(3)",)
    listed = [
        (name, quoted(target)[0])
        for names, target in rows("ingest-mysql.md", 2)
        if quoted(target) and "`" in names
        for name in quoted(names)
        if name not in unknown
    ]
    assert len(listed) > 30
    columns = ", ".join(f"c{i} {name}" for i, (name, _type) in enumerate(listed))
    shop.sql(f"CREATE TABLE s.t (id int PRIMARY KEY, {columns})")
    shop.target("t")
    source = shop.open()
    source.start(shop.positions, {})
    (feed,) = source.feeds.values()
    source.close()
    assert [(listed[i][0], column.type) for i, column in enumerate(feed.columns[1:])] == listed


def test_documented_unmapped_types_are_unmapped(shop: Shop) -> None:
    text = (ROOT / "docs" / "guides" / "ingest-mysql.md").read_text()
    (line,) = re.findall(r"^Not mapped: (.*?), compressed", text, re.MULTILINE)
    for i, name in enumerate(quoted(line)):
        shop.sql(f"CREATE TABLE s.t{i} (id int PRIMARY KEY, odd {name})")
        shop.target(f"t{i}")
    assert len(shop.start()) == len(quoted(line)) > 2
