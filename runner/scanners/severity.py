"""How bad a finding is, where the scanner says it in its own words or not at all."""

import re

SEVERITIES = ("critical", "high", "medium", "low", "info")

# What opens a whole account or a whole system by itself, whatever the scanner's own confidence.
_CRITICAL = re.compile(
    r"private[-_ .]?key|aws[-_.](access|secret)|gcp[-_.]?service|service[-_.]account|azure[-_.](storage|client)|"
    r"github[-_.](pat|token|app|fine)|gitlab[-_.](pat|token)|pypi|npm[-_.](access|token)|stripe.*(live|secret)|vault",
    re.IGNORECASE,
)
_SARIF_LEVELS = {"error": "high", "warning": "medium", "note": "low", "none": "info"}
_WORDS = {
    "critical": "critical",
    "blocker": "critical",
    "high": "high",
    "error": "high",
    "major": "high",
    "moderate": "medium",
    "medium": "medium",
    "warning": "medium",
    "unknown": "medium",
    "minor": "low",
    "low": "low",
    "note": "low",
    "info": "info",
    "informational": "info",
    "none": "info",
}


def of_secret(rule: str, confidence: str) -> str:
    """Severity of a leaked secret: by what it opens, else by how sure the scanner is."""
    if confidence != "low" and _CRITICAL.search(rule):
        return "critical"
    return {"high": "high", "medium": "medium", "low": "low"}.get(confidence, "medium")


def of_word(word: object) -> str | None:
    """Severity from a scanner's own word (``HIGH``, ``warning``, …), None when it is not known."""
    return _WORDS.get(word.strip().casefold()) if isinstance(word, str) else None


def of_score(score: object) -> str | None:
    """Severity from SARIF's ``security-severity`` (0 to 10, as GitHub reads it), None when it is no number."""
    try:
        value = float(str(score))
    except ValueError:
        return None
    if not 0.0 <= value <= 10.0:  # noqa: PLR2004 - the scale of the property; also refuses NaN
        return None
    for bound, severity in ((9.0, "critical"), (7.0, "high"), (4.0, "medium")):
        if value >= bound:
            return severity
    return "low" if value > 0 else "info"


def of_sarif_level(level: object) -> str:
    """Severity from a SARIF level; absent or unknown means ``warning``, as the standard says."""
    return _SARIF_LEVELS.get(level, "medium") if isinstance(level, str) else "medium"
