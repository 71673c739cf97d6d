"""The life of findings against a dictionary: any sequence of scans of any kind, and a person between."""

from dataclasses import dataclass, field
from typing import Any

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from psycopg import Connection

from resweep.queue.findings import store
from resweep.queue.findings_reads import FindingFilter, list_findings
from resweep.queue.triage import Decision, Verdict, decide
from resweep.schema.records import Place, ScanOutcome
from tests.support.findings import add_targets, completion, finding, identity, place, report, versions

NAMES = ("one", "two", "three")
SCANNERS = ("gitleaks", "kingfisher")
RULES = {"one": "rule-a", "two": "rule-a", "three": "rule-b"}
PATHS = ("a.py", "b/c.py", "d.py")

places_of = st.frozensets(st.tuples(st.sampled_from(PATHS), st.booleans()), min_size=1, max_size=3)
found_by = st.dictionaries(st.sampled_from(NAMES), places_of, max_size=3)
outcomes = st.sampled_from(
    [ScanOutcome.FINDINGS, ScanOutcome.CLEAN, ScanOutcome.LIMITED, ScanOutcome.UNCHANGED, ScanOutcome.FAILED]
)
covered = st.sampled_from([None, frozenset({"rule-a"}), frozenset({"rule-b"})])


@dataclass
class Known:
    """What the model knows of one finding."""

    life: str = "open"
    seen: dict[str, dict[str, bool]] = field(default_factory=dict[str, dict[str, bool]])  # scanner: path: in head
    triage: str | None = None
    history: list[str] = field(default_factory=lambda: ["opened"])


class FindingsLife(RuleBasedStateMachine):
    """Two targets, two scanners, three findings."""

    conn: Connection[Any]

    def __init__(self) -> None:
        super().__init__()
        self.conn.rollback()
        for table in ("finding", "finding_place", "finding_event", "target_hot", "target", "source"):
            self.conn.execute(f"DELETE FROM {table}")
        self.model: dict[int, dict[str, Known]] = {}
        self.token = 0

    @initialize()
    def begin(self) -> None:
        self.model = {target: {} for target in add_targets(self.conn, 2)}

    @rule(
        which=st.integers(0, 1),
        scans=st.dictionaries(
            st.sampled_from(SCANNERS), st.tuples(found_by, st.booleans(), outcomes, covered), min_size=1
        ),
    )
    def scan(self, which: int, scans: dict[str, Any]) -> None:
        target = sorted(self.model)[which]
        self.token += 1
        reports = [
            report(
                *(_finding(name, places) for name, places in found.items()),
                scanner=scanner,
                complete=complete,
                outcome=outcome,
                rules=rules,
            )
            for scanner, (found, complete, outcome, rules) in scans.items()
        ]
        counts = store(self.conn, [completion(target, *reports, lease_token=self.token)])[target]
        before = {name: known.life for name, known in self.model[target].items()}
        for scanner in sorted(scans):
            self._model_scan(target, scanner, *scans[scanner])
        self._model_settle(target)
        after = {name: known.life for name, known in self.model[target].items()}
        assert counts.new_count == len(after.keys() - before.keys())
        assert counts.fixed_count == sum(life == "fixed" != before.get(name, life) for name, life in after.items())
        assert counts.reopened_count == sum(before.get(name) == "fixed" != life for name, life in after.items())
        if counts.open_count is not None:
            standing = [
                known for known in self.model[target].values() if known.life != "fixed" and known.triage is None
            ]
            assert counts.open_count == len(standing)
        self.conn.commit()
        rows = versions(self.conn)
        # The same once more, as after a commit whose answer was lost: nothing is written unless reports contradict.
        again = store(self.conn, [completion(target, *reports, lease_token=self.token)])[target]
        self.conn.commit()
        assert (again.new_count, again.fixed_count, again.reopened_count) == (0, 0, 0)
        assert versions(self.conn) == rows

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES), verdict=st.sampled_from(Verdict))
    def triage(self, which: int, name: str, verdict: Verdict) -> None:
        target = sorted(self.model)[which]
        known = self.model[target].get(name)
        if known is None:
            return
        (found,) = list_findings(
            self.conn, FindingFilter(statuses=None, target_ids=(target,), identities=(identity(name),))
        )
        changed = decide(self.conn, [found.id], Decision(verdict=verdict, by="ann", why="said so"))
        wanted = None if verdict is Verdict.OPEN else verdict.value
        assert changed == ([found.id] if wanted != known.triage else [])
        known.triage = wanted
        self.conn.commit()

    @invariant()
    def the_database_says_what_the_model_says(self) -> None:
        for target, model in self.model.items():
            rows = list_findings(self.conn, FindingFilter(statuses=None, target_ids=(target,)), places=100)
            assert {row.masked.removeprefix("AKIA… ") for row in rows} == set(model)
            for row in rows:
                known = model[row.masked.removeprefix("AKIA… ")]
                assert row.life == known.life
                assert row.status == (known.triage or known.life)
                assert set(row.seen_by) == set(known.seen)
                paths: dict[str, bool] = {}
                for seen in known.seen.values():
                    for path, in_head in seen.items():
                        paths[path] = paths.get(path, False) or in_head
                assert {each.path: each.in_head for each in row.places} == paths
                assert row.place_count == sum(len(seen) for seen in known.seen.values())
                assert row.head_count == sum(sum(seen.values()) for seen in known.seen.values())

    @invariant()
    def every_turn_of_life_is_recorded(self) -> None:
        rows = self.conn.execute(
            """
            SELECT f.target_id, f.masked, array_agg(e.kind ORDER BY e.id) FROM finding AS f
            JOIN finding_event AS e ON e.finding_id = f.id
            WHERE e.kind IN ('opened', 'fixed', 'reopened') GROUP BY f.id
            """
        ).fetchall()
        recorded = {(target, masked.removeprefix("AKIA… ")): kinds for target, masked, kinds in rows}
        assert recorded == {
            (target, name): known.history for target, model in self.model.items() for name, known in model.items()
        }

    def teardown(self) -> None:
        self.conn.rollback()

    def _model_scan(
        self, target: int, scanner: str, found: dict[str, Any], complete: bool, outcome: ScanOutcome, rules: Any
    ) -> None:
        if outcome in (ScanOutcome.UNCHANGED, ScanOutcome.FAILED):
            return
        whole = complete and outcome is not ScanOutcome.LIMITED
        model = self.model[target]
        for name, places in found.items():
            known = model.setdefault(name, Known())
            mine = {} if whole else dict(known.seen.get(scanner, {}))
            heads: dict[str, bool] = {}
            for path, in_head in places:
                heads[path] = heads.get(path, False) or in_head
            known.seen[scanner] = {**mine, **heads}
        if whole:
            for name, known in model.items():
                if name not in found and (rules is None or RULES[name] in rules):
                    known.seen.pop(scanner, None)

    def _model_settle(self, target: int) -> None:
        for known in self.model[target].values():
            if known.life == "fixed" and known.seen:
                known.life = "reopened"
                known.history.append("reopened")
            elif known.life != "fixed" and not known.seen:
                known.life = "fixed"
                known.history.append("fixed")


def _finding(name: str, places: frozenset[tuple[str, bool]]) -> Any:
    return finding(name, *(_place(path, in_head) for path, in_head in sorted(places)), rule=RULES[name])


def _place(path: str, in_head: bool) -> Place:
    return place(path, in_head=in_head)


def test_any_sequence_of_scans_and_decisions_agrees_with_the_model(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:

        class Bound(FindingsLife):
            pass

        Bound.conn = conn
        run_state_machine_as_test(
            Bound,
            settings=settings(
                max_examples=40,
                stateful_step_count=15,
                deadline=None,
                # Without shrinking, which goes on for minutes against a real database and would meet the run's timeout.
                phases=(Phase.explicit, Phase.generate),
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
