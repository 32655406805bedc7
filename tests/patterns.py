"""Regular expressions of a source tree, and texts that make them slow."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

_FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
_WHOLE = {"match": "match", "fullmatch": "fullmatch"}
_CATEGORIES = {
    sre.CATEGORY_DIGIT: "1",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_WORD: "!",
}
_CHARACTERS = "a1 .-_'\"\\/:=,;@#()[]{}<>`*+!\n"
_MOST_CHARACTERS = 12
_SCREENED = 2048
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
# a quarter of quadratic time is a sixteenth of it
_MOST_GROWTH = 8.0
_ATTEMPTS = 4


@dataclass(frozen=True)
class Use:
    """A use of a regular expression.

    :param place: file and line.
    :param method: ``search``, ``match`` or ``fullmatch``; finding all and substituting search from every start.
    """

    place: str
    pattern: re.Pattern[Any]
    method: str

    def run(self, text: str) -> None:
        """Search a text to its end, like ``finditer``."""
        given: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        if self.method == "search":
            for _ in self.pattern.finditer(given):
                pass
        else:
            getattr(self.pattern, self.method)(given)


def uses(root: Path, path: Path) -> Iterator[Use | str]:
    """Yield the regular expressions of a module; as text the calls whose pattern is only known at run time."""
    tree = ast.parse(path.read_text(), str(path))
    if not any(isinstance(node, ast.Import) and any(name.name == "re" for name in node.names) for node in tree.body):
        return
    parts = path.relative_to(root).with_suffix("").parts
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    for node in ast.walk(tree):
        if _is_call_of_re(node):
            yield from _uses_of(tree, module, path, node)


def _is_call_of_re(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=attr), args=[_, *_]):
            return attr in _FUNCTIONS
    return False


def _uses_of(tree: ast.Module, module: ModuleType, path: Path, call: Any) -> Iterator[Use | str]:
    place = f"{module.__name__}:{call.lineno}"
    try:
        pattern = _evaluated(module, call)
    except NameError:
        yield f"{module.__name__}: {ast.unparse(call)}"
        return
    methods = {call.func.attr} if call.func.attr != "compile" else _methods(tree, call)
    for method in sorted({_WHOLE.get(each, "search") for each in methods}):
        yield Use(place, pattern, method)


def _evaluated(module: ModuleType, call: ast.Call) -> re.Pattern[Any]:
    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<pattern>", "eval"), vars(module))

    given = value(call.args[0])
    flags = [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    if call.func.attr == "compile":  # type: ignore[attr-defined]
        flags += call.args[1:2]
    return re.compile(given, value(flags[0]) if flags else 0)


def _methods(tree: ast.Module, call: ast.Call) -> set[str]:
    """Return the methods that a module calls on a named pattern; ``search`` if it is passed on."""
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    methods = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    } & _FUNCTIONS
    return methods or {"search"}


def slow_texts(pattern: re.Pattern[Any]) -> list[Callable[[int], str]]:
    """Return functions that make texts of a length on which a pattern may be slow, derived from the pattern."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    # flags of bytes are not flags of texts
    parsed = _parser.parse(source, pattern.flags & ~re.UNICODE & (re.IGNORECASE | re.DOTALL | re.MULTILINE))
    characters = list(dict.fromkeys(_characters(parsed)))[:_MOST_CHARACTERS] + ["!"]
    pumps = [*characters, *("".join(pair) for pair in permutations(characters, 2))]
    starts = list(dict.fromkeys(_beginnings(parsed)))
    texts = [("", pump) for pump in (*pumps, *starts)]
    texts += [(start, each) for start in starts for each in characters]
    return [partial(_text, *text) for text in dict.fromkeys(texts) if text[1]]


def _text(start: str, pump: str, size: int) -> str:
    # the last character never matches, so that every repetition is tried
    return start + pump * ((size - len(start)) // len(pump)) + "\x00"


def _beginnings(parsed: Any) -> Iterator[str]:
    """Yield texts that match the beginning of a pattern, of each of its alternatives and repetitions."""
    prefix, is_word = "", False
    for op, argument in parsed:
        if is_word and op is not sre.LITERAL:
            yield prefix
        for inner in _inner(op, argument):
            yield from _beginnings(inner)
            yield from (prefix + beginning for beginning in _beginnings(inner))
        prefix += _sample(op, argument)
        is_word = op is sre.LITERAL
        if not is_word:
            yield prefix
    if is_word:
        yield prefix


def _inner(op: Any, argument: Any) -> Sequence[Any]:
    if op in _REPEATS:
        return [argument[2]]
    if op is sre.BRANCH:
        return list(argument[1])
    if op is sre.SUBPATTERN:
        return [argument[3]]
    return [argument] if op is sre.ATOMIC_GROUP else []


def _sample(op: Any, argument: Any) -> str:
    """Return a text that matches a part of a pattern; a repetition twice."""
    if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
        return next(_matching(op, argument))
    if op in _REPEATS:
        return _samples(argument[2]) * max(argument[0], min(2, argument[1]))
    inner = _inner(op, argument)
    return _samples(inner[0]) if inner else ""


def _samples(parsed: Any) -> str:
    return "".join(_sample(*each) for each in parsed)


def _characters(parsed: Any) -> Iterator[str]:
    """Yield characters that a pattern repeats."""
    for op, argument in parsed:
        if op in _REPEATS and argument[1] > 1:
            for inner in argument[2]:
                if inner[0] in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
                    yield from _matching(*inner)
        elif op is sre.LITERAL and not chr(argument).isalnum():
            yield chr(argument)
        for each in _inner(op, argument):
            yield from _characters(each)


def _matching(op: Any, argument: Any) -> Iterator[str]:
    if op is sre.LITERAL:
        yield chr(argument)
    elif op is sre.ANY:
        yield "a"
    elif op is sre.NOT_LITERAL:
        yield from (each for each in _CHARACTERS if ord(each) != argument)
    elif argument[0][0] is sre.NEGATE:
        excluded = "".join(each for item in argument[1:] for each in _members(*item))
        yield from (each for each in _CHARACTERS if each not in excluded)
    else:
        for item in argument:
            yield from _members(*item)


def _members(op: Any, argument: Any) -> str:
    if op is sre.LITERAL:
        return chr(argument)
    return chr(argument[0]) if op is sre.RANGE else _CATEGORIES[argument]


def growth(work: Callable[[str], object], text: Callable[[int], str], size: int) -> float:
    """Return how many times longer four times the text takes."""
    return _seconds(work, text(4 * size)) / max(_seconds(work, text(size)), 1e-5)


def is_linear(work: Callable[[str], object], texts: Sequence[Callable[[int], str]], most: int) -> bool:
    """Return whether four times as long a text takes about four times as long, with the slowest of the texts.

    :param most: characters of the longest text.
    """
    slowest = sorted(texts, key=lambda text: _seconds(work, text(_SCREENED), 1), reverse=True)[:3]
    # quadratic patterns show early, and would take minutes at full length
    return all(_is_linear(work, text, size) for size in (most // 64, most // 4) for text in slowest)


def _is_linear(work: Callable[[str], object], text: Callable[[int], str], size: int) -> bool:
    """Measure slow results again: on a busy machine they may be chance, but quadratic patterns stay slow."""
    return any(growth(work, text, size) < _MOST_GROWTH for _ in range(_ATTEMPTS))


def _seconds(work: Callable[[str], object], text: str, repeats: int = 3) -> float:
    def once() -> float:
        begun = time.thread_time()
        work(text)
        return time.thread_time() - begun

    return min(once() for _ in range(repeats))
