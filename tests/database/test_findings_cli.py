"""``resweep findings`` as people and scripts use it: against a real database, with the product's exit codes."""

import hashlib
import json
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import Connection

from resweep.queue import findings_owners
from resweep.queue.findings import store
from resweep.queue.findings_reads import FindingFilter, Origin, count_findings, life
from resweep.runner.cli.findings import ACCESS_KEY, FindingsAccess, findings
from resweep.runner.cli.findings_access import findings_access
from resweep.runner.cli.reveal import NotRevealed, reveal
from resweep.runner.config import load
from resweep.runner.scanners.identity import load_key, repository_identity
from resweep.runner.wiring import key_file
from resweep.schema.clock import SystemClock
from tests.support.findings import add_targets, completion, finding, finding_ids, identity, place, report

SECRET = b"AKIAQ3EGPXGMZ7DQN5KT"
Invoke = Callable[..., Result]


def _identify(origin: Origin, rule: str, secret: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((origin.name.encode(), rule.encode(), secret))).digest()


@pytest.fixture
def blobs() -> dict[str, bytes]:
    return {}


@pytest.fixture
def invoke(database_url: str, blobs: dict[str, bytes]) -> Invoke:
    @contextmanager
    def transaction() -> Generator[Connection[Any], None, None]:
        with psycopg.connect(database_url) as conn:
            yield conn

    def run(*arguments: str, allow_reveal: bool = False, **extra: Any) -> Result:
        def made() -> FindingsAccess:
            return FindingsAccess(
                transaction=transaction,
                now=lambda: datetime.now(UTC),
                version="1.2.3",
                allow_reveal=allow_reveal,
                read_blob=lambda _origin, blob: blobs[blob],
                identify=_identify,
            )

        @click.group()
        @click.pass_context
        def root(ctx: click.Context) -> None:
            ctx.meta[ACCESS_KEY] = made

        root.add_command(findings)
        return CliRunner().invoke(root, ["findings", *arguments], **extra)

    return run


@pytest.fixture
def targets(conn: Connection[Any]) -> list[int]:
    made = [*add_targets(conn, 1, source="acme"), *add_targets(conn, 1, source="zeta")]
    for target in made:
        store(
            conn,
            [
                completion(
                    target,
                    report(
                        finding("one", place("src/a.py", 2)),
                        finding("two", place("tests/\x1b[2Jb.py"), severity="low"),
                    ),
                )
            ],
        )
    conn.commit()
    return made


def _open(conn: Connection[Any]) -> int:
    conn.rollback()
    return sum(count_findings(conn, FindingFilter()).values())


@pytest.mark.usefixtures("targets")
def test_list_prints_one_envelope_for_scripts(invoke: Invoke) -> None:
    result = invoke("list", "--json", "--limit", "3")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["schema"], document["total"], len(document["items"])) == (0, 1, 4, 3)
    rest = json.loads(invoke("list", "--json", "--after", document["next"]).stdout)
    assert (len(rest["items"]), rest["next"]) == (1, None)
    ids = {item["id"] for item in document["items"] + rest["items"]}
    assert len(ids) == 4


def test_nothing_found_is_a_valid_list(invoke: Invoke) -> None:
    assert json.loads(invoke("list", "--json").stdout) == {"schema": 1, "items": [], "total": 0, "next": None}
    assert invoke("list").exit_code == 0


@pytest.mark.usefixtures("targets")
def test_list_is_a_table_that_no_file_name_can_bend(invoke: Invoke) -> None:
    result = invoke("list")
    assert result.stdout.splitlines()[0].startswith("ID")
    assert "\x1b" not in result.stdout
    assert "4 of 4 findings" in result.stderr


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--severity", "low"], 2),
        (["--source", "zeta"], 2),
        (["--path", "tests/"], 2),
        (["--since", "1h"], 4),
        (["--since", "2999-01-01"], 0),
        (["--state", "fixed"], 0),
        (["--state", "all", "--in-head"], 4),
        (["--scanner", "nobody"], 0),
    ],
)
@pytest.mark.usefixtures("targets")
def test_filters_narrow_lists_and_exports_alike(invoke: Invoke, options: list[str], count: int) -> None:
    assert json.loads(invoke("list", "--json", *options).stdout)["total"] == count
    assert json.loads(invoke("export", *options).stdout)["total"] == count


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list", "--since", "soon"], "no time"),
        (["list", "--after", "x"], "no mark"),
        (["show", "999999"], "no finding"),
        (["show", "zz"], "no finding"),
        (["triage", "--accept", "--why", "x"], "not neither"),
        (["triage", "1", "--why", "x"], "--accept"),
        (["triage", "1", "--accept"], "--why"),
        (["triage", "--rule", "x", "--accept", "--why", "x", "--until", "0s"], "not ahead|0 findings"),
        (["ignore", "add", "x", "--why", "y", "--source", "nobody"], "no source"),
        (["ignore", "add", "x", "--why", "y", "--target", "nobody"], "no target"),
        (["ignore", "add", "--why", "y"], "one of the two"),
        (["ignore", "add", "x"], "--why"),
        (["ignore", "remove", "77"], "no living"),
        (["baseline", "import", "/nonexistent"], "cannot be read"),
    ],
)
@pytest.mark.usefixtures("targets")
def test_what_cannot_be_understood_ends_with_two(invoke: Invoke, arguments: list[str], says: str) -> None:
    result = invoke(*arguments)
    if says == "not ahead|0 findings":
        assert "0 findings match" in result.stdout
        return
    assert result.exit_code == 2
    assert says in result.stderr


def test_show_tells_places_and_life(invoke: Invoke, conn: Connection[Any], targets: list[int]) -> None:
    finding_id = finding_ids(conn, targets[0])[0]
    result = invoke("show", str(finding_id), "--json")
    (item,) = json.loads(result.stdout)["items"]
    assert [event["kind"] for event in item["life_events"]] == ["opened"]
    assert len(item["places"]) == 1
    text = invoke("show", str(finding_id))
    assert text.exit_code == 0
    assert "opened" in text.stdout
    assert "\x1b" not in text.stdout
    ambiguous = invoke("show", identity("one").hex()[:10])
    assert (ambiguous.exit_code, "name one by id" in ambiguous.stderr) == (2, True)


def test_owners_are_shown_where_they_are_known(invoke: Invoke, conn: Connection[Any], targets: list[int]) -> None:
    findings_owners.remember(conn, targets[1], path="CODEOWNERS", body="src/ @zeta/devs\n")
    conn.commit()
    items = json.loads(invoke("list", "--json").stdout)["items"]
    owners = {(item["source"], item["places"][0]["path"][:3]): item["owners"] for item in items}
    assert owners[("zeta", "src")] == ["@zeta/devs"]
    assert [value for key, value in owners.items() if key != ("zeta", "src")] == [[], [], []]
    assert "@zeta/devs" in invoke("export", "--format", "csv").stdout


def test_triage_of_one_is_recorded(invoke: Invoke, conn: Connection[Any], targets: list[int]) -> None:
    finding_id = finding_ids(conn, targets[0])[0]
    result = invoke("triage", str(finding_id), "--accept", "--why", "known", "--until", "30d", "--who", "ann")
    assert (result.exit_code, result.stdout) == (0, "1 findings changed, 1 matched\n")
    event = life(conn, finding_id)[-1]
    assert (event.kind, event.by, event.why, event.until is not None) == ("accepted", "ann", "known", True)


@pytest.mark.usefixtures("targets")
def test_triage_of_many_shows_the_count_and_asks(invoke: Invoke, conn: Connection[Any]) -> None:
    arguments = ("triage", "--severity", "low", "--false-positive", "--why", "x", "--who", "ann")
    assert "2 findings match; nothing was changed" in invoke(*arguments, "--dry-run").stdout
    refused = invoke(*arguments)
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert _open(conn) == 4
    assert invoke(*arguments, "--yes").stdout == "2 findings changed, 2 matched\n"
    assert _open(conn) == 2
    undone = invoke("triage", "--severity", "low", "--reopen", "--yes", "--who", "ann")
    assert undone.stdout == "2 findings changed, 2 matched\n"
    assert _open(conn) == 4


def test_ignore_rules_come_and_go(invoke: Invoke, conn: Connection[Any], targets: list[int]) -> None:
    assert len(targets) == 2
    added = invoke("ignore", "add", "tests/", "--why", "fixtures", "--who", "ann", "--source", "acme")
    assert (added.exit_code, added.stdout.endswith("1 findings changed\n")) == (0, True)
    assert _open(conn) == 3
    (rule,) = json.loads(invoke("ignore", "list", "--json").stdout)["items"]
    assert (rule["pattern"], rule["source"], rule["ignored_count"]) == ("tests/", "acme", 1)
    assert "fixtures" in invoke("ignore", "list").stdout
    assert invoke("ignore", "remove", str(rule["id"]), "--who", "bob").exit_code == 0
    assert _open(conn) == 4


def test_a_baseline_is_imported_and_what_is_left_is_told(
    invoke: Invoke, conn: Connection[Any], targets: list[int], tmp_path: Path
) -> None:
    exported = invoke("export", "--format", "json", "--source", "acme").stdout
    (tmp_path / "base.json").write_text(exported)
    counted = json.loads(invoke("baseline", "import", str(tmp_path / "base.json"), "--dry-run", "--json").stdout)
    assert (counted["matched"], counted["findings"], counted["changed"]) == (2, 4, 0)
    done = invoke("baseline", "import", str(tmp_path / "base.json"), "--target", "acme/r1", "--yes", "--who", "ann")
    assert (done.exit_code, done.stdout) == (0, "2 of 2 entries match 2 findings; 2 changed\n")
    assert _open(conn) == 2
    assert life(conn, finding_ids(conn, targets[0])[0])[-1].why == "baseline base.json"


@pytest.mark.usefixtures("targets")
def test_exports_go_to_files_of_a_folder(invoke: Invoke, tmp_path: Path) -> None:
    for form in ("json", "jsonl", "csv", "sarif"):
        result = invoke("export", "--format", form, "--output", str(tmp_path / form))
        assert result.exit_code == 0
        assert "4 findings" in result.stderr
        index = json.loads((tmp_path / form / "index.json").read_text())
        assert index["total"] == 4
        assert len(index["items"]) == (2 if form == "sarif" else 1)


def _revealable(conn: Connection[Any], blobs: dict[str, bytes], secret: bytes, content: bytes) -> int:
    (target,) = add_targets(conn, source="deep")
    name = conn.execute("SELECT normalized_target FROM target WHERE id = %s", (target,)).fetchone()
    assert name is not None
    origin = Origin(kind="git", provider_id=None, name=name[0], address="")
    found = finding("x", place("a.py", 2, blob="d" * 40), identity=_identify(origin, "aws-access-token", secret))
    store(conn, [completion(target, report(found))])
    conn.commit()
    blobs["d" * 40] = content
    return finding_ids(conn, target)[0]


def test_a_secret_is_shown_once_and_recorded_first(
    invoke: Invoke, conn: Connection[Any], blobs: dict[str, bytes]
) -> None:
    finding_id = _revealable(conn, blobs, SECRET, b"x = 1\nkey = '" + SECRET + b"'\n")
    refused = invoke("show", str(finding_id), "--reveal")
    assert (refused.exit_code, "findings.allow_reveal" in refused.stderr) == (2, True)
    assert [event.kind for event in life(conn, finding_id)] == ["opened"]
    both = invoke("show", str(finding_id), "--reveal", "--json", allow_reveal=True)
    assert both.exit_code == 2
    shown = invoke("show", str(finding_id), "--reveal", "--who", "ann", "--why", "rotation", allow_reveal=True)
    assert (shown.exit_code, shown.stdout) == (0, SECRET.decode() + "\n")
    conn.rollback()
    event = life(conn, finding_id)[-1]
    assert (event.kind, event.by, event.why) == ("revealed", "ann", "rotation")
    rows = conn.execute(
        "SELECT string_agg(f::text, '') || (SELECT string_agg(e::text, '') FROM finding_event AS e) FROM finding AS f"
    )
    assert SECRET.decode() not in str(rows.fetchone())


@pytest.mark.parametrize(
    ("content", "secret", "proven", "text"),
    [
        (b"x\nkey = 'abc'\n", b"abc", True, b"abc"),
        (b"x\n-----BEGIN\nabc\n-----END\nrest", b"-----BEGIN\nabc\n-----END", True, b"-----BEGIN\nabc\n-----END"),
        (b"x\nYWJj\n", b"abc", False, b"YWJj"),
        (b"x\n" + b"y" * 100_000 + b"\n", b"zz", False, b"y" * 100_000),
    ],
)
def test_a_secret_is_found_by_its_identity_alone(content: bytes, secret: bytes, proven: bool, text: bytes) -> None:
    found = reveal(content, line=2, column=1, matches=lambda part: part == secret)
    assert (found.proven, found.text) == (proven, text)


def test_a_secret_is_shown_out_of_a_real_repository(conn: Connection[Any], database_url: str, tmp_path: Path) -> None:
    repository = tmp_path / "r"
    git = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-C", str(repository))
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "a.py").write_bytes(b"x = 1\nkey = '" + SECRET + b"'\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    blob = subprocess.run([*git, "rev-parse", "HEAD:a.py"], check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "resweep.toml").write_text(f'data_dir = "{tmp_path / "data"}"\n[findings]\nallow_reveal = true\n')
    settings = load(tmp_path / "resweep.toml", environ={}, cwd=tmp_path)
    key = load_key(key_file(settings))
    (target,) = add_targets(conn)
    conn.execute(
        "UPDATE target SET normalized_target = %s, address = %s WHERE id = %s", ("git/r", str(repository), target)
    )
    secret = key.identify(repository_identity("git", None, "git/r"), "aws-access-token", SECRET)
    store(conn, [completion(target, report(finding("x", place("a.py", 2, blob=blob), identity=secret)))])
    conn.commit()

    @contextmanager
    def transaction() -> Generator[Connection[Any], None, None]:
        with psycopg.connect(database_url) as mine:
            yield mine

    @click.group()
    @click.pass_context
    def root(ctx: click.Context) -> None:
        ctx.meta[ACCESS_KEY] = lambda: findings_access(settings, transaction, clock=SystemClock())

    root.add_command(findings)
    number = str(finding_ids(conn, target)[0])
    conn.rollback()
    result = CliRunner().invoke(root, ["findings", "show", number, "--reveal", "--who", "ann"])
    assert (result.exit_code, result.stdout) == (0, SECRET.decode() + "\n")
    assert "the secret, a.py:2" in result.stderr


def test_a_line_that_is_gone_is_told() -> None:
    with pytest.raises(NotRevealed, match="number 9"):
        reveal(b"x\n", line=9, column=1, matches=lambda _: False)
