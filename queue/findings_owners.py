"""Whom to tell: code owners, read as GitHub reads them, and kept per target (D23).

The last rule that matches wins; a rule without owners takes ownership away; a line that cannot be read is skipped;
a file over 3 MB is not read at all. An escaped ``#``, ``!`` and ``[ ]`` mean nothing here: such a line is invalid.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import tuple_row

from ..schema.database import statement
from ..schema.errors import UsageFault
from ..schema.text import store_text
from .findings_paths import PathPattern, parse

CODE_OWNERS_PATHS: Final = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where the file may stand; the first that exists counts (D23)."""

FILE_LIMIT_BYTES: Final = 3 * 1024 * 1024
_RULES_LIMIT: Final = 20_000
_OWNER: Final = re.compile(r"@[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)(?:/[A-Za-z0-9_.-]+)?|[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRule:
    """One line: a pattern and who owns what it matches (nobody: ownership is taken away)."""

    pattern: PathPattern
    owners: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class CodeOwners:
    """A whole file, in its order."""

    rules: tuple[OwnerRule, ...] = ()

    def of(self, path: str) -> tuple[str, ...]:
        """Give the owners of a path; none when no rule matches, or the last that does names none."""
        for rule in reversed(self.rules):
            if rule.pattern.matches(path):
                return rule.owners
        return ()


def parse_code_owners(body: str) -> CodeOwners:
    """Read a code-owners file. Never fails: a file that is too large or has too many rules owns nothing."""
    if len(body.encode("utf-8", "replace")) > FILE_LIMIT_BYTES:
        return CodeOwners()
    rules: list[OwnerRule] = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", body), start=1):
        rule = _rule(line, number)
        if rule is not None:
            rules.append(rule)
        if len(rules) > _RULES_LIMIT:
            return CodeOwners()
    return CodeOwners(tuple(rules))


def _rule(line: str, number: int) -> OwnerRule | None:
    """Read one line; None when it is empty, a comment or invalid."""
    words = _words(line)
    if not words:
        return None
    text = words[0]
    if text.startswith("!") or "[" in text or "]" in text or "\\#" in line:
        return None
    owners: list[str] = []
    for word in words[1:]:
        if _OWNER.fullmatch(word) is None:
            return None
        if word not in owners:
            owners.append(word)
    try:
        pattern = parse(text, star_is_direct=True)
    except UsageFault:
        return None
    return OwnerRule(pattern=pattern, owners=tuple(owners), line=number)


def _words(line: str) -> list[str]:
    """Split at blanks that are not escaped; a ``#`` that begins a word begins a comment."""
    words: list[str] = []
    word: list[str] = []
    escaped = False
    for character in line:
        if escaped:
            word.append(character if character in " \t" else "\\" + character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in " \t":
            if word:
                words.append("".join(word))
                word = []
        elif character == "#" and not word:
            break
        else:
            word.append(character)
    if word:
        words.append("".join(word))
    return words


def remember(
    conn: Connection[Any], target_id: int, *, path: str, body: str | None, now: datetime | None = None
) -> bool:
    """Keep the code-owners file of a target's default branch (None: it has none); gives whether anything changed."""
    if body is None or len(body.encode("utf-8", "replace")) > FILE_LIMIT_BYTES:
        with conn.cursor() as cursor:
            cursor.execute(statement("resweep.queue.sql", "findings_forget_owners"), {"target_id": target_id})
            return cursor.rowcount > 0
    values = {
        "target_id": target_id,
        "path": store_text(path, limit=255),
        "body": store_text(body, limit=FILE_LIMIT_BYTES),
        "now": now,
    }
    with conn.cursor() as cursor:
        cursor.execute(statement("resweep.queue.sql", "findings_remember_owners"), values)
        return cursor.rowcount > 0


def code_owners(conn: Connection[Any], target_ids: Sequence[int]) -> Mapping[int, CodeOwners]:
    """Read and parse the code owners of targets; a target without a file is absent."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement("resweep.queue.sql", "findings_owners"), {"target_ids": sorted(set(target_ids))})
        return {target_id: parse_code_owners(body) for target_id, body in cursor}


def owned_targets(conn: Connection[Any], target_ids: Sequence[int]) -> frozenset[int]:
    """Give those of the targets that have a code-owners file, without reading it."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement("resweep.queue.sql", "findings_owned"), {"target_ids": sorted(set(target_ids))})
        return frozenset(row[0] for row in cursor)
