"""Logs: JSON lines unless a terminal, each with its target, claim and cycle where known, never with a secret.

Secrets that this process was given are taken out by value, whatever field or exception text they stand in; everything
foreign is made harmless for a terminal.
"""

import logging
import sys
import threading
from collections.abc import Iterable, MutableMapping
from typing import Any, TextIO

import structlog

from ..schema.text import display
from .scanners.identity import redact

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_COLOURS = {"debug": "2", "info": "", "warning": "33", "error": "31;1"}
# What these say at lower levels the runtime says itself, once (``DatabaseAway``), or nobody needs.
_QUIET = ("httpx2", "uvicorn", "uvicorn.error", "uvicorn.access", "psycopg.pool", "psycopg", "asyncio")
_TEXT_LIMIT = 2000

Event = MutableMapping[str, Any]


class Redaction:
    """Takes known secrets out of every field of a log line."""

    def __init__(self) -> None:
        """Knows none yet."""
        self._values: tuple[bytes, ...] = ()
        self._lock = threading.Lock()

    def add(self, values: Iterable[str | None]) -> None:
        """Learn secrets."""
        fresh = {value.encode() for value in values if value}
        with self._lock:
            self._values = tuple(sorted({*self._values, *fresh}))

    def __call__(self, _logger: Any, _name: str, event: Event) -> Event:
        """Clean one line; structlog's processor."""
        for key, value in event.items():
            if isinstance(value, str):
                event[key] = self.text(value)
            elif not isinstance(value, (int, float, bool, type(None))):
                event[key] = self.text(str(value))
        return event

    def text(self, text: str) -> str:
        """One text without secrets."""
        values = self._values
        if not values:
            return text
        return redact(text, values)


REDACTION = Redaction()


def set_up(*, level: str, form: str | None, stream: TextIO | None = None) -> None:
    """Send structlog and the standard library's logging to ``stream`` (stderr). ``form`` None: by the stream."""
    out = stream if stream is not None else sys.stderr
    json_lines = form == "json" or (form is None and not out.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        REDACTION,
    ]
    render: Any = structlog.processors.JSONRenderer(sort_keys=False) if json_lines else _Lines(colour=_colour(out))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render]
        )
    )
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)


def logger() -> Any:
    """A structlog logger of this package."""
    return structlog.get_logger("resweep")


def _colour(stream: TextIO) -> bool:
    from .cli.paint import colourful  # noqa: PLC0415 - the frame decides for the whole program

    return colourful(stream)


class _Lines:
    """One readable line: time, level when it is worth saying, what, and the rest as ``key=value``."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, _logger: Any, _name: str, event: Event) -> str:
        at = str(event.pop("at", ""))[11:19]
        level = str(event.pop("level", "info"))
        what = display(str(event.pop("event", "")), _TEXT_LIMIT)
        trace = event.pop("exception", None)
        event.pop("logger", None)
        rest = "  ".join(f"{key}={_word(value)}" for key, value in event.items())
        word = "" if level == "info" else f"{level}: "
        line = f"{self._paint('2', at)} {self._paint(_COLOURS.get(level, ''), word + what)}"
        if rest:
            line += f"  {self._paint('2', rest)}"
        if trace:
            line += "\n" + "\n".join(display(part) for part in str(trace).splitlines())
        return line

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code and text else text


def _word(value: Any) -> str:
    text = display(value if isinstance(value, str) else str(value), _TEXT_LIMIT)
    return repr(text) if " " in text or not text else text
