"""``python -m benchmarks``: measures the figures, prints a table, writes a result file.

Run from the repository root with the product installed. Examples::

    python -m benchmarks --quick
    python -m benchmarks --only 4,5 --repetitions 7
    python -m benchmarks --only 6 --peers          # installs the peers into a throw-away environment
    python -m benchmarks --only 11,12 --corpus ~/.cache/resweep-corpus
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from . import drain, held, intake, scale, sweep
from .measure import Result
from .run import Run
from .server import server

_RESULTS = Path(__file__).parent / "results"
_GROUPS = (
    (intake.FIGURES, intake.measure),
    (drain.FIGURES, drain.measure),
    (scale.FIGURES, scale.measure),
    (held.FIGURES, held.measure),
    (sweep.FIGURES, sweep.measure),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 1 when a figure lies below its floor."""
    asked = _parser().parse_args(arguments)
    only = frozenset(asked.only.split(",")) if asked.only else frozenset(str(number) for number in range(1, 14))
    asked.data_dir.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    with server(asked.data_dir / "postgres", asked.database_url) as reached:
        run = Run(
            server=reached,
            only=only,
            quick=asked.quick,
            rows=asked.rows,
            repetitions=asked.repetitions or (3 if asked.quick else 5),
            peers=asked.peers,
            corpus=asked.corpus or asked.data_dir / "sdists",
            repositories=asked.repositories,
            work=asked.data_dir,
            keep=asked.keep,
        )
        for figures, measure in _GROUPS:
            if only & figures:
                for result in measure(run):
                    _show(result)
                    results.append(result)
        version = reached.version
    _write(asked.json or _RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json", results, version, sys.argv[1:])
    return 1 if any(result.verdict == "BELOW" for result in results) else 0


def _show(result: Result) -> None:
    sign = "≥" if result.more_is_better else "≤"
    print(
        f"{result.number:>4}  {result.what:<62} {result.value:>12,.4g} {result.unit:<6}"
        f" floor {sign} {result.floor:<6g} goal {sign} {result.goal:<6g} {result.verdict}",
        flush=True,
    )
    for name, value in result.detail.items():
        shown = f"{value:,.4g}" if isinstance(value, float) else value
        print(f"        {name}: {shown}", flush=True)


def _write(path: Path, results: Sequence[Result], version: str, arguments: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "schema": 1,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": list(arguments),
        "postgresql": version,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "results": [asdict(result) | {"verdict": result.verdict} for result in results],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(f"written: {path}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure the figures of docs/performance.md."
    )
    parser.add_argument("--only", help="figure numbers, comma separated (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rows, three repetitions: a smoke test, no figures"
    )
    parser.add_argument("--rows", type=int, default=0, help="targets in the table of figures 1-7 (default 1,000,000)")
    parser.add_argument("--repetitions", type=int, default=0, help="interleaved repetitions (default 5)")
    parser.add_argument("--peers", action="store_true", help="also run pgqueuer and procrastinate, installed on demand")
    parser.add_argument("--database-url", help="measure this PostgreSQL 15-18 (superuser; pg_stat_statements loaded)")
    # A choice of a person's; nothing secret lies there.
    place = Path("/tmp/resweep-bench")  # noqa: S108 - as above
    parser.add_argument("--data-dir", type=Path, default=place, help="where the server's files lie")
    parser.add_argument("--corpus", type=Path, help="folder of source distributions for figures 11 and 12")
    parser.add_argument("--repositories", type=int, default=200, help="repositories for figures 11 and 12")
    parser.add_argument("--keep", action="store_true", help="keep the large tables of figures 8, 9 for the next run")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/TIME.json)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
