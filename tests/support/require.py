"""Parts of the tests that need more than Python and git: skipped by name on a small machine, else failures.

``need("pgbouncer")`` stands at the top of a test (or fixture) that starts it. ``RESWEEP_TEST_REQUIRE=all`` says that
this machine has everything; then no test may be skipped for any reason but that it does not apply to the platform.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

NOT_RUN = "not run: "
"""How a reason begins that the closing summary counts."""
DOES_NOT_APPLY = "does not apply: "
"""How a reason begins that is in order everywhere, as on another operating system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something a test may need: how it is found and where it comes from."""

    find: Callable[[], str | None]
    """Where it is, or ``None``."""
    comes_from: str
    """What a person does to have it."""


def _on_path(*names: str) -> Callable[[], str | None]:
    def find() -> str | None:
        for name in names:
            places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")
            found = shutil.which(name, path=os.pathsep.join(places))
            if found is not None:
                return found
        return None

    return find


def _first_file(*places: str) -> Callable[[], str | None]:
    def find() -> str | None:
        for place in places:
            for path in sorted(Path("/").glob(place.lstrip("/"))):
                if path.exists():
                    return str(path)
        return None

    return find


def _older_server() -> str | None:
    return os.environ.get("RESWEEP_TEST_OLDER_DATABASE_URL") or _first_file("/usr/lib/postgresql/15/bin/initdb")()


PARTS: Mapping[str, Part] = {
    "pgbouncer": Part(find=_on_path("pgbouncer"), comes_from="Debian's package pgbouncer"),
    "libfaketime": Part(
        find=_first_file("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1"),
        comes_from="Debian's package libfaketime",
    ),
    "postgresql-15": Part(find=_older_server, comes_from="Debian 12's package postgresql-15"),
    "shellcheck": Part(find=_on_path("shellcheck"), comes_from="requirements-dev.txt, or Debian's package shellcheck"),
    "docker": Part(find=_on_path("dockerd"), comes_from="Debian's package docker.io"),
    "git-http-backend": Part(
        find=_first_file("/usr/lib/git-core/git-http-backend", "/usr/libexec/git-core/git-http-backend"),
        comes_from="git itself, whole",
    ),
    "git-daemon": Part(
        find=_first_file("/usr/lib/git-core/git-daemon", "/usr/libexec/git-core/git-daemon"),
        comes_from="git itself, whole",
    ),
}
"""Everything a test may ask for; a name that is missing here is a mistake in the test."""


def required() -> bool:
    """Whether this run promises to have everything."""
    return os.environ.get("RESWEEP_TEST_REQUIRE", "") == "all"


def need(name: str) -> str:
    """Return where the part ``name`` is; without it skip the test by name, or fail it where everything is required."""
    part = PARTS[name]
    found = part.find()
    if found is None:
        missing(name, f"comes with {part.comes_from}")
    return found


def missing(name: str, why: str) -> NoReturn:
    """End the test because ``name`` can't be had: a skip, or a failure where everything is required."""
    reason = f"{NOT_RUN}{name} ({why})"
    if required():
        pytest.fail(f"RESWEEP_TEST_REQUIRE=all, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn every skip into a failure where everything is required, so that none can hide one."""
    report = yield
    if report.skipped and required() and not hasattr(report, "wasxfail"):
        reason = _reason(report)
        if not reason.startswith(DOES_NOT_APPLY):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, but RESWEEP_TEST_REQUIRE=all: {reason}"
    del call
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the parts that were not run, with how many tests each."""
    parts = Counter[str]()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = _reason(report)
        if reason.startswith(NOT_RUN):
            parts[reason.removeprefix(NOT_RUN)] += 1
    if parts:
        terminalreporter.section("parts not run on this machine")
        for name, count in sorted(parts.items()):
            terminalreporter.write_line(f"{name}: {count} test{'s' if count > 1 else ''}")


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)
