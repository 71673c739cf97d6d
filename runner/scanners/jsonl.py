"""JSON lines as a scanner may write them: one object a finding, in our own words or in those of a known tool."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from . import severity
from .base import RawFinding, ScanFault

Item: TypeAlias = Mapping[str, Any]


def documents(content: bytes, *, name: str) -> Iterator[Item]:
    """Every JSON object in ``content``: lines, one array, several documents, ``null`` or nothing at all.

    Raises ``ScanFault`` at text that is no JSON: half a report is no report.
    """
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    decoder = json.JSONDecoder()
    position = 0
    while True:
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
        if position >= len(text):
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            msg = f"{name}: its report is no JSON at character {position}"
            raise ScanFault("scanner_report", msg) from error
        yield from _objects(value, name)


def _objects(value: object, name: str) -> Iterator[Item]:
    if value is None:
        return
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _objects(item, name)
    elif isinstance(value, dict):
        yield cast("Item", value)
    else:
        msg = f"{name}: its report holds a {type(value).__name__} where a finding should be"
        raise ScanFault("scanner_report", msg)


def read(content: bytes, *, name: str, convert: Callable[[Item], RawFinding | None] | None = None) -> list[RawFinding]:
    """All findings of a report. ``convert`` gives None for an object that is none (a summary, a log line)."""
    found: list[RawFinding] = []
    for item in documents(content, name=name):
        try:
            raw = (convert or plain)(item)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            msg = f"{name}: a finding of its report cannot be read ({type(error).__name__}: {error})"
            raise ScanFault("scanner_report", msg) from error
        if raw is not None:
            found.append(raw)
    return found


def plain(item: Item) -> RawFinding | None:
    """Our own words: ``rule`` and ``path`` are needed; ``secret`` (or ``secret_base64``), ``line``, ``column``,
    ``commit``, ``blob``, ``severity``, ``confidence``, ``rule_name`` may be there. Without a secret the place is it.
    """  # noqa: D205 - one sentence
    rule, path = str(item["rule"]), str(item["path"])
    if "secret_base64" in item:
        secret = base64.b64decode(item["secret_base64"], validate=True)
    elif item.get("secret"):
        secret = str(item["secret"]).encode("utf-8", "surrogatepass")
    else:
        secret = f"{path}\0{item.get('message', '')}".encode("utf-8", "surrogatepass")
    confidence = str(item.get("confidence", "")).casefold()
    return RawFinding(
        rule=rule,
        rule_name=str(item.get("rule_name") or rule),
        severity=severity.of_word(item.get("severity")) or severity.of_secret(rule, confidence),
        confidence=confidence if confidence in {"high", "medium", "low"} else "",
        secret=secret,
        path=path.encode("utf-8", "surrogatepass"),
        line=number(item.get("line")),
        column=number(item.get("column")),
        commit=object_id(item.get("commit")),
        blob=object_id(item.get("blob")),
    )


def part(item: Item, key: str) -> Item:
    """The object at ``key``; empty when there is none."""
    value: object = item.get(key)
    return cast("Item", value) if isinstance(value, dict) else {}


def parts(item: Item, key: str) -> list[Item]:
    """The objects in the list at ``key``; empty when there is none. Raises ``TypeError`` for a list of other things."""
    value: object = item.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in cast("list[object]", value)):
        msg = f"{key} is no list of objects"
        raise TypeError(msg)
    return cast("list[Item]", value)


def number(value: object) -> int | None:
    """A line or column from 1, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < 1 << 31:
        return None
    return int(value)


def object_id(value: object) -> str | None:
    """A whole object id in hex, None for anything else (an option, a range, a short id)."""
    text = str(value).casefold() if value else ""
    return text if len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text) else None
