"""The commands on a real database, as people and scripts use them (product.md, "Command line")."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from resweep.ledger import audit, facts
from resweep.queue import admin, census, leases
from resweep.queue.census import Filter
from resweep.queue.outcomes import Failure, Release, complete, fail, release
from resweep.queue.sources import list_sources, note_fault
from resweep.runner.cli.main import run
from resweep.schema.records import Completion, State
from tests.support.processes import commit, new_repository, token_line
from tests.support.queue import WORKER, Conn, admit, source

HOSTILE = "bad\x1b[31m\u202ename"


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Invoke = Callable[..., Answer]


@pytest.fixture
def call(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Invoke:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESWEEP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RESWEEP_DATABASE__URL_ENV", "TEST_DSN")
    monkeypatch.setenv("TEST_DSN", database_url)

    def invoke(*arguments: str) -> Answer:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "\x1b" not in captured.out
        return Answer(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def filled(conn: Conn) -> dict[str, int]:
    """Targets in every state, one of them with a hostile name; gives their ids by name."""
    acme = source(conn, "acme")
    admit(conn, acme, ["waits", "fails", "puts-off", "done", "runs", "gone", "held", HOSTILE])
    ids = {row.name: row.target_id for row in census.listing(conn, Filter()).rows}
    claims = {c.name: c for c in leases.claim(conn, WORKER, limit=100)}
    c = claims.pop("fails")
    message = "it is \x1b[2J broken"
    fail(
        conn,
        [Failure(target_id=c.target_id, lease_token=c.lease_token, code="broken", message=message, permanent=True)],
    )
    c = claims.pop("done")
    complete(conn, [Completion(target_id=c.target_id, lease_token=c.lease_token, reports=())])
    claims.pop("runs")
    release(conn, [Release(target_id=c.target_id, lease_token=c.lease_token) for c in claims.values()])
    admin.defer(conn, [ids["puts-off"]], reason="by hand", delay=timedelta(hours=5))
    admin.retire(conn, [ids["gone"]], reason="not ours")
    admin.reserve(conn, [ids["held"]], by="ann")
    conn.commit()
    return ids


def states(conn: Conn) -> dict[str, State]:
    conn.rollback()
    return {row.name: row.state for row in census.listing(conn, Filter()).rows}


def test_queue_list_prints_one_envelope_with_the_names_of_the_queue(call: Invoke, filled: dict[str, int]) -> None:
    document = call("queue", "list", "--json").json
    assert (document["schema"], document["total"], len(document["items"])) == (1, 8, 8)
    item = next(each for each in document["items"] if each["name"] == "fails")
    assert (item["state"], item["last_error_code"], item["target_id"], item["source"]) == (
        "failed",
        "broken",
        filled["fails"],
        "acme",
    )
    assert item["not_before"].endswith("+00:00")


def test_queue_list_is_valid_and_whole_when_there_is_nothing(call: Invoke) -> None:
    for arguments in (
        ("queue", "list"),
        ("cycles", "list"),
        ("runs", "list"),
        ("sources", "list"),
        ("findings", "list"),
    ):
        answer = call(*arguments, "--json")
        assert (answer.code, answer.json["items"], answer.json["total"]) == (0, [], 0), arguments
    assert call("status", "--json").json["sources"] == []
    assert call("status").code == 0


def test_queue_list_filters_and_pages(call: Invoke, filled: dict[str, int]) -> None:
    def names(answer: Any) -> list[str]:
        return [item["name"] for item in answer.json["items"]]

    assert names(call("queue", "list", "--json", "--state", "failed")) == ["fails"]
    assert names(call("queue", "list", "--json", "--error-code", "broken")) == ["fails"]
    assert names(call("queue", "list", "--json", "--name", "wai")) == ["waits"]
    assert set(names(call("queue", "list", "--json", "--state", "deferred", "--state", "done"))) == {"done", "puts-off"}
    first = call("queue", "list", "--json", "--limit", "3").json
    second = call("queue", "list", "--json", "--limit", "9", "--after", str(first["next"])).json
    assert len({item["name"] for item in first["items"] + second["items"]}) == 8
    assert (first["total"], second["next"]) == (8, None)
    unknown = call("queue", "list", "--source", "acm")
    assert (unknown.code, "did you mean acme?" in unknown.err) == (2, True)


def test_foreign_text_is_made_harmless_everywhere(call: Invoke, filled: dict[str, int]) -> None:
    for arguments in (
        ("queue", "list"),
        ("queue", "show", str(filled[HOSTILE])),
        ("explain", str(filled[HOSTILE])),
        ("explain", str(filled["fails"])),
        ("status",),
    ):
        answer = call(*arguments)
        assert answer.code == 0
        assert "\u202e" not in answer.out
    assert "bad\\x1b[31m\\u202ename" in call("queue", "list").out
    assert "bad\\u001b[31m\\u202ename" in call("queue", "list", "--json").out


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("waits", "waiting", "It waits for a free worker, because it is new."),
        ("fails", "failed", "It failed for good: broken"),
        ("puts-off", "deferred", "It was put off by a rule (by hand) and is tried again in 4h 59m"),
        ("done", "covered", "it is scanned again when it changes"),
        ("runs", "scanning", "A worker scans it since"),
        ("gone", "retired", "It is no longer scanned (not ours)"),
        ("held", "reserved", "It is held by ann for another 59m"),
    ],
)
def test_explain_says_why_in_words_and_for_scripts(
    call: Invoke, filled: dict[str, int], name: str, code: str, said: str
) -> None:
    answer = call("explain", name)
    assert answer.code == 0
    assert said in answer.out
    document = call("explain", name, "--json").json
    assert (document["why"]["code"], document["target"]["name"]) == (code, name)


def test_a_name_that_may_be_several_targets_is_not_guessed(call: Invoke, conn: Conn) -> None:
    for name in ("one", "two"):
        admit(conn, source(conn, name), ["same"])
    conn.commit()
    answer = call("explain", "same")
    assert answer.code == 2
    assert "may be several targets; name one by its id: " in answer.err
    assert call("explain", "same", "--source", "two").code == 0
    assert call("explain", "nothing-like-it").code == 2


def test_retry_starts_failed_targets_again_and_is_audited(call: Invoke, conn: Conn, filled: dict[str, int]) -> None:
    answer = call("queue", "retry", "fails")
    assert (answer.code, "1 target changed" in answer.err) == (0, True)
    assert states(conn)["fails"] is State.PENDING
    (act,) = audit.acts(conn)
    assert (act.act, act.object, act.changed) == ("queue retry", "fails", 1)


def test_many_targets_need_a_yes_and_dry_run_changes_nothing(call: Invoke, conn: Conn, filled: dict[str, int]) -> None:
    before = states(conn)
    refused = call("queue", "requeue", "--source", "acme")
    assert (refused.code, "say --yes" in refused.err, states(conn)) == (2, True, before)
    looked = call("queue", "requeue", "--source", "acme", "--dry-run")
    assert (looked.code, "nothing was changed" in looked.err, states(conn)) == (0, True, before)
    assert len(looked.out.splitlines()) == 8
    done = call("queue", "requeue", "--source", "acme", "--yes", "--limit", "7")
    assert (done.code, "requeue: 7 targets (of 8 that match; --limit)" in done.err) == (0, True)
    assert states(conn)["done"] is State.PENDING


def test_names_and_filters_together_are_refused(call: Invoke, filled: dict[str, int]) -> None:
    assert call("queue", "requeue", "done", "--source", "acme").code == 2
    assert call("queue", "defer", "--by", "1h", "--why", "x").code == 2


def test_operators_acts_change_what_they_say(call: Invoke, conn: Conn, filled: dict[str, int]) -> None:
    assert call("queue", "defer", "waits", "--by", "2h", "--why", "later").code == 0
    assert states(conn)["waits"] is State.DEFERRED
    assert call("queue", "reserve", "done", "--for", "5m", "--holder", "bob").code == 0
    assert "reserved by bob" in call("queue", "list", "--name", "done").out
    assert call("queue", "unreserve", "done", "--holder", "bob").code == 0
    assert "reserved" not in call("queue", "list", "--name", "done").out
    assert call("queue", "retire", "waits", "--why", "archived").code == 0
    assert states(conn)["waits"] is State.RETIRED
    assert [act.act for act in audit.acts(conn)] == ["queue retire", "queue unreserve", "queue reserve", "queue defer"]


def test_sources_are_listed_paused_and_resumed(
    call: Invoke, conn: Conn, filled: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "resweep.toml").write_text("[sources.mine]\nkind = 'git'\npaths = ['.']\nenabled = false\n")
    rows = {item["name"]: item for item in call("sources", "list", "--json").json["items"]}
    assert (rows["mine"]["configured"], rows["mine"]["enabled"], rows["mine"]["registered"]) == (True, False, False)
    assert (rows["acme"]["configured"], rows["acme"]["targets"]["done"]) == (False, 1)
    assert call("sources", "pause", "acme", "--why", "a migration", "--for", "1h").code == 0
    assert "a migration" in call("sources", "list").out
    document = call("explain", "waits", "--json").json
    assert document["why"]["code"] == "source_paused"
    assert call("sources", "resume", "acme").code == 0
    conn.rollback()
    assert not list_sources(conn)[0].paused
    assert call("sources", "pause", "nosuch", "--why", "x").code == 2


def test_sources_check_asks_and_ends_with_3_when_one_cannot_be_reached(call: Invoke, tmp_path: Path) -> None:
    new_repository(tmp_path / "far" / "a")
    good = call("sources", "check", f"git:{tmp_path / 'far'}")
    assert (good.code, "good: 1 repositories" in good.out) == (0, True)
    bad = call("sources", "check", f"git:{tmp_path / 'nowhere'}", "--json")
    assert (bad.code, bad.json["items"][0]["code"]) == (3, "unreadable")


def test_status_shows_what_waits_and_a_source_in_trouble(call: Invoke, conn: Conn, filled: dict[str, int]) -> None:
    shown = call("status")
    assert shown.code == 0
    assert "none is running" in shown.out
    document = call("status", "--json").json
    (acme,) = document["sources"]
    assert (acme["targets"]["in_progress"], acme["claimable"]) == (1, 2)
    assert document["in_flight"][0]["name"] == "runs"
    for _ in range(3):
        note_fault(conn, list_sources(conn)[0].source_id, code="dns", message="no such host")
    conn.commit()
    assert "acme (paused)" in call("status").out
    assert "no such host" in call("sources", "list").out


def test_schema_apply_twice_changes_nothing_and_status_tells(call: Invoke) -> None:
    for _ in range(2):
        answer = call("schema", "apply", "--json")
        assert (answer.code, answer.json["items"]) == (0, [])
    states_ = call("schema", "status", "--json").json["items"]
    assert {each["state"] for each in states_} == {"applied"}


def test_a_database_without_our_schema_is_refused_with_the_command_that_helps(call: Invoke, conn: Conn) -> None:
    conn.execute("DELETE FROM schema_migration WHERE number = (SELECT max(number) FROM schema_migration)")
    conn.commit()
    answer = call("status")
    assert (answer.code, "run `resweep schema apply`" in answer.err) == (1, True)
    assert call("schema", "status").code == 1
    conn.execute("INSERT INTO schema_migration (number, name, checksum) VALUES (9000, '9000_newer', 'x')")
    conn.commit()
    newer = call("status")
    assert (newer.code, "newer than this program" in newer.err) == (1, True)


def test_a_database_that_is_not_there_ends_with_1_and_no_password_is_shown(
    call: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_DSN", "postgresql://ann:hunter2@127.0.0.1:1/nothing")
    for arguments in (("status",), ("queue", "list"), ("schema", "status"), ("schema", "apply")):
        answer = call(*arguments)
        assert answer.code == 1, arguments
        assert "the database cannot be reached" in answer.err
        assert "hunter2" not in answer.err
    doctor = call("doctor", "--no-scanners", "--json")
    assert (doctor.code, "hunter2" in doctor.out) == (1, False)
    assert {each["check"]: each["level"] for each in doctor.json["items"]}["database"] == "failure"


def test_discover_runs_one_cycle_and_dry_run_writes_nothing(call: Invoke, conn: Conn, tmp_path: Path) -> None:
    commit(new_repository(tmp_path / "far" / "a"), {"a": "b"})
    looked = call("discover", "--dry-run", f"git:{tmp_path / 'far'}")
    assert (looked.code, looked.out.split()) == (0, ["new", "a"])
    assert states(conn) == {}
    assert list_sources(conn) == []
    done = call("discover", f"git:{tmp_path / 'far'}", "--json")
    assert (done.code, done.json["items"][0]["queued_new"], done.json["items"][0]["trigger"]) == (0, 1, "manual")
    assert list(states(conn).values()) == [State.PENDING]
    gone = call("discover", f"git:{tmp_path / 'nowhere'}")
    assert (gone.code, "unreadable" in gone.out) == (3, True)
    cycles = call("cycles", "list", "--json").json["items"]
    assert [each["status"] for each in cycles] == ["failed", "success"]
    assert call("cycles", "show", str(cycles[1]["id"]), "--json").json["cycle"]["queued_new_count"] == 1
    assert call("cycles", "show", "999").code == 2


def test_the_doctor_judges_by_the_worst(call: Invoke, filled: dict[str, int]) -> None:
    answer = call("doctor", "--no-scanners", "--json")
    levels = {each["level"] for each in answer.json["items"]}
    # The tests' server runs without fsync: that is a failure, and the doctor has to find it.
    found = [each for each in answer.json["items"] if "fsync is off" in each["message"]]
    assert bool(found) == ("failure" in levels)
    assert answer.code == (1 if "failure" in levels else 3)
    assert any(
        each["check"] == "queue" and "failed or are unresolved" in each["message"] for each in answer.json["items"]
    )


def test_the_doctor_knows_another_findings_key(call: Invoke, conn: Conn) -> None:
    facts.settle(conn, facts.FINDINGS_KEY, b"another key's 16", by="elsewhere")
    conn.commit()
    answer = call("doctor", "--no-scanners", "--json")
    (key,) = [each for each in answer.json["items"] if each["check"] == "findings key"]
    assert (key["level"], "elsewhere" in key["message"]) == ("failure", True)


def test_findings_of_a_secret_in_the_configuration_never_leave_by_it(call: Invoke, tmp_path: Path) -> None:
    (tmp_path / "resweep.toml").write_text(f"[sources.x]\nkind = 'git'\npaths = ['.']\n{token_line(3).lower()}")
    answer = call("status")
    assert answer.code == 2
    assert "ghp_" not in answer.err
