"""Mutated messages between good ones, and the result of each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lakecdc.ingest.formats.stories import ENCODINGS, LONGER

COUNT = 10_000
#: formats to fuzz, by name; ``rows`` are plain JSON objects
FORMATS = {**{name: format for name, (format, _, _) in ENCODINGS.items()}, "rows": "json"}
#: texts that decoders stumble over, inserted at random
_TOKENS = [
    *(b"\0", b"\\u0000", b"\\ud800", b"\xff", b"\xc3", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\\", b'"', b"'", b"`"),
    *(b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"NaN", b"Infinity", b"-", b"0"),
    *(b"1e999", b"1e-999", b"9" * 40),
    *(b"{}", b"[]", b'""', b'"":1,', b'"\\u0000":1,', b"[" * 50, b"]" * 50, b'{"a":' * 20, b"\t", b" ", b"99999-99-99"),
]  # fmt: skip


def mutated(rng: random.Random, message: bytes) -> bytes:
    """Return the message with a few changes, still in one line."""
    return mutated_bytes(rng, message).replace(b"\n", b" ").replace(b"\r", b" ")


def mutated_bytes(rng: random.Random, message: bytes) -> bytes:
    """Return bytes with a few changes."""
    text = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, length = rng.randrange(len(text) + 1), rng.choice((1, 1, 2, 5, 30))
        change = rng.randrange(6)
        if change == 0:
            del text[at : at + length]
        elif change == 1:
            text[at:at] = rng.choice(_TOKENS)
        elif change == 2:
            text[at : at + length] = rng.choice(_TOKENS)
        elif change == 3 and at < len(text):
            text[at] = rng.randrange(256)
        elif change == 4:
            text[at:at] = text[at : at + length * 8]
        else:
            begin = rng.randrange(len(text) + 1)
            text[at : at + length] = text[begin : begin + length]
    return bytes(text)


def messages(name: str, count: int, seed: int) -> Iterator[tuple[bytes, bool]]:
    """Yield messages of an encoding of the stories, and whether they are undamaged.

    :param name: one of ``FORMATS``.
    """
    rng, lines = random.Random(f"{name} {seed}"), [line.encode() for line in _lines(name)]
    for number in range(count):
        if number % 10 == 0:
            yield rng.choice(lines), True
        bad = mutated(rng, rng.choice(lines))
        if len(bad.strip()) > 2:
            yield bad, False


def _lines(name: str) -> list[str]:
    if name == "rows":
        return [json.dumps(after) for _, images in LONGER for _, after in images if after]
    _, encode, story = ENCODINGS[name]
    # a message with a schema describes the columns of its own story
    return encode(story if name.endswith("schema") else LONGER)


def written(path: Path, messages: Sequence[tuple[bytes, bool]]) -> dict[int, tuple[bytes, bool]]:
    """Write messages into a file; return each by the place of its first byte."""
    places, at = {}, 0
    with path.open("wb") as file:
        for text, good in messages:
            places[at] = (text, good)
            at += file.write(text + b"\n")
    return places


def is_json(text: bytes) -> bool:
    """Check whether a text is a JSON document in UTF-8."""
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    return True


def is_utf8(text: bytes) -> bool:
    """Check whether bytes are UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
