"""F7: targets whose scan kills the worker that scans them, among good ones (promise 6).

Each is tried exactly ``max_attempts`` times and then fails with ``lease_expired``; every good one is done.
"""

from pathlib import Path

import pytest

from tests.support.faults import ask, claims_without_one_end, crew, processes_of, states, use_scripted_scanner, wait_for
from tests.support.processes import token_line
from tests.support.queue import Conn
from tests.support.repositories import Repo
from tests.support.runtime import deployment

GOOD, POISON, WORKERS, ATTEMPTS = 40, 5, 3, 5
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900), pytest.mark.xdist_group("killed workers")]


@pytest.mark.parametrize("slots", [1])  # with more, neighbours in one process share its death: docs/reliability.md
def test_f7_targets_that_kill_their_worker_stop_no_other_and_fail_after_their_attempts(
    slots: int, conn: Conn, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = deployment(
        tmp_path,
        database_url,
        RESWEEP_WORKERS__CONCURRENCY=str(slots),
        RESWEEP_WORKERS__LEASE_SECONDS="4",
        RESWEEP_WORKERS__SWEEP_SECONDS="1",
        RESWEEP_WORKERS__MAX_ATTEMPTS=str(ATTEMPTS),
    )
    use_scripted_scanner(here)
    names = [f"good{number}" for number in range(GOOD)]
    for number in range(POISON):  # spread over the listing, so that each has good neighbours
        names.insert(number * 9 + 2, f"poison{number}")
    for place, name in enumerate(names):
        files = {"conf.py": token_line(place)} | ({"poison": "yes\n"} if name.startswith("poison") else {})
        Repo.work_tree(tmp_path / "far" / f"{place:02d}-{name}", files=files)
    assert here.run("discover", f"git:{tmp_path / 'far'}").code == 0
    deaths = 0
    with crew(here, WORKERS) as workers:

        def settled() -> bool:
            nonlocal deaths
            for running in workers.dead():
                workers.bury(running)
                deaths += 1
                workers.start()
            found = states(conn)
            return found.get("done", 0) + found.get("failed", 0) == GOOD + POISON

        wait_for(settled, 600, "everything settled", lambda: states(conn))
        wait_for(lambda: settled() and len(workers.ready()) == WORKERS, 180, "workers that are ready")
        workers.stop()
    wait_for(lambda: not processes_of(tmp_path), 30, "no process left", lambda: processes_of(tmp_path))
    rows = ask(
        conn,
        "SELECT t.display_name, h.state::text, t.last_error_code, h.lease_token FROM target_hot h"
        " JOIN target t ON t.id = h.id ORDER BY 1",
    )
    poisoned = [row for row in rows if "poison" in str(row[0])]
    good = [row for row in rows if "poison" not in str(row[0])]
    hit = sum(row[3] - 1 for row in good)
    with capsys.disabled():
        print(
            f"\nF7 slots={slots} good done={sum(row[1] == 'done' for row in good)}/{GOOD} poison failed="
            f"{sum(row[1] == 'failed' for row in poisoned)}/{POISON} claims of each={[row[3] for row in poisoned]}"
            f" workers killed={deaths} good scans lost with a worker={hit}"
        )
    assert [row[1:] for row in poisoned] == [("failed", "lease_expired", ATTEMPTS)] * POISON
    assert [row for row in good if row[1] != "done"] == []
    assert ask(conn, "SELECT count(*) FROM finding") == [(GOOD,)]
    assert claims_without_one_end(conn) == []
    assert deaths <= POISON * ATTEMPTS
