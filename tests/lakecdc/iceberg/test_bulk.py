"""Results for thousands of Java objects are transferred exactly, in a few calls."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.iceberg.bulk import COLLECTION, JavaCalls, java_calls
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import gateway, jvm
from tests.conftest import Lake
from tests.lakecdc.iceberg.java_commands import sent_commands

TEXTS = ["", "a", "a,b", 'quoted "b"', "two\nlines", "zero\0", "ä€😀", "\\u0041"]


@pytest.fixture
def calls(lake: Lake) -> JavaCalls:
    return java_calls(lake.spark)


def test_text_numbers_booleans_and_lists_are_transferred(lake: Lake, calls: JavaCalls) -> None:
    text = "java.lang.String"
    length, empty = calls.method(text, "length")(calls.it), calls.method(text, "isEmpty")(calls.it)
    of_map = calls.method("java.util.Map", "get", OBJECT)(jvm(lake.spark).java.util.HashMap(), calls.it)
    rows = calls.rows(calls.sent(TEXTS), calls.it, length, empty, of_map, calls.row(calls.it, length))
    assert rows == [[t, size(t), t == "", None, [t, size(t)]] for t in TEXTS]


def size(text: str) -> int:
    """Return the length of a text in Java, in UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def test_numbers_of_javas_full_range_are_transferred(calls: JavaCalls) -> None:
    hashed = calls.method("java.lang.Long", "parseLong", "java.lang.String")(calls.it)
    numbers = [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
    assert calls.rows(calls.sent(map(str, numbers)), hashed) == [[number] for number in numbers]


def test_nested_calls_take_constants_before_and_after(calls: JavaCalls) -> None:
    """``"<" + it.trim().replace(it, "x")``: the object more than once, and constants at both ends."""
    text, sequence = "java.lang.String", "java.lang.CharSequence"
    trimmed = calls.method(text, "trim")(calls.it)
    replaced = calls.method(text, "replace", sequence, sequence)(trimmed, calls.it, "x")
    concat = calls.method(text, "concat", text)
    assert calls.rows(calls.sent([" a", "b"]), concat("<", replaced)) == [["<a"], ["<x"]]
    assert calls.rows(calls.sent(["a", "b"]), concat("<", ">")) == [["<>"], ["<>"]]


def test_chosen_objects_keep_the_requested_order(calls: JavaCalls) -> None:
    objects = calls.sent(["a", "b", "c"])
    assert list(calls.chosen(objects, [2, 0, 2])) == ["c", "a", "c"]
    assert list(calls.chosen(objects, [])) == []


def test_an_exception_of_the_method_is_raised(calls: JavaCalls) -> None:
    with pytest.raises(Exception, match="For input string"):
        calls.rows(
            calls.sent(["1", "one"]), calls.method("java.lang.Integer", "parseInt", "java.lang.String")(calls.it)
        )


def test_a_closeable_iterable_is_read_in_parts_and_closed(lake: Lake, calls: JavaCalls) -> None:
    closed = calls.sent([])
    close = calls.method(COLLECTION, "add", OBJECT)(closed, "closed")
    iterables = jvm(lake.spark).org.apache.iceberg.io.CloseableIterable
    handles = jvm(lake.spark).java.lang.invoke
    closeable = iterables.combine(calls.sent(range(7)), _closing(lake, handles, close.handle))
    parts = calls.parts(closeable, 3)
    first = next(parts)
    first.add(7)
    assert (list(first), list(closed)) == ([0, 1, 2, 7], [])
    assert ([list(part) for part in parts], list(closed)) == ([[3, 4, 5], [6]], ["closed"])


def _closing(lake: Lake, invoke: Any, handle: Any) -> Any:
    arguments = gateway(lake.spark).new_array(jvm(lake.spark).java.lang.Object, 1)
    alone = invoke.MethodHandles.insertArguments(handle, 0, arguments)
    closeable = jvm(lake.spark).java.lang.Class.forName("java.io.Closeable")
    return invoke.MethodHandleProxies.asInterfaceInstance(closeable, alone)


def test_a_thousand_objects_take_few_calls(lake: Lake, calls: JavaCalls) -> None:
    with sent_commands(lake.spark) as sent:
        objects = calls.sent(range(1000))
        assert calls.rows(objects, calls.it) == [[number] for number in range(1000)]
    assert 0 < len(sent) < 100
