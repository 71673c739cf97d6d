"""Code owners as GitHub reads them (D23)."""

import time

import pytest

from resweep.queue.findings_owners import FILE_LIMIT_BYTES, parse_code_owners

FILE = """
# the whole repository
*       @global1 @global2

*.js    @js-owner #an inline comment
*.go    docs@example.com
/build/logs/ @doctocat
docs/*  docs@example.com
apps/   @octocat
/docs/  @acme/writers
/scripts/ @doctocat @octocat
**/logs @logger
/apps/github
with\\ space/ @spacer
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README", ("@global1", "@global2")),
        ("src/deep/a.js", ("@js-owner",)),
        ("a.go", ("docs@example.com",)),
        ("build/logs/x", ("@logger",)),
        ("x/build/logs", ("@logger",)),
        ("docs/a.md", ("@acme/writers",)),
        ("x/docs/a.md", ("@global1", "@global2")),
        ("x/apps/y/z", ("@octocat",)),
        ("apps/github", ()),
        ("apps/github/x", ()),
        ("scripts/x/y", ("@doctocat", "@octocat")),
        ("a/logs/b/c", ("@logger",)),
        ("with space/x", ("@spacer",)),
    ],
)
def test_the_last_rule_that_matches_wins(path: str, owners: tuple[str, ...]) -> None:
    assert parse_code_owners(FILE).of(path) == owners


def test_a_star_below_a_folder_owns_no_deeper_file() -> None:
    owners = parse_code_owners("docs/* @writer")
    assert owners.of("docs/a.md") == ("@writer",)
    assert owners.of("docs/deep/a.md") == ()


@pytest.mark.parametrize("line", ["!a @x", "[ab] @x", "a x", "a @x y", "\\#a @x", "a @", "@only", "/ @x", "\x00 @x"])
def test_a_line_that_cannot_be_read_is_skipped(line: str) -> None:
    owners = parse_code_owners(f"* @all\n{line}\n")
    assert owners.of("a") == ("@all",)


def test_names_are_told_apart_by_case() -> None:
    assert parse_code_owners("Docs/ @x").of("docs/a") == ()


def test_line_ends_of_any_kind_end_lines() -> None:
    assert parse_code_owners("a @x\r\nb @y\rc @z").of("b") == ("@y",)


def test_a_file_too_large_owns_nothing() -> None:
    assert parse_code_owners("* @x\n" + "#" * FILE_LIMIT_BYTES).of("a") == ()


def test_a_hostile_file_holds_nobody_up() -> None:
    body = "".join(f"{'**/' * 20}{'*a' * 20}{n} @x\n" for n in range(3_000))
    begin = time.perf_counter()
    parse_code_owners(body).of("a" * 200 + "/b/c/d")
    assert time.perf_counter() - begin < 5
