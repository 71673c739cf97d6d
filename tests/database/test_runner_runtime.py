"""The runtime as a process of its own: start, work, signals, a second one, kill -9, the database's death."""

import json
import os
import signal
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from kingfisher import get_binary_path  # pyright: ignore[reportMissingTypeStubs]

from tests.support.processes import commit, new_repository, token, token_line
from tests.support.runtime import Deployment, Running, deployment

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> Deployment:
    return deployment(tmp_path, database_url)


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """Three repositories, one with a secret, one that is empty."""
    folder = tmp_path / "far"
    commit(new_repository(folder / "secret"), {"conf.py": token_line(1)})
    commit(new_repository(folder / "clean"), {"a.txt": "nothing to see\n"})
    new_repository(folder / "empty")
    return folder


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(  # noqa: S310 -- loopback
        url, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 -- loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scanned(name: str, claim: int | None = None) -> Callable[[dict[str, Any]], bool]:
    """A log line that says that a repository was scanned."""
    return lambda line: (
        line.get("event") in {"scanned", "unchanged"}
        and str(line.get("target", "")).endswith(f"/{name}")
        and (claim is None or line.get("claim") == claim)
    )


def wait_scanned(running: Running) -> None:
    """Wait until the first scans of the three repositories are over."""
    running.wait_ready()
    for name in ("secret", "clean", "empty"):
        running.wait_for(scanned(name, claim=1))


def slow_kingfisher(folder: Path) -> None:
    """The real scanner behind a program that waits while a file called ``slow`` is there, as the settings name it."""
    wrapper = folder / "slow-kingfisher"
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" = scan ] && [ -e "{folder}/slow" ] && sleep 45\nexec "{get_binary_path()}" "$@"\n'
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    (folder / "resweep.toml").write_text(f"[scanners.kingfisher]\ncommand = ['{wrapper}']\n")


def test_once_scans_everything_then_nothing_then_exactly_what_was_pushed(here: Deployment, far: Path) -> None:
    spec = f"git:{far}"
    first = here.run("up", spec, "--once", "--json")
    assert first.code == 0, first.stderr
    summary = first.json["summary"]
    assert (summary["targets"], summary["queued_new"], summary["scanned_targets"]) == ({"done": 3}, 3, 3)
    assert summary["scans"] == {"findings": 1, "clean": 1, "empty": 1}
    assert summary["open_findings"] == {"critical": 1}
    second = here.run("up", spec, "--once", "--json").json["summary"]
    assert (second["queued_new"], second["queued_updated"], second["scanned_targets"]) == (0, 0, 0)
    commit(far / "clean", {"a.txt": "more\n"})
    third = here.run("up", spec, "--once", "--json").json["summary"]
    assert (third["queued_new"], third["queued_updated"], third["scanned_targets"]) == (0, 1, 1)
    shown = here.run("up", spec, "--once")
    assert "scanned     nothing: everything was covered already" in shown.stdout
    assert "findings    1 open: 1 critical" in shown.stdout
    listed = here.run("findings", "list", "--json").json
    assert (listed["total"], listed["items"][0]["severity"]) == (1, "critical")


def test_a_broken_repository_ends_with_3_and_is_named_with_its_reason(here: Deployment, far: Path) -> None:
    broken = far / "broken" / ".git"
    for folder in ("objects", "refs"):
        (broken / folder).mkdir(parents=True)
    (broken / "HEAD").write_text("garbage\n")
    done = here.run("up", f"git:{far}", "--once")
    assert done.code == 3, done.stderr
    assert "3 covered" in done.stdout
    assert "broken  broken: " in done.stdout
    assert "findings    1 open, 1 new: 1 critical" in done.stdout


def test_a_running_runtime_scans_a_push_serves_pages_and_ends_in_order_with_0(here: Deployment, far: Path) -> None:
    with here.started("up", f"git:{far}", RESWEEP_DEFAULTS__INTERVAL_SECONDS="1") as running:
        wait_scanned(running)
        commit(far / "clean", {"a.txt": "more\n"})
        running.wait_for(scanned("clean", claim=2))
        url = running.url
        assert get(f"{url}/livez")[0] == 200
        assert json.loads(get(f"{url}/readyz")[1]) == {"status": "ready"}
        assert get(f"{url}/healthz")[0] == 200
        status, text = get(f"{url}/metrics")
        assert status == 200
        assert f'resweep_targets{{source="git:{far}",state="done"}} 3.0' in text
        assert f'resweep_queued_updated_total{{source="git:{far}"}} 1.0' in text
        assert f'resweep_queued_new_total{{source="git:{far}"}} 3.0' in text
        assert (
            f'resweep_scans_total{{admission="updated",outcome="clean",scanner="kingfisher",source="git:{far}"}} 1.0'
            in text
        )
        assert text.endswith("# EOF\n")
        # A page in a person's browser must not reach us by another name (DNS rebinding).
        assert get(f"{url}/metrics", Host="evil.example")[0] == 400
        assert get(f"{url}/livez", Host=f"localhost:{url.rpartition(':')[2]}")[0] == 200
        port = url.rpartition(":")[2]
        assert here.run("health", RESWEEP_WEB__LISTEN=f"127.0.0.1:{port}").code == 0
        assert here.run("status").code == 0
        began = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began < 15
    ill = here.run("health", RESWEEP_WEB__LISTEN=f"127.0.0.1:{port}")
    assert (ill.code, "nothing answers" in ill.stderr) == (1, True)


def test_ctrl_c_ends_with_130_and_a_running_scan_is_given_back_by_the_second(here: Deployment, far: Path) -> None:
    slow_kingfisher(here.folder)
    with here.started("up", f"git:{far}", RESWEEP_LOG__LEVEL="debug") as running:
        wait_scanned(running)
        (here.folder / "slow").touch()
        commit(far / "clean", {"a.txt": "slow now\n"})
        running.wait_for(lambda line: line.get("event") == "scan started" and line.get("claim") == 2)
        running.signal(signal.SIGINT)
        running.wait_for(lambda line: line.get("code") == "stopping")
        time.sleep(0.5)
        assert running.process.poll() is None  # the scan may finish
        running.signal(signal.SIGINT)
        assert running.ended(20) == 130
    row = here.run("queue", "list", "--json", "--name", "clean").json["items"][0]
    assert (row["state"], row["attempts"]) == ("pending", 0)


def test_for_ends_in_order_after_its_time(here: Deployment, far: Path) -> None:
    began = time.monotonic()
    done = here.run("up", f"git:{far}", "--for", "6s", "--no-web")
    assert done.code == 0, done.stderr
    assert 6 <= time.monotonic() - began < 45


def test_of_two_runtimes_one_leads_both_work_and_the_other_takes_over(here: Deployment, far: Path) -> None:
    (here.folder / "resweep.toml").write_text(
        f"[sources.mine]\nkind = 'git'\npaths = ['{far}']\ninterval_seconds = 1\nupdated_rescan_enabled = true\n"
        "updated_rescan_cooldown_seconds = 0\n"
    )
    # What the leader was scanning when it was killed comes back when its leases end.
    short = {"RESWEEP_WORKERS__LEASE_SECONDS": "6"}
    with here.started("up", **short) as one:
        one.wait_ready()
        one.wait_for(lambda line: line.get("code") == "leading")
        with here.started("up", **short) as two:
            two.wait_ready()
            said = two.wait_for(lambda line: line.get("code") == "standby")["event"]
            assert "leads since" in said
            one.wait_for(lambda line: line.get("event") == "cycle ended" and line.get("source") == "mine")
            assert not any(line.get("event") == "cycle ended" for line in two.lines)
            one.process.kill()
            two.wait_for(lambda line: line.get("code") == "leading", seconds=30)
            commit(far / "clean", {"a.txt": "after the leader died\n"})
            two.wait_for(scanned("clean"), seconds=60)


def children(running: Running) -> Iterator[psutil.Process]:
    """Everything that a runtime started, by its private folder in their command lines or by descent."""
    yield from psutil.Process(running.process.pid).children(recursive=True)


def test_promise_4_a_killed_worker_leaves_no_process_and_its_target_is_scanned_by_another(
    here: Deployment, far: Path
) -> None:
    slow_kingfisher(here.folder)
    short = {"RESWEEP_WORKERS__LEASE_SECONDS": "4", "RESWEEP_LOG__LEVEL": "debug"}
    with here.started("up", f"git:{far}", **short) as running:
        wait_scanned(running)
        (here.folder / "slow").touch()
        commit(far / "secret", {"more.txt": "slow now\n"})
        running.wait_for(lambda line: line.get("event") == "scan started" and line.get("claim") == 2)
        time.sleep(1.0)
        started = list(children(running))
        assert any("slow-kingfisher" in " ".join(process.cmdline()) for process in started)
        os.kill(running.process.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        running.process.wait(10)
        _, alive = psutil.wait_procs(started, timeout=15)
        assert alive == []
    (here.folder / "slow").unlink()
    with here.started("work", **short) as other:
        other.wait_for(lambda line: line.get("event") == "expired leases taken back", seconds=60)
        line = other.wait_for(scanned("secret", claim=3), seconds=60)
        assert line["attempt"] == 2
        assert time.monotonic() - killed_at < 40
        assert other.stop() == 0
    assert list((here.data_dir / "work").glob("*/*")) == []


def test_promise_9_the_runtime_outlives_the_death_of_the_embedded_server(tmp_path: Path, far: Path) -> None:
    here = deployment(tmp_path / "own", None)
    with here.started("up", f"git:{far}", RESWEEP_DEFAULTS__INTERVAL_SECONDS="1") as running:
        running.wait_ready(120)
        running.wait_for(scanned("secret"))
        (pid_file,) = here.data_dir.glob("postgres/**/postmaster.pid")
        os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
        running.wait_for(lambda line: line.get("code") == "server_died", seconds=30)
        commit(far / "clean", {"a.txt": "after the server died\n"})
        running.wait_for(scanned("clean", claim=2), seconds=90)
        assert running.stop() == 0


def test_scan_brings_its_own_workers_and_says_with_10_that_something_was_found(here: Deployment, far: Path) -> None:
    found = here.run("scan", f"git:{far / 'secret'}", "--fail-on-findings", "--json")
    assert found.code == 10, found.stderr
    assert (found.json["total"], found.json["items"][0]["severity"]) == (1, "critical")
    assert token(1) not in found.stdout
    assert here.run("scan", f"git:{far / 'secret'}").code == 0
    clean = here.run("scan", f"git:{far / 'clean'}", "--fail-on-findings")
    assert (clean.code, clean.stdout) == (0, "")
    assert here.run("scan", f"git:{far / 'nowhere'}").code == 3
    (far.parent / "bare-folder").mkdir()
    assert here.run("scan", f"git:{far.parent / 'bare-folder'}").code == 2


def test_scan_uses_the_row_that_a_configured_source_has_and_the_workers_that_run(here: Deployment, far: Path) -> None:
    (here.folder / "resweep.toml").write_text(f"[sources.mine]\nkind = 'git'\npaths = ['{far}']\n")
    with here.started("up") as running:
        running.wait_ready()
        running.wait_for(scanned("secret"), seconds=60)
        done = here.run("scan", f"git:{far / 'secret'}")
        assert (done.code, "a running runtime scans" in done.stderr) == (0, True)
        assert running.stop() == 0
    rows = here.run("queue", "list", "--json").json["items"]
    assert {row["source"] for row in rows} == {"mine"}


def test_a_scan_that_takes_too_long_is_left_with_1_and_given_back(here: Deployment, far: Path) -> None:
    slow_kingfisher(here.folder)
    assert here.run("scan", f"git:{far / 'secret'}").code == 0
    (here.folder / "slow").touch()
    commit(far / "secret", {"more.txt": "slow now\n"})
    began = time.monotonic()
    # The scanners' test at the start would be slow too: it must not count as a scan that found nothing.
    late = here.run("scan", f"git:{far / 'secret'}", "--timeout", "2s")
    assert (late.code, "time was up" in late.stderr) == (1, True), late.stderr
    assert time.monotonic() - began < 100


def test_a_worker_with_another_findings_key_is_refused(here: Deployment, far: Path) -> None:
    assert here.run("scan", f"git:{far / 'clean'}").code == 0
    (here.data_dir / "findings.key").write_text("ab" * 32 + "\n")
    refused = here.run("up", f"git:{far}", "--once")
    assert (refused.code, "is another key than the one" in refused.stderr) == (2, True)


def test_a_scanner_that_misses_the_canary_is_refused_and_nothing_is_called_clean(here: Deployment, far: Path) -> None:
    (here.folder / "resweep.toml").write_text(
        "[scanners.blind]\ncommand = ['sh', '-c', 'echo []', '{repository}']\nformat = 'jsonl'\nneeds = 'repository'\n"
        f"[sources.mine]\nkind = 'git'\npaths = ['{far}']\nscanners = ['blind']\n"
    )
    refused = here.run("up", "--once")
    assert refused.code == 1
    assert "blind" in refused.stderr
    rows = here.run("queue", "list", "--json").json["items"]
    assert {row["state"] for row in rows} <= {"pending"}


def test_a_taken_address_that_somebody_chose_is_an_error_and_the_default_is_not(here: Deployment, far: Path) -> None:
    with here.started("up", f"git:{far}") as running:
        port = running.url.rpartition(":")[2]
        taken = here.run("up", f"git:{far}", "--once", RESWEEP_WEB__LISTEN=f"127.0.0.1:{port}")
        assert (taken.code, "cannot be listened on" in taken.stderr) == (2, True)


def test_secrets_stand_in_no_log_table_or_file_of_ours(here: Deployment, far: Path, database_url: str) -> None:
    secret = token(1)
    done = here.run("up", f"git:{far}", "--once", RESWEEP_LOG__LEVEL="debug")
    assert done.code == 0
    assert secret not in done.stdout + done.stderr
    with psycopg.connect(database_url) as conn:
        tables = conn.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in tables.fetchall():
            rows = conn.execute(f'SELECT t::text FROM "{table}" AS t'.encode()).fetchall()
            assert all(secret not in row[0] for row in rows), table
    kept = [path for path in here.data_dir.rglob("*") if path.is_file() and "checkouts" not in path.parts]
    assert kept
    assert all(secret.encode() not in path.read_bytes() for path in kept if "rules" not in path.parts)
