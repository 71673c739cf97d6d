"""Inline ignore marks: a comment beside a secret that says why it may stand there.

The finding is recorded all the same, with the reason on its place; whether a finding is ignored as a whole is decided
where findings are stored. Marks of other scanners count as well, so that nobody has to write two.
"""

import re
from array import array

NO_REASON = "inline mark without a reason"

_MARK = re.compile(
    rb"(?:resweep|kingfisher|trufflehog):[ \t]*ignore(?![-\w])|gitleaks:[ \t]*allow\b|"
    rb"pragma:[ \t]*(?:allow|white)list[ \t]+secret\b",
    re.IGNORECASE,
)
_MARK_NEXT = re.compile(
    rb"resweep:[ \t]*ignore-next-line\b|pragma:[ \t]*(?:allow|white)list[ \t]+nextline[ \t]+secret\b", re.IGNORECASE
)
_COMMENT_END = re.compile(rb"\*/|-->|#\}|%>")
_REASON_CHARACTERS = 200
_LINE_BYTES = 20_000  # a mark stands near its secret; a longer line is cut


class MarkedLines:
    """The lines of one file, looked at once, asked for many findings."""

    def __init__(self, content: bytes) -> None:
        """Nothing is split when the file holds no mark at all, as nearly every file does."""
        self._content = content
        marked = _MARK.search(content) or _MARK_NEXT.search(content)
        self._ends = array("Q", (match.start() for match in re.finditer(rb"\n", content))) if marked else None

    def mark(self, line: int | None, *, lines: int = 1) -> str:
        """The reason of a mark on ``line`` (from 1), on the ``lines - 1`` after it, or announced on the line before.

        Empty when there is no mark; ``NO_REASON`` when a mark gives none.
        """
        if self._ends is None or line is None or line < 1:
            return ""
        found = _MARK_NEXT.search(before := self._line(line - 1))
        if found:
            return _reason(before[found.end() :])
        for number in range(line, min(line + max(1, lines), len(self._ends) + 2)):
            found = _MARK.search(text := self._line(number))
            if found:
                return _reason(text[found.end() :])
        return ""

    def _line(self, number: int) -> bytes:
        ends = self._ends
        if ends is None or not 1 <= number <= len(ends) + 1:
            return b""
        start = ends[number - 2] + 1 if number > 1 else 0
        end = ends[number - 1] if number <= len(ends) else len(self._content)
        return self._content[start : min(end, start + _LINE_BYTES)]


def _reason(rest: bytes) -> str:
    text = _COMMENT_END.split(rest, 1)[0].decode("utf-8", "replace").strip(" \t\r:-=,;\"'")
    return "".join(c for c in text if c.isprintable())[:_REASON_CHARACTERS].strip() or NO_REASON
