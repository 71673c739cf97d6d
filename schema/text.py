"""What foreign text must pass before it is stored or shown (reliability rows 64, 65, 97, 98 and 100).

``store_text`` makes anything fit a PostgreSQL ``text`` column; ``display`` makes anything harmless on a terminal, in
a log line, on a page and in a CI log.
"""

import re
import unicodedata

# psycopg refuses NUL, UTF-8 refuses lone surrogates; each becomes one replacement character.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Shown escaped although they are neither control nor format characters: they break lines or look like nothing.
_ALSO_ESCAPED = frozenset("\u2028\u2029\u115f\u1160\u3164\uffa0")
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def store_text(value: str | bytes, limit: int | None = None) -> str:
    """Return ``value`` as text that PostgreSQL and UTF-8 accept, at most ``limit`` characters long.

    NUL and lone surrogates become U+FFFD, bytes that are not UTF-8 are replaced the same way; a cut ends in "…".
    Everything else is kept: cleaning for the eye is ``display``'s duty.
    """
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    text = _UNSTORABLE.sub("\ufffd", text)
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…" if limit > 0 else ""
    return text


def display(value: object, limit: int | None = None) -> str:
    r"""Return ``value`` on one line with nothing that moves a cursor, hides, reorders or starts a command.

    C0, C1, DEL, format characters (bidirectional marks, zero-width), line separators, unassigned and private
    characters and lone surrogates are written as ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``; a backslash stays.
    """
    text = value if isinstance(value, str) else str(value)
    if not (text.isascii() and text.isprintable()):
        text = "".join(_shown(character) for character in text)
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…" if limit > 0 else ""
    return text


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _ESCAPED_CATEGORIES and character not in _ALSO_ESCAPED:
        return character
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004 -- the widths of the three escapes
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 -- as above
