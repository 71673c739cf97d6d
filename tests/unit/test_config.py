"""The settings table: what is read, what is refused and how it is said (product.md, "Configuration")."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from resweep.runner.config import Configuration, is_loopback, load
from resweep.runner.config_sources import from_spec
from resweep.schema.errors import ConfigFault
from resweep.sources.specs import parse_spec


@pytest.fixture
def read(tmp_path: Path) -> "Read":
    return Read(tmp_path)


class Read:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, text: str | bytes = "", environ: Mapping[str, str] | None = None) -> Configuration:
        path = self.folder / "resweep.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path, environ=environ or {}, cwd=self.folder)

    def fault(self, text: str | bytes = "", environ: Mapping[str, str] | None = None) -> str:
        with pytest.raises(ConfigFault) as caught:
            self(text, environ)
        return str(caught.value)


GIT = "[sources.mine]\nkind = 'git'\npaths = ['.']\n"


def test_without_a_file_everything_has_the_defaults_of_the_table(tmp_path: Path) -> None:
    made = load(None, environ={}, cwd=tmp_path)
    settings = made.settings
    assert (settings.workers.concurrency, settings.workers.lease_seconds, settings.workers.max_attempts) == (4, 60, 5)
    assert (made.sweep_seconds, settings.workers.grace_seconds, settings.workers.max_in_progress) == (10, 30, None)
    scan = settings.scan
    assert (scan.seconds, scan.memory_mb, scan.processes, scan.file_size_mb, scan.output_mb, scan.cache_gb) == (
        1800,
        2048,
        256,
        2048,
        64,
        20,
    )
    keep = settings.retention
    assert (keep.history_days, keep.cycles_days, keep.deliveries_days, keep.audit_days, keep.retired_days) == (
        365,
        90,
        30,
        730,
        None,
    )
    assert (settings.web.listen, settings.findings.allow_reveal, settings.log.level) == (
        "127.0.0.1:8780",
        False,
        "info",
    )
    assert made.sources == ()


def test_t49_t50_a_configured_source_starts_with_rescans_off_and_a_cap_of_one(read: Read) -> None:
    (source,) = read(GIT).sources
    assert not source.updated_rescan_enabled
    assert (source.updated_rescan_max_per_cycle, source.updated_rescan_cooldown_seconds) == (1, 21_600)
    assert (source.backlog_first, source.order, source.refresh_registry) == ("skip", "oldest_change", False)
    assert source.scanners == ("kingfisher",)


def test_a_spec_on_the_command_line_has_rescans_on_no_cooldown_and_a_cap_of_100_whatever_defaults_say(
    read: Read,
) -> None:
    made = read("[defaults]\nupdated_rescan_enabled = false\nupdated_rescan_max_per_cycle = 3\ninterval_seconds = 77\n")
    source = from_spec(parse_spec("git:.", cwd=read.folder), made.settings)
    assert source.updated_rescan_enabled
    assert (source.updated_rescan_max_per_cycle, source.updated_rescan_cooldown_seconds) == (100, 0)
    assert source.interval_seconds == 77
    assert source.name == f"git:{read.folder.resolve()}"


def test_folders_are_looked_at_every_10_seconds_and_addresses_every_300(read: Read) -> None:
    text = GIT + "[sources.far]\nkind = 'git'\nurls = ['https://example.org/a.git']\n"
    assert {source.name: source.interval_seconds for source in read(text).sources} == {"mine": 10, "far": 300}


def test_defaults_reach_configured_sources_and_the_sources_own_word_wins(read: Read) -> None:
    made = read("[defaults]\ninterval_seconds = 20\ntenant = 'default'\n" + GIT + "interval_seconds = 30\n")
    assert made.sources[0].interval_seconds == 30
    made = read("[defaults]\ninterval_seconds = 20\n" + GIT)
    assert made.sources[0].interval_seconds == 20
    assert made.origin(("sources", "mine", "interval_seconds")) == f"defaults.interval_seconds, {made.file}:2"


def test_the_environment_wins_over_the_file_and_a_dashed_name_is_reached_by_underscores(read: Read) -> None:
    made = read(
        "[workers]\nlease_seconds = 20\n[sources.acme-git]\nkind = 'git'\npaths = ['.']\n",
        {"RESWEEP_WORKERS__LEASE_SECONDS": "12.5", "RESWEEP_SOURCES__ACME_GIT__ENABLED": "false"},
    )
    assert made.settings.workers.lease_seconds == 12.5
    assert not made.sources[0].enabled
    assert made.origin(("workers", "lease_seconds")) == "RESWEEP_WORKERS__LEASE_SECONDS"
    assert made.origin(("sources", "acme-git", "paths")).endswith("resweep.toml:5")
    assert made.origin(("workers", "concurrency")) == "default"


def test_a_source_can_come_from_the_environment_alone(read: Read) -> None:
    made = read("", {"RESWEEP_SOURCES__NEW__KIND": "git", "RESWEEP_SOURCES__NEW__PATHS": "a, b"})
    assert [spec.path for spec in made.sources[0].specs] == [read.folder.resolve() / "a", read.folder.resolve() / "b"]


def test_lists_in_the_environment_are_json_or_have_commas(read: Read) -> None:
    for text in ("a,b", '["a", "b"]', " a , b ,"):
        made = read(GIT, {"RESWEEP_SOURCES__MINE__EXCLUDE": text})
        assert made.sources[0].exclude == ("a", "b")
    assert "RESWEEP_SOURCES__MINE__EXCLUDE is no JSON list" in read.fault(
        GIT, {"RESWEEP_SOURCES__MINE__EXCLUDE": "[oops"}
    )


def test_two_sources_whose_names_meet_in_the_environment_are_refused(read: Read) -> None:
    fault = read.fault("[sources.a-b]\nkind='git'\npaths=['.']\n[sources.a_b]\nkind='git'\npaths=['.']\n")
    assert "sources.a-b and sources.a_b have the same variables" in fault


def test_variables_of_tests_and_those_that_hold_secrets_by_name_are_known(read: Read) -> None:
    made = read(
        "[database]\nurl_env = 'RESWEEP_DSN'\n",
        {
            "RESWEEP_DSN": "postgresql://u:p@h/d",
            "RESWEEP_TEST_REQUIRE": "all",
            "RESWEEP_ENV": "x",
            "RESWEEP_CONFIG": "",
        },
    )
    assert made.database_url() == "postgresql://u:p@h/d"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[workers]\nleese_seconds = 3\n",
            "resweep.toml:2: unknown key workers.leese_seconds; did you mean lease_seconds?",
        ),
        ("lease_seconds = 3\n", "unknown key lease_seconds; it belongs to [workers]"),
        ("[worker]\nconcurrency = 3\n", "resweep.toml:1: unknown key worker; did you mean workers?"),
        ("[sources.x]\nkind = 'git'\npaths = ['.']\nintervall_seconds = 3\n", "did you mean interval_seconds?"),
        ("[sources.x]\nkind = 'gitt'\n", "resweep.toml:2: sources.x.kind = 'gitt': should be 'git', 'github'"),
        ("[sources.x]\npaths = ['.']\n", "sources.x.kind is missing"),
        ("[sources.x]\nkind = 'git'\n", "needs paths, urls or a scope"),
        ("[sources.x]\nkind = 'github'\nscope = 'org:acme'\n", "are not in this version yet"),
        ("[sources.'a b']\nkind = 'git'\n", "is no name"),
        ("[workers]\nconcurrency = true\n", "workers.concurrency = true: should be a valid integer"),
        ("[workers]\nconcurrency = '4'\n", "workers.concurrency = '4': should be a valid integer"),
        ("[workers]\nconcurrency = 0\n", "greater than or equal to 1"),
        ("[workers]\nlease_seconds = nan\n", "should be a finite number"),
        ("[workers]\nlease_seconds = inf\n", "should be a finite number"),
        ("workers = 3\n", "workers = 3: should be a table: write [workers]"),
        ("[sources]\nx = 3\n", "sources.x = 3: should be a table: write [sources.x]"),
        (GIT + "interval_seconds = 0.5\n", "should be 0 (off) or at least 1 for kind git"),
        (GIT + "scanners = []\n", "at least 1 item"),
        (
            GIT + "scanners = ['kingfish']\n",
            "names 'kingfish', which is no scanner; known are detect-secrets, gitleaks",
        ),
        (GIT + "scanners = ['kingfisher', 'kingfisher']\n", "names a scanner twice"),
        (GIT + "tenant = 'other'\n", "there is no [tenants.other]"),
        (GIT + "token_env = 'A'\ntoken_file = 'b'\n", "token_env and token_file are both set"),
        (GIT + "token = 'ghp_x'\n", "a secret does not belong into the configuration; use token_env or token_file"),
        (GIT + "refs = 'heads'\n", "should be 'heads+tags'"),
        ("[database]\nurl = 'postgresql://u:hunter2@h/d'\n", "database.url holds a password"),
        ("[database]\nurl = 'host=h password=hunter2'\n", "database.url holds a password"),
        ("[database]\nurl = 'postgresql://h/d?password=hunter2'\n", "database.url holds a password"),
        ("[database]\nurl = 'postgresql://h/d'\nurl_env = 'X'\n", "database.url and database.url_env are both set"),
        ("[database]\ndirect_url = 'postgresql://h/d'\n", "without database.url"),
        ("[database]\npassword = 'hunter2'\n", "a secret does not belong into the configuration"),
        ("[web]\nlisten = '0.0.0.0:80'\n", "nobody has to log in"),
        ("[metrics]\nlisten = '[::]:9000'\n", "nobody has to log in"),
        ("[web]\nlisten = '8780'\n", 'should be "HOST:PORT"'),
        ("[web]\nlisten = '127.0.0.1:99999'\n", 'should be "HOST:PORT"'),
        ("[web]\nrequire_login = true\n", "there is no token to log in with"),
        ("[network]\nhttps_proxy = 'socks5://x'\n", "network.https_proxy"),
        ("[retention]\nretired_days = 0\n", "greater than or equal to 1"),
        ("[log]\nlevel = 'loud'\n", "should be 'debug', 'info', 'warning' or 'error'"),
        ("[scanners.mine]\nfindings_exit_codes = [1, 300]\n", "findings_exit_codes[1] = 300: should be less than"),
        ("[sources.x]\nkind = 'git'\npaths = ['.']\napi_url = 'https://u:p@h'\n", "holds a user or password"),
        (
            "[sources.x]\nkind = 'git'\npaths = ['.']\ntoken_env = 'ghp_secret-value'\n",
            "name of an environment variable",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_place_and_what_to_write(read: Read, text: str, said: str) -> None:
    fault = read.fault(text)
    assert said in fault
    assert "hunter2" not in fault
    assert "ghp_secret-value" not in fault


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = 1\na = 2\n", "resweep.toml:2: Cannot overwrite a value"),
        (b"[a]\nb = 1\n[a]\n", "resweep.toml:3"),
        (b"x = [1,\n", "is a quote or bracket left open?"),
        (b"log = { level = yes }\n", "text needs quotes"),
        (b"\xff\xfea\x00", "is written in UTF-16; save it as UTF-8"),
        (b"# fine\nx = '\xff'\n", "resweep.toml:2: byte 0xff is not UTF-8"),
        (b"x = " + b"[" * 5000, "nests arrays or tables too deeply"),
        (b"x = " + b"9" * 5000 + b"\n", "cannot be read"),
        (b"x = 2026-02-31\n", "resweep.toml:1"),
        (b"#" * (1 << 20) + b"\n", "larger than 1 MiB"),
        (b"x = '\x00'\n", "resweep.toml:1"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(read: Read, content: bytes, said: str) -> None:
    assert said in read.fault(content)


def test_a_byte_order_mark_and_windows_line_ends_are_read(read: Read) -> None:
    made = read(b"\xef\xbb\xbf[workers]\r\nconcurrency = 7\r\n")
    assert made.settings.workers.concurrency == 7
    assert made.origin(("workers", "concurrency")).endswith(":2")


def test_a_secret_in_a_malformed_line_is_not_repeated(read: Read) -> None:
    fault = read.fault("[database]\nurl = hunter2\n")
    assert "resweep.toml:2" in fault
    assert "hunter2" not in fault


def test_a_file_that_is_named_must_be_there_and_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match="there is no configuration file"):
        load(tmp_path / "none.toml", environ={}, cwd=tmp_path)
    with pytest.raises(ConfigFault, match="there is no configuration file"):
        load(None, environ={"RESWEEP_CONFIG": "none.toml"}, cwd=tmp_path)
    with pytest.raises(ConfigFault, match="is a folder"):
        load(tmp_path, environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("RESWEEP_WORKRS__CONCURRENCY", "did you mean RESWEEP_WORKERS__CONCURRENCY?"),
        ("RESWEEP_SOURCES__MINEE__ENABLED", "did you mean RESWEEP_SOURCES__MINE__ENABLED?"),
        ("RESWEEP_WORKERS_CONCURRENCY", "did you mean RESWEEP_WORKERS__CONCURRENCY?"),
        ("RESWEEP_workers__concurrency", "is no variable of resweep"),
        ("RESWEEP_CONFG", "did you mean RESWEEP_CONFIG?"),
        ("RESWEEP_", "is no variable of resweep"),
    ],
)
def test_an_unknown_variable_is_refused_with_a_suggestion(read: Read, variable: str, said: str) -> None:
    fault = read.fault(GIT, {variable: "3"})
    assert variable in fault
    assert said in fault


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("RESWEEP_WORKERS__CONCURRENCY", "four", "RESWEEP_WORKERS__CONCURRENCY should be a whole number"),
        ("RESWEEP_WORKERS__CONCURRENCY", "0", "RESWEEP_WORKERS__CONCURRENCY: workers.concurrency = 0"),
        ("RESWEEP_FINDINGS__ALLOW_REVEAL", "maybe", "should be true or false"),
        ("RESWEEP_WORKERS__LEASE_SECONDS", "", "should be a number"),
        ("RESWEEP_LOG__LEVEL", "loud", "RESWEEP_LOG__LEVEL: log.level = 'loud'"),
    ],
)
def test_a_variable_of_the_wrong_type_is_refused(read: Read, variable: str, text: str, said: str) -> None:
    assert said in read.fault("", {variable: text})


def test_everything_wrong_is_told_at_once(read: Read) -> None:
    fault = read.fault("[workers]\nconcurrency = 0\nx = 1\n[log]\nlevel = 'loud'\n", {"RESWEEP_FOO": "1"})
    assert fault.startswith("4 things are wrong in the configuration:")


def test_relative_paths_start_at_the_file_and_never_follow_links(read: Read) -> None:
    made = read("data_dir = 'here'\n")
    assert made.data_dir == read.folder / "here"


def test_a_secret_is_read_from_its_variable_or_file_and_must_be_there(read: Read) -> None:
    made = read("", {"TOKEN": " abc \n"})
    assert made.secret(variable="TOKEN", file=None, what="x") == "abc"
    assert made.secret(variable=None, file=None, what="x") is None
    (read.folder / "token").write_text("from a file\n")
    assert made.secret(variable=None, file=Path("token"), what="x") == "from a file"
    with pytest.raises(ConfigFault, match="the variable MISSING is not set"):
        made.secret(variable="MISSING", file=None, what="sources.x")
    with pytest.raises(ConfigFault, match="cannot be read"):
        made.secret(variable=None, file=Path("nowhere"), what="sources.x")
    (read.folder / "empty").write_text(" \n")
    with pytest.raises(ConfigFault, match="is empty"):
        made.secret(variable=None, file=Path("empty"), what="sources.x")


@pytest.mark.parametrize(
    ("text", "environ", "by_command", "enabled"),
    [
        ("", {}, True, True),
        ("", {}, False, False),
        ("", {"RESWEEP_ENV": "production"}, False, True),
        ("[scheduler]\nenabled = false\n", {"RESWEEP_ENV": "production"}, True, False),
        ("[scheduler]\nenabled = false\n", {"SYNC_SCHEDULER": "1"}, False, True),
        ("[scheduler]\nenabled = true\n", {"SYNC_SCHEDULER": "0"}, True, False),
    ],
)
def test_d67_the_scheduler_is_on_in_production_and_an_environment_switch_overrides(
    read: Read, text: str, environ: dict[str, str], by_command: bool, enabled: bool
) -> None:
    assert read(text, environ).scheduler_enabled(by_command=by_command) is enabled


def test_another_value_of_the_switch_is_refused(read: Read) -> None:
    with pytest.raises(ConfigFault, match="set it to 0 or 1"):
        read("", {"SYNC_SCHEDULER": "yes"}).scheduler_enabled(by_command=True)


def test_the_sweep_is_a_sixth_of_the_lease_unless_it_is_set(read: Read) -> None:
    assert read("[workers]\nlease_seconds = 12\n").sweep_seconds == 2
    assert read("[workers]\nlease_seconds = 12\nsweep_seconds = 5\n").sweep_seconds == 5


def test_a_row_may_be_kept_for_ever(read: Read) -> None:
    assert read("[retention]\nhistory_days = 'never'\n").settings.retention.history_days is None
    assert read("", {"RESWEEP_RETENTION__HISTORY_DAYS": "never"}).settings.retention.history_days is None


@pytest.mark.parametrize(
    ("listen", "answer"),
    [
        ("127.0.0.1:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("off", True),
        ("127.8.8.8:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        ("127.0.0.1.example.org:1", False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(listen: str, answer: bool) -> None:
    assert is_loopback(listen) is answer
