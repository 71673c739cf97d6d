"""Reading one TOML file: bounded, UTF-8, with the line of every key, and errors that say where and what to write."""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schema.errors import ConfigFault

LIMIT_BYTES = 1 << 20
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}
_WHERE = re.compile(r"\s*\(at line (\d+), column (\d+)\)\s*\Z")
_AT_END = re.compile(r"\s*\(at end of document\)\s*\Z")
_KEY_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_TRIPLES = ('"""', "'''")


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """What a file says, and where it says it (line numbers from 1)."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int]

    def where(self, key: tuple[str, ...]) -> str:
        """``FILE:LINE`` of a key, or of the nearest table around it."""
        for length in range(len(key), 0, -1):
            line = self.lines.get(key[:length])
            if line is not None:
                return f"{self.path}:{line}"
        return str(self.path)


def read_toml(path: Path) -> TomlFile:
    """Read and understand ``path``. Raises ``ConfigFault`` for anything that is not one plain, small, valid file."""
    text = _decode(path, _read(path))
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigFault(_explain(path, text, str(error))) from error
    except RecursionError as error:
        raise ConfigFault(f"{path} nests arrays or tables too deeply to be a configuration; write it flat") from error
    except ValueError as error:  # a number of thousands of digits, a date that does not exist
        raise ConfigFault(f"{path} holds a value that cannot be read: {error}") from error
    return TomlFile(path=path, values=values, lines=dict(_key_lines(text)))


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ConfigFault(f"{path} is a folder; name the configuration file in it, for example {path}/resweep.toml")
        if not stat.S_ISREG(status.st_mode):
            raise ConfigFault(f"{path} is no ordinary file; write the configuration to a file and name that")
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigFault(f"there is no configuration file {path}; correct --config or RESWEEP_CONFIG") from error
    except OSError as error:
        raise ConfigFault(f"{path} cannot be read: {os.strerror(error.errno or 0)}; give it to this user") from error
    if len(content) > LIMIT_BYTES:
        raise ConfigFault(
            f"{path} is larger than {LIMIT_BYTES >> 20} MiB, which no configuration is; name another file"
        )
    return content


def _decode(path: Path, content: bytes) -> str:
    for mark, name in _MARKS.items():
        if content.startswith(mark):
            raise ConfigFault(f"{path} is written in {name}; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")  # a byte order mark at the start is what some editors write
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigFault(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    return text.replace("\r\n", "\n")


def _explain(path: Path, text: str, said: str) -> str:
    """Put the line first, and say in our words what the reader means by its shortest ones."""
    place = _WHERE.search(said)
    lines = text.split("\n")
    if place is None:
        what = _AT_END.sub("", said)
        return (
            f"{path}:{max(1, len(lines))}: {what} (the end of the file was reached: is a quote or bracket left open?)"
        )
    line, column = int(place[1]), int(place[2])
    what = _WHERE.sub("", said)
    shown = lines[line - 1].strip()[:80] if line <= len(lines) else ""
    hint = ""
    if "overwrite" in what or "twice" in what:
        hint = "; the same key or table stands twice: keep one of them"
    elif "Invalid value" in what:
        hint = "; text needs quotes, and true and false are written in small letters"
    masked = re.sub(r"=.*", "= …", shown)  # what stands behind the equals sign may be a secret
    return f"{path}:{line}: {what} (column {column}, in: {masked}){hint}"


def _key_lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:  # noqa: C901 - one branch a kind of line
    """Give each key and table with its line; the first line wins. The text is known to be valid TOML."""
    table: tuple[str, ...] = ()
    inside: str | None = None  # the quotes of a string over several lines
    depth = 0  # of an array over several lines
    seen: set[tuple[str, ...]] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if inside is not None:
            if inside in line:
                inside = None
            continue
        stripped = line.strip()
        if depth == 0 and stripped.startswith("["):
            table = _keys(stripped.lstrip("[")) or table
            found = table
        elif depth == 0 and stripped and not stripped.startswith("#"):
            found = (*table, *_keys(stripped))
        else:
            found = ()
        if found and found not in seen:
            seen.add(found)
            yield found, number
        if stripped.startswith("[") and depth == 0 and found == table:
            continue
        for quotes in _TRIPLES:
            if line.count(quotes) % 2:
                inside = quotes
        if inside is None:
            bare = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*", "", line)
            depth = max(0, depth + bare.count("[") - bare.count("]"))


def _keys(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    position = 0
    while (match := _KEY_PART.match(text, position)) is not None:
        parts.append(next(group for group in match.groups() if group is not None))
        position = match.end()
        if not text.startswith(".", position):
            break
        position += 1
    return tuple(parts)
