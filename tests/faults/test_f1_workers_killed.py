"""F1 and F4: workers with real scanner children are killed (kill -9) at random, and their targets taken up again.

Promises 1 to 4: nothing is lost, nothing is accepted twice, nothing is left behind, and a dead worker's target is
claimable within lease and sweep. ``RESWEEP_TEST_KILLS`` sets another number of kills.
"""

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest

from resweep.queue.requests import request
from tests.support.faults import (
    Crew,
    ask,
    claims_without_one_end,
    clock,
    crew,
    held_by,
    leftovers,
    living,
    processes_of,
    share,
    states,
    tree_of,
    uuid_of,
    wait_for,
)
from tests.support.processes import token_line
from tests.support.queue import Conn
from tests.support.repositories import Repo
from tests.support.runtime import Deployment, Running, deployment

KILLS = int(os.environ.get("RESWEEP_TEST_KILLS", "60"))
RECLAIMS = 6
REPOSITORIES = 10
WORKERS = 3
LEASE, SWEEP = 5.0, 1.0
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600 + 20 * KILLS), pytest.mark.xdist_group("killed workers")]


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> Deployment:
    (tmp_path / "temporary").mkdir()
    return deployment(
        tmp_path,
        database_url,
        RESWEEP_WORKERS__CONCURRENCY="1",
        RESWEEP_WORKERS__LEASE_SECONDS=str(LEASE),
        RESWEEP_WORKERS__SWEEP_SECONDS=str(SWEEP),
        RESWEEP_WORKERS__MAX_ATTEMPTS="100",  # which kills hit whom is chance; F7 is about attempts
        RESWEEP_LOG__LEVEL="debug",
        TMPDIR=str(tmp_path / "temporary"),
    )


class Pushes:
    """Repositories with one secret more at every push; each push is followed by a request, as a webhook would make."""

    def __init__(self, folder: Path, conn: Conn) -> None:
        self._conn = conn
        self.repos = [Repo.work_tree(folder / f"r{number}") for number in range(REPOSITORIES)]
        self.secrets = [0] * REPOSITORIES
        for number in range(REPOSITORIES):
            self._commit(number)

    def _commit(self, number: int) -> None:
        count = self.secrets[number]
        self.repos[number].commit({f"conf{count}.py": token_line(1000 * number + count)})
        self.secrets[number] += 1

    def push(self, numbers: list[int]) -> None:
        """Push to these, and ask for their scans."""
        for number in numbers:
            self._commit(number)
        rows = ask(self._conn, "SELECT id, normalized_target FROM target")
        ids = {str(name).rpartition("/")[2]: target for target, name in rows}
        answers = request(self._conn, [ids[f"r{number}"] for number in numbers])
        self._conn.commit()
        assert all(answer.accepted for answer in answers)

    def found(self) -> dict[str, int]:
        """Findings in the database, by repository."""
        query = (
            "SELECT t.normalized_target, count(f.id) FROM target t LEFT JOIN finding f ON f.target_id = t.id GROUP BY 1"
        )
        return {str(name).rpartition("/")[2]: count for name, count in ask(self._conn, query)}

    def wanted(self) -> dict[str, int]:
        """One finding for each secret that was ever pushed."""
        return {f"r{number}": count for number, count in enumerate(self.secrets)}


def all_done(conn: Conn) -> bool:
    return states(conn) == {"done": REPOSITORIES}


def busy(conn: Conn, workers: Crew) -> list[Running]:
    """Those that hold a lease now."""
    return [each for each in workers.ready() if held_by(conn, uuid_of(conn, each))]


def _ended(conn: Conn, query: str, target: int, claim: int) -> bool:
    return bool(ask(conn, query, target, claim))


def test_f1_sixty_killed_workers_lose_nothing_repeat_nothing_and_leave_nothing(
    here: Deployment, conn: Conn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chooser = random.Random(20261201)
    pushes = Pushes(tmp_path / "far", conn)
    assert here.run("discover", f"git:{tmp_path / 'far'}").code == 0
    killed: list[tuple[list[tuple[int, int]], float]] = []
    deaths: dict[tuple[int, int], object] = {}
    with crew(here, WORKERS) as workers:
        began = time.monotonic()
        for _ in range(KILLS):
            pushes.push(chooser.sample(range(REPOSITORIES), 3))
            wait_for(lambda: bool(busy(conn, workers)), 120, "a worker that holds a lease")
            time.sleep(chooser.uniform(0.0, 0.5))
            victim = chooser.choice(workers.ready())
            worker, tree = uuid_of(conn, victim), tree_of(victim)
            moment = clock(conn)
            workers.kill(victim)
            dead_at = time.monotonic()
            held = held_by(conn, worker)
            deaths |= dict.fromkeys(held, moment)
            assert len(held) <= 1
            wait_for(lambda tree=tree: not living(tree), 20, "the end of the tree")  # type: ignore[misc]
            killed.append((held, time.monotonic() - dead_at))
            workers.start()
        took = time.monotonic() - began
        wait_for(lambda: all_done(conn), 180, "everything done", lambda: states(conn))
        workers.stop()
        told = workers.accepted()
    with here.started("work") as last:  # whatever a killed worker left is removed by the next start, at the latest
        last.wait_ready(180)
        assert last.stop() == 0
    wait_for(lambda: not processes_of(tmp_path), 30, "no process left", lambda: processes_of(tmp_path))
    left = leftovers(here, tmp_path / "temporary")

    done = {
        (row[0], row[1])
        for row in ask(conn, "SELECT target_id, lease_token FROM target_history WHERE outcome = 'done'")
    }
    expired = ask(conn, "SELECT target_id, lease_token, finished_at FROM target_history WHERE outcome = 'expired'")
    twice = ask(conn, "SELECT target_id, identity FROM finding GROUP BY 1, 2 HAVING count(*) > 1")
    lost = sum(pushes.wanted().values()) - sum(pushes.found().values())
    waits = [(at - deaths[target, claim]).total_seconds() for target, claim, at in expired if (target, claim) in deaths]
    with capsys.disabled():
        print(
            f"\nF1 kills={KILLS} holding a lease={sum(bool(held) for held, _ in killed)} in {took:.0f} s;"
            f" pushed secrets={sum(pushes.secrets)} lost={lost} accepted={len(done)}"
            f" accepted twice={len(told) - len(set(told))} duplicate findings={len(twice)}"
            f" duplicate executions={len(expired)} orphan processes=0 (slowest end of a tree"
            f" {max(seconds for _, seconds in killed):.2f} s) files left={len(left)}"
            f"\nF4 kill to claimable, lease {LEASE:g} s, sweep {SWEEP:g} s: n={len(waits)} p50={share(waits, 0.5):.2f}"
            f" p99={share(waits, 0.99):.2f} max={max(waits):.2f} s"
        )
    assert pushes.found() == pushes.wanted()
    assert claims_without_one_end(conn) == []
    assert len(told) == len(set(told))
    assert set(told) - done == set()
    assert twice == []
    assert len(expired) <= KILLS
    assert left == []
    assert max(waits) <= LEASE + SWEEP + 1.0


def test_f4_an_idle_worker_takes_a_dead_ones_target_up_within_lease_and_sweep(
    here: Deployment, conn: Conn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next claim itself, with a worker that has nothing else to do: asleep on LISTEN and its slow poll."""
    pushes = Pushes(tmp_path / "far", conn)
    assert here.run("discover", f"git:{tmp_path / 'far'}").code == 0
    waits: list[float] = []
    with crew(here, 2) as workers:
        for number in range(RECLAIMS):
            workers.wait_ready(2)
            wait_for(lambda: all_done(conn), 120, "everything done", lambda: states(conn))
            time.sleep(0.3)  # the other one is asleep by now
            pushes.push([number])
            wait_for(lambda: bool(busy(conn, workers)), 60, "a worker that holds a lease")
            (victim, *_) = busy(conn, workers) or workers.ready()
            worker, moment = uuid_of(conn, victim), clock(conn)
            workers.kill(victim)
            held = held_by(conn, worker)
            workers.start()
            for target, claim in held:
                query = "SELECT claimed_at FROM target_history WHERE target_id = %s AND lease_token = %s"
                wait_for(partial(_ended, conn, query, target, claim + 1), 120, "the next claim's end")
                waits.append((ask(conn, query, target, claim + 1)[0][0] - moment).total_seconds())
        wait_for(lambda: all_done(conn), 120, "everything done", lambda: states(conn))
        workers.stop()
    with capsys.disabled():
        print(
            f"\nF4 kill to the next claim, lease {LEASE:g} s, sweep {SWEEP:g} s: n={len(waits)}"
            f" p50={share(waits, 0.5):.2f} p99={share(waits, 0.99):.2f} max={max(waits):.2f} s"
        )
    assert len(waits) >= RECLAIMS // 2
    assert max(waits) <= LEASE + SWEEP + 1.0
    assert pushes.found() == pushes.wanted()
