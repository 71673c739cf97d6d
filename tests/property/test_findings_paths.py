"""Path patterns: what Python matches, what PostgreSQL matches and what git ignores are the same."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import Connection

from resweep.queue.findings_paths import parse
from resweep.schema.errors import UsageFault

names = st.text(alphabet="ab*?.é -+(", min_size=1, max_size=4)


def _pattern(lead: str, parts: list[str], trail: str) -> str:
    return lead + "/".join(parts) + trail


patterns = st.builds(
    _pattern,
    st.sampled_from(["", "/"]),
    st.lists(st.one_of(names, st.just("**")), min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
)
paths = st.lists(st.text(alphabet="ab.é -+(\n", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


@given(patterns, paths)
@settings(max_examples=500)
def test_matching_by_steps_equals_the_regular_expression(text: str, path: str) -> None:
    pattern = parse(text)
    assert pattern.matches(path) == (re.fullmatch(pattern.regex(), path, re.DOTALL) is not None)


def test_postgresql_reads_the_expression_as_python_does(conn: Connection[Any]) -> None:
    texts = [
        "*.py",
        "/a.py",
        "a/**",
        "a/**/b",
        "**/b",
        "docs/*",
        "t?st/",
        "a.b",
        "a+(b",
        "é*",
        "[x]",
        "a\\b",
        "{}|^$",
        "\x1b",
    ]
    samples = ["a.py", "x/a.py", "a/b", "a/x/y/b", "b", "docs/a", "docs/a/b", "test/x", "test", "aXb", "a.b", "a+(b"]
    samples += ["été/x", "[x]", "x", "a\\b", "{}|^$", "\x1b", "a\nb.py", "q/a/b"]
    for text in texts:
        pattern = parse(text)
        rows = conn.execute("SELECT p, p ~ %s FROM unnest(%s::text[]) AS p", (pattern.regex(), samples)).fetchall()
        assert {path: pattern.matches(path) for path in samples} == dict(rows), text


@pytest.mark.parametrize(
    "text", ["*.py", "/a.py", "a/", "/a", "a/b", "a/**", "a/**/c", "**/c", "b*", "?", "a/*", "*", "**", "*/c"]
)
def test_git_ignores_the_same(tmp_path: Path, text: str) -> None:
    files = ["a.py", "x/a.py", "a/b", "a/b/c", "a/x/y/c", "c", "b", "bc/d", "x/a/b", "q"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    made: list[str] = []
    for name in files:
        path = tmp_path / name
        if path.exists() or any(parent.is_file() for parent in path.parents):
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        except OSError:
            continue
        made.append(name)
    (tmp_path / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / ".git" / "info" / "exclude").write_text(text + "\n")
    done = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--no-index", *made], capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split("\n")) - {""} == {name for name in made if parse(text).matches(name)}


def test_a_hostile_pattern_holds_nobody_up() -> None:
    path = "/".join(["a" * 50] * 80)
    begin = time.perf_counter()
    for text in ("**/" * 300 + "b", "*a" * 500 + "b", "**/*a*a*a*a*a*b/" * 40 + "x"):
        assert not parse(text).matches(path)
    assert time.perf_counter() - begin < 2


@pytest.mark.parametrize("text", ["", "/", "//", "x" * 5_000, "a\0"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="path pattern"):
        parse(text)
