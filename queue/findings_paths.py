"""Path patterns: ignore rules, the path filter and code owners speak the same language, as git's ignore files do.

``*`` and ``?`` stay inside one name, ``**`` crosses names. A pattern without a slash inside matches at any depth; one
with a slash (also a leading one) starts at the root. What matches a folder matches everything below it; a trailing
slash matches only what lies below. Matching needs time that grows with pattern times path at most, so that a pattern
out of a hostile repository cannot hold anybody up.
"""

import re
from dataclasses import dataclass

from ..schema.errors import UsageFault

_LITERAL = re.compile(r"[A-Za-z0-9_]")
_LIMIT = 4_096


@dataclass(frozen=True, slots=True)
class PathPattern:
    """One pattern, cut into names; ``**`` stands for any number of names."""

    text: str
    names: tuple[str, ...]
    below: bool  # only what lies below the last name matches
    direct: bool  # the last name is the end: nothing below it matches (code owners: "docs/*")

    def matches(self, path: str) -> bool:
        """Whether a path, with forward slashes and relative to the root, is meant."""
        parts = path.split("/")
        # Positions in the path that the names so far can have reached.
        reached = {0}
        for name in self.names:
            if name == "**":
                first = min(reached)
                reached = set(range(first, len(parts) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(parts) and _name_matches(name, parts[at])}
            if not reached:
                return False
        if self.below:
            return any(at < len(parts) for at in reached)
        return len(parts) in reached if self.direct else True

    def regex(self) -> str:
        """The same as a regular expression that PostgreSQL and Python read alike; it matches the whole path."""
        parts = ["^"]
        for index, name in enumerate(self.names):
            last = index == len(self.names) - 1
            if name == "**":
                parts.append(".*" if last else "(?:.*/)?")
                continue
            parts.append("".join(_one(character) for character in name))
            if not last:
                # "a/**" at the end needs something below; "a/**/b" may have nothing between.
                parts.append("/")
        if self.below and self.names[-1] != "**":
            parts.append("/.*")
        elif not self.direct and self.names[-1] != "**":
            parts.append("(?:/.*)?")
        return "".join(parts) + "$"


def parse(text: str, *, star_is_direct: bool = False) -> PathPattern:
    """Read one pattern; ``star_is_direct`` is the code owners' rule that ``docs/*`` owns no deeper file.

    Raises ``UsageFault`` on an empty pattern, or one longer than 4,096 characters.
    """
    if not text.strip("/") or len(text) > _LIMIT or "\0" in text:
        message = (
            f"the path pattern {text[:80]!r} is empty or too long; write names, *, ? and **, such as tests/** or *.lock"
        )
        raise UsageFault(message)
    body = text.strip("/") if text.startswith("/") else text.rstrip("/")
    names = [name for name in body.split("/") if name]
    if "/" not in text.rstrip("/"):
        names.insert(0, "**")
    compact: list[str] = []
    for name in names:
        if name != "**" or not compact or compact[-1] != "**":
            compact.append(name)
    return PathPattern(
        text=text,
        names=tuple(compact),
        below=text.endswith("/") or compact[-1] == "**",
        direct=star_is_direct and compact[-1] == "*" and "/" in text.rstrip("/"),
    )


def _name_matches(pattern: str, name: str) -> bool:
    """Match one name against ``*``, ``?`` and literals: at most pattern times name steps, never more."""
    at = star = mark = 0
    seen_star = False
    index = 0
    while index < len(name):
        if at < len(pattern) and pattern[at] == "*":
            seen_star, star, mark = True, at, index
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[index]):
            at += 1
            index += 1
        elif seen_star:
            mark += 1
            at, index = star + 1, mark
        else:
            return False
    return not pattern[at:].strip("*")


def _one(character: str) -> str:
    """One character of a name as a regular expression."""
    if character == "*":
        return "[^/]*"
    if character == "?":
        return "[^/]"
    # Outside ASCII nothing is special; inside it, a backslash before what is no letter or digit means just that.
    return character if _LITERAL.match(character) or not character.isascii() else "\\" + character
