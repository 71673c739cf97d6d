"""Inline ignore marks: a comment beside a secret that says why it may stand there.

The finding is recorded all the same, with the reason on its place; whether a finding is ignored as a whole is decided
where findings are stored. Marks of other scanners count as well, so that nobody has to write two.
"""

import re

NO_REASON = "inline mark without a reason"

_MARK = re.compile(
    rb"(?:resweep|kingfisher|trufflehog):[ \t]*ignore(?![-\w])|gitleaks:[ \t]*allow\b|"
    rb"pragma:[ \t]*(?:allow|white)list[ \t]+secret\b",
    re.IGNORECASE,
)
_MARK_NEXT = re.compile(rb"resweep:[ \t]*ignore-next-line\b|pragma:[ \t]*(?:allow|white)list[ \t]+nextline[ \t]+secret\b",
                        re.IGNORECASE)
_COMMENT_END = re.compile(rb"\*/|-->|#\}|%>")
_REASON_CHARACTERS = 200
_LINE_BYTES = 20_000  # a mark stands near its secret; a longer line is cut


def inline_mark(content: bytes, line: int | None, *, lines: int = 1) -> str:
    """The reason of an ignore mark on ``line`` (from 1) or the ``lines - 1`` after it, or announced on the line before.

    Empty when there is no mark; ``NO_REASON`` when a mark gives none.
    """
    if line is None or line < 1:
        return ""
    # Only what is needed is split off: content may be a hundred megabytes of one-byte lines.
    start = 0
    before = b""
    for _ in range(line - 1):
        end = content.find(b"\n", start)
        if end < 0:
            return ""
        before = content[start : min(end, start + _LINE_BYTES)]
        start = end + 1
    found = _MARK_NEXT.search(before)
    if found:
        return _reason(before[found.end() :])
    for _ in range(max(1, lines)):
        end = content.find(b"\n", start)
        stop = len(content) if end < 0 else end
        text = content[start : min(stop, start + _LINE_BYTES)]
        found = _MARK.search(text)
        if found:
            return _reason(text[found.end() :])
        if end < 0:
            break
        start = end + 1
    return ""


def _reason(rest: bytes) -> str:
    text = _COMMENT_END.split(rest, 1)[0].decode("utf-8", "replace").strip(" \t\r:-=,;\"'")
    return "".join(c for c in text if c.isprintable())[:_REASON_CHARACTERS].strip() or NO_REASON
