"""F3: a worker is frozen past its lease and then goes on (SIGSTOP, SIGCONT): the zombie case.

Promises 3 and 5: whatever it still hands in is refused, and the scanner it ran is gone.
"""

import os
import random
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from resweep.queue.leases import reap
from resweep.queue.outcomes import Failure, complete, fail
from resweep.schema.records import Completion
from tests.support.faults import (
    ask,
    claims_without_one_end,
    crew,
    held_by,
    living,
    processes_of,
    states,
    tree_of,
    use_scripted_scanner,
    uuid_of,
    wait_for,
)
from tests.support.processes import token_line
from tests.support.queue import OTHER, WORKER, Conn, admit, covered, day, row, source, take
from tests.support.repositories import Repo
from tests.support.runtime import Deployment, Running, deployment

LEASE, SWEEP = 4.0, 1.0
ROUNDS = int(os.environ.get("RESWEEP_TEST_ROUNDS", "20"))
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("killed workers")]


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> Deployment:
    return deployment(
        tmp_path,
        database_url,
        RESWEEP_WORKERS__CONCURRENCY="1",
        RESWEEP_WORKERS__LEASE_SECONDS=str(LEASE),
        RESWEEP_WORKERS__SWEEP_SECONDS=str(SWEEP),
        RESWEEP_LOG__LEVEL="debug",
    )


def _first_claim(event: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: line.get("event") == event and line.get("claim") == 1


@pytest.mark.parametrize("finished", [False, True], ids=["its scanner still runs", "its scanner has finished"])
def test_f3_a_worker_frozen_past_its_lease_is_refused_and_its_scanner_gone(
    finished: bool,
    here: Deployment,
    conn: Conn,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script, gate = str(use_scripted_scanner(here)), tmp_path / "gate"
    Repo.work_tree(tmp_path / "far" / "one", files={"conf.py": token_line(1), "gate": f"{gate}\n"})

    def scanners(running: Running) -> list[psutil.Process]:
        return [each for each in living(tree_of(running)) if script in " ".join(each.cmdline())]

    here.extra["RESWEEP_FINDINGS__KEY_FILE"] = str(tmp_path / "findings.key")
    # On one machine they share the copy of the repository, and its lock: the other would wait for the frozen one.
    with crew(here, 2, apart=finished) as workers:
        assert here.run("discover", f"git:{tmp_path / 'far'}").code == 0
        wait_for(lambda: any(scanners(each) for each in workers.living), 90, "a scanner that runs")
        (zombie,) = [each for each in workers.living if scanners(each)]
        (other,) = [each for each in workers.living if each is not zombie]
        before = scanners(zombie)
        zombie.signal(signal.SIGSTOP)
        if finished:  # its result lies ready before anybody else starts
            gate.touch()
            wait_for(lambda: not living(before), 30, "the end of the scan")
            other.wait_for(lambda line: line.get("event") == "scanned" and line.get("claim") == 2)
        else:
            wait_for(lambda: bool(held_by(conn, uuid_of(conn, other))), 60, "the other's claim")
        zombie.signal(signal.SIGCONT)
        refused = zombie.wait_for(_first_claim("result refused, the lease was lost"))
        wait_for(lambda: not living(before), 30, "the end of the zombie's scanner")
        gate.touch()
        other.wait_for(lambda line: line.get("event") == "scanned" and line.get("claim") == 2)
        wait_for(lambda: states(conn) == {"done": 1}, 60, "done", lambda: states(conn))
        workers.stop()
        told = workers.accepted()
    wait_for(lambda: not processes_of(tmp_path), 30, "no process left", lambda: processes_of(tmp_path))
    outcomes = ask(conn, "SELECT lease_token, outcome::text FROM target_history ORDER BY 1")
    with capsys.disabled():
        print(f"\nF3 {'finished' if finished else 'running'} scan of a frozen worker: refused ({refused['ending']})")
    assert outcomes == [(1, "expired"), (2, "done")]
    assert [token for _, token in told] == [2]
    assert ask(conn, "SELECT count(*) FROM finding") == [(1,)]


def test_f3_late_results_of_any_kind_are_refused(conn: Conn, capsys: pytest.CaptureFixture[str]) -> None:
    """Claim, expire, reap, other claims; then the first one's result, before or after the other's."""
    chooser = random.Random(3)
    source_id, accepted = source(conn), 0
    for number in range(ROUNDS):
        at = day(1 + number)
        (target,) = admit(conn, source_id, [f"t{number}"], now=at)
        (old,) = take(conn, worker=WORKER, lease=timedelta(seconds=60), now=at)
        assert old.target_id == target
        late = Completion(
            target_id=target,
            lease_token=old.lease_token,
            reports=(covered(revision=b"stale"),),
            covered_revision=b"stale",
        )
        expired = at + timedelta(seconds=61 + chooser.random() * 600)
        assert reap(conn, now=expired).leases == 1
        steps = chooser.choice(["reaped", "claimed", "done"])
        if steps != "reaped":
            (new,) = take(conn, worker=OTHER, now=expired)
            assert new.lease_token == old.lease_token + 1
        if steps == "done":
            (good,) = complete(
                conn, [Completion(target_id=target, lease_token=old.lease_token + 1, reports=())], now=expired
            )
            assert good.accepted
        before = row(conn, target)
        (completed,) = complete(conn, [late], now=expired)
        (failed,) = fail(
            conn, [Failure(target_id=target, lease_token=old.lease_token, code="x", message="late")], now=expired
        )
        accepted += completed.accepted + failed.accepted
        assert row(conn, target) == before
        if steps == "claimed":
            complete(conn, [Completion(target_id=target, lease_token=old.lease_token + 1, reports=())], now=expired)
        elif steps == "reaped":
            (last,) = take(conn, worker=OTHER, now=expired)
            complete(conn, [Completion(target_id=target, lease_token=last.lease_token, reports=())], now=expired)
    stale = ask(conn, "SELECT count(*) FROM scanner_coverage WHERE revision = 'stale'::bytea")
    with capsys.disabled():
        print(f"\nF3 late results={2 * ROUNDS} accepted={accepted}")
    assert accepted == 0
    assert stale == [(0,)]
    assert claims_without_one_end(conn) == []
