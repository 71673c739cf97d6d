"""Identity, mask and redaction: what a secret is known by without being known (product.md "Findings"; F14)."""

import base64
import json
import multiprocessing
import urllib.parse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resweep.runner.scanners.identity import FindingsKey, load_key, mask, redact, target_identity
from resweep.schema.errors import ConfigFault
from tests.support.processes import claim_of, token

KEY = FindingsKey(bytes(range(32)))


def test_an_identity_depends_on_key_target_rule_and_secret_and_on_nothing_else() -> None:
    first = KEY.identify("t", "r", b"s")
    assert len(first) == 32
    assert first == KEY.identify("t", " R ", b"s")
    others = [KEY.identify("u", "r", b"s"), KEY.identify("t", "q", b"s"), KEY.identify("t", "r", b"z")]
    others.append(FindingsKey(b"k" * 32).identify("t", "r", b"s"))
    assert len({first, *others}) == 5


@given(st.text(max_size=5), st.text(max_size=5), st.binary(max_size=5), st.integers(1, 3))
def test_parts_never_run_together(target: str, rule: str, secret: bytes, cut: int) -> None:
    whole = KEY.identify(target, rule, secret)
    if secret[:cut]:
        moved = KEY.identify(target, rule + secret[:cut].decode("latin-1"), secret[cut:])
        assert whole != moved


def test_a_renamed_target_keeps_its_identities_where_the_provider_gives_an_id() -> None:
    before, after = claim_of("x", name="a/old", provider_id="7"), claim_of("y", name="a/new", provider_id="7")
    assert target_identity(before) == target_identity(after)
    assert target_identity(claim_of("x", name="a")) != target_identity(claim_of("x", name="b"))
    assert target_identity(claim_of("x", name="7")) != target_identity(claim_of("x", name="q", provider_id="7"))


def test_a_key_file_is_made_once_private_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "findings.key"
    key = load_key(path)
    assert load_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["findings.key"]
    assert key.key.hex() not in repr(key)
    assert len(key.check_value) == 16
    assert key.check_value not in key.key
    assert load_key(tmp_path / "other").check_value != key.check_value


def _check_value(path: Path) -> bytes:
    return load_key(path).check_value


def test_processes_that_start_at_once_get_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert len(set(pool.map(_check_value, [tmp_path / "key"] * 8, chunksize=1))) == 1


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"a" * 64, 0o644, "chmod 600"),
        (b"", 0o600, "64 hex digits"),
        (b"a" * 63, 0o600, "64 hex digits"),
        (b"not a key at all", 0o600, "64 hex digits"),
    ],
)
def test_a_wrong_key_file_is_refused_and_never_replaced(tmp_path: Path, content: bytes, mode: int, words: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigFault, match=words):
        load_key(path)
    assert path.read_bytes() == content


@given(st.binary(max_size=300))
def test_a_mask_never_shows_more_than_four_characters_or_a_sixth(secret: bytes) -> None:
    text = secret.decode("utf-8", "replace")
    shown = mask(secret).split("…")[0]
    assert len(shown) <= min(4, len(text) // 6)
    assert mask(secret).isprintable()


def test_a_mask_is_recognisable() -> None:
    assert mask(token(1).encode()) == "ghp_… (40 characters)"
    assert mask(b"hunter2") == "h… (under 12 characters)"
    assert mask(b"short") == "… (under 12 characters)"
    assert mask(b"\x1b[2J" * 10) == "·[2J… (40 characters)"


SECRETS = [
    token(1).encode(),
    b"pa ss/w+rd'\"\\x",
    "pässwörd-ü".encode(),
    b"\xff\xfe\x00binary\x01",
    b"line one\nline two",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_removed_in_every_encoding_it_may_travel_in(secret: bytes) -> None:
    text = secret.decode("utf-8", "replace")
    forms = [text, json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), repr(secret), secret.hex()]
    forms += [urllib.parse.quote(secret), urllib.parse.quote_plus(secret), "'" + text.replace("'", "'\\''") + "'"]
    for lead in (b"", b"a", b"ab", b"user:"):
        forms.append(base64.b64encode(lead + secret + b" tail").decode())
    for form in forms:
        assert_gone(redact(f"before {form} after", [secret]), form)


def assert_gone(cleaned: str, form: str) -> None:
    """No run of eight characters of the form is left."""
    assert cleaned.startswith("before ")
    pieces = [form[n : n + 8] for n in range(max(1, len(form) - 7))]
    left = [piece for piece in pieces if piece in cleaned]
    # base64 around the value: the neighbours' characters may stay, of the secret at most two at each edge
    assert len(left) <= 4, (cleaned, left)


def test_what_looks_like_a_token_goes_without_being_known_and_object_ids_stay() -> None:
    oid = "3b18e512dba79e4c8300dd08aeb37f8e728b8dad"
    cleaned = redact(f"bad object {oid} in {token(3)} and AKIAIOSFODNN7EXAMPLEXX at line 12")
    assert oid in cleaned
    assert token(3) not in cleaned
    assert "AKIAIOSFODNN7EXAMPLEXX" not in cleaned
    assert "at line 12" in cleaned
