"""Find a secret again in the blob where it was found: for the one person who has to see it, once.

The database knows only a keyed hash, so the text is cut in every way around the place until one way gives that hash.
When none does (the scanner had decoded or joined it), the line is shown as it stands.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...schema.errors import ResweepError
from ...sources.gitcommand import GitCommand
from ..scanners.checkout import CheckoutCache

BLOB_LIMIT_BYTES = 64 << 20
_LINE_LIMIT = 600  # of one line every piece is tried
_SPAN_LIMIT = 8_192  # of several lines only pieces that begin at the column
_SLACK = 2  # scanners count columns from 0 or from 1


class NotRevealed(ResweepError):
    """The secret cannot be shown: the place is gone, or the copy of the repository no longer holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """What to show: the secret itself, proven by its identity, or else the line where it stands."""

    text: bytes
    proven: bool


def reveal(content: bytes, *, line: int | None, column: int | None, matches: Callable[[bytes], bool]) -> Revealed:
    """Find the secret at a place of a blob. Raises ``NotRevealed`` when the blob has no such line."""
    lines = [each + b"\n" for each in content.split(b"\n")]
    if line is None or not 1 <= line <= len(lines):
        message = f"the file has {len(lines)} lines and none that is number {line}; scan the repository again"
        raise NotRevealed(message)
    text = lines[line - 1].rstrip(b"\r\n")
    begin = max(0, (column or 1) - 1)
    window = text[max(0, begin - _SLACK) : begin + _LINE_LIMIT] if len(text) > _LINE_LIMIT else text
    for start in range(len(window)):
        for end in range(len(window), start, -1):
            if matches(window[start:end]):
                return Revealed(text=window[start:end], proven=True)
    rest = b"".join(lines[line - 1 :])[: begin + _SPAN_LIMIT]
    for start in range(max(0, begin - _SLACK), min(begin + _SLACK, len(rest)) + 1):
        for end in range(len(text), len(rest) + 1):
            if matches(rest[start:end]):
                return Revealed(text=rest[start:end], proven=True)
    return Revealed(text=text, proven=False)


def read_blob(cache: CheckoutCache, git: GitCommand, *, address: str, kind: str, blob: str) -> bytes:
    """Read a blob from the checkout cache, bringing the copy up to date first.

    Raises ``NotRevealed`` when the copy does not hold it, and what ``CheckoutCache.hold`` raises.
    """
    with cache.hold(address, kind) as repository:
        result = git.run(
            ["cat-file", "blob", blob], git_dir=repository.path, seconds=60.0, output_limit_bytes=BLOB_LIMIT_BYTES
        )
    if result.exit_code != 0 or result.truncated:
        message = f"blob {blob} is no longer in the repository (rewritten, or larger than can be shown); scan it again"
        raise NotRevealed(message)
    return result.stdout
