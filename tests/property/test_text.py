"""Foreign text: whatever comes in can be stored and does nothing when it is shown (reliability rows 64, 65, 97-100)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resweep.schema.database import Connection
from resweep.schema.text import display, store_text

_ANY = st.text(st.characters(codec=None), max_size=200)


@given(_ANY)
def test_stored_text_is_utf8_without_nul(text: str) -> None:
    kept = store_text(text)
    assert "\x00" not in kept
    assert kept.encode("utf-8").decode("utf-8") == kept
    assert len(kept) == len(text)


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=50))
def test_stored_bytes_keep_the_limit(raw: bytes, limit: int) -> None:
    assert len(store_text(raw, limit=limit)) <= limit


@given(_ANY)
def test_shown_text_has_nothing_that_acts(text: str) -> None:
    shown = display(text)
    assert all(unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in shown)
    assert len(shown.splitlines()) <= 1


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=100))
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert display(text) == text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r::stop-commands::x", "a\\x0d::stop-commands::x"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\x9b31m", "\\x9b31m"),
        ("line\u2028break", "line\\u2028break"),
        ("\ud800", "\\ud800"),
        ("blåbær 🫐", "blåbær 🫐"),
    ],
)
def test_known_attacks_are_shown_harmlessly(hostile: str, shown: str) -> None:
    assert display(hostile) == shown


def test_whatever_is_cleaned_can_be_stored(conn: Connection) -> None:
    every = "".join(chr(code) for code in (*range(0x300), *range(0xD7F0, 0xE010), 0x10FFFF))
    row = conn.execute("SELECT %s::text", (store_text(every),)).fetchone()
    assert row == (store_text(every),)
