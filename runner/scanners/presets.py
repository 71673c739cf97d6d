"""Commands of well-known scanners, ready to be named in ``scanners``.

Not run here: none of these programs can be had where this was written. Command lines and reports are as their
projects document them; the readers are tested on small samples made by hand. The canary at the start tells at once
when one of them does not fit the installed version.
"""

from . import severity
from .base import Needs, RawFinding
from .custom import CommandSpec, Format
from .jsonl import Item, number, object_id, part


def _gitleaks(item: Item) -> RawFinding | None:
    rule = str(item["RuleID"])
    return RawFinding(
        rule=rule,
        rule_name=str(item.get("Description") or rule),
        severity=severity.of_secret(rule, ""),
        confidence="",
        secret=str(item["Secret"]).encode("utf-8", "surrogatepass"),
        path=str(item["File"]).encode("utf-8", "surrogatepass"),
        line=number(item.get("StartLine")),
        column=number(item.get("StartColumn")),
        commit=object_id(item.get("Commit")),
    )


def _trufflehog(item: Item) -> RawFinding | None:
    if "DetectorName" not in item:  # a line of its log
        return None
    data = part(part(item, "SourceMetadata"), "Data")
    place = part(data, "Git") or part(data, "Filesystem")
    rule = str(item["DetectorName"])
    return RawFinding(
        rule=f"trufflehog.{rule}",
        rule_name=rule,
        severity="critical" if item.get("Verified") else severity.of_secret(rule, "medium"),
        confidence="high" if item.get("Verified") else "medium",
        secret=str(item.get("RawV2") or item["Raw"]).encode("utf-8", "surrogatepass"),
        path=str(place.get("file") or "").encode("utf-8", "surrogatepass"),
        line=number(place.get("line")),
        column=None,
        commit=object_id(place.get("commit")),
    )


PRESETS: dict[str, CommandSpec] = {
    spec.name: spec
    for spec in (
        CommandSpec(
            name="gitleaks",
            command=(
                "gitleaks",
                "git",
                "--no-banner",
                "--no-color",
                "--log-opts=--all",
                "--report-format=json",
                "--report-path={report}",
                "--exit-code=42",
                "{repository}",
            ),
            since_command=(
                "gitleaks",
                "git",
                "--no-banner",
                "--no-color",
                "--log-opts=--all ^{since}",
                "--report-format=json",
                "--report-path={report}",
                "--exit-code=42",
                "{repository}",
            ),
            format=Format.JSONL,
            needs=Needs.REPOSITORY,
            findings_exit_codes=frozenset({42}),  # 1 is its code for any error
            version_command=("gitleaks", "version"),
            convert=_gitleaks,
        ),
        CommandSpec(
            name="trufflehog",
            command=(
                "trufflehog",
                "git",
                "file://{repository}",
                "--bare",
                "--no-update",
                "--no-verification",
                "--json",
                "--fail",
            ),
            since_command=(
                "trufflehog",
                "git",
                "file://{repository}",
                "--bare",
                "--no-update",
                "--no-verification",
                "--json",
                "--fail",
                "--since-commit={since}",
            ),
            format=Format.JSONL,
            needs=Needs.REPOSITORY,
            findings_exit_codes=frozenset({183}),
            version_command=("trufflehog", "--version"),
            convert=_trufflehog,
        ),
        CommandSpec(
            name="semgrep",
            command=(
                "semgrep",
                "scan",
                "--config=p/secrets",
                "--metrics=off",
                "--disable-version-check",
                "--no-git-ignore",
                "--sarif",
                "--output={report}",
                "{checkout}",
            ),
            format=Format.SARIF,
            needs=Needs.CHECKOUT,
            version_command=("semgrep", "--version"),
        ),
        CommandSpec(
            name="trivy",
            command=(
                "trivy",
                "filesystem",
                "--scanners=secret,misconfig",
                "--offline-scan",
                "--skip-version-check",
                "--format=sarif",
                "--output={report}",
                "{checkout}",
            ),
            format=Format.SARIF,
            needs=Needs.CHECKOUT,
            version_command=("trivy", "--version"),
        ),
    )
}
"""By name. A section ``[scanners.NAME]`` of that name changes single settings of it."""
