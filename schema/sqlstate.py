"""Reads what an error of the database means: may the same work succeed when tried again, and is its outcome known?

An allow-list, never "any OperationalError": errors without a SQLSTATE (NUL in text, too many parameters) would be
tried for ever (reliability section 6, "Python").
"""

import psycopg
from psycopg_pool import PoolTimeout

from .errors import DatabaseUnavailable

_CLASSES = ("08", "53")
_STATES = frozenset({"40001", "40P01", "55P03", "25006", "57P01", "57P02", "57P03", "57P04", "57P05"})
# After these the connection must not be used again: the server is going away, or has become a standby (row 46).
_CLOSING_STATES = frozenset({"25006", "57P01", "57P02", "57P03", "57P04", "57P05"})
# How libpq and psycopg say, without a SQLSTATE, that the link is gone.
_LOST = (
    "connection is closed",
    "connection is lost",
    "connection was lost",
    "server closed the connection",
    "consuming input failed",
    "sending query failed",
    "could not receive data from server",
    "could not send data to server",
    "flushing failed",
)
_NOT_MADE = ("connection failed", "connection is bad", "could not connect", "connection timeout", "connection refused")
# A server that refuses a new connection for now; every other FATAL answer (password, no such database) stays.
_NOT_YET = (
    "the database system is",
    "too many",
    "connection slots",
    "terminating connection",
    "canceling authentication",
    "session is read-only",
    "session is not read-only",
)


def retryable(error: BaseException) -> bool:
    """Tell whether the same work may succeed when it is tried again: an allow-list of SQLSTATEs, or a lost link."""
    if isinstance(error, DatabaseUnavailable):
        cause = error.__cause__
        return retryable(cause) if isinstance(cause, psycopg.Error) else True
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return False
    state = error.sqlstate
    if state is not None:
        return state in _STATES or state[:2] in _CLASSES
    text = str(error).lower()
    if any(words in text for words in _LOST):
        return True
    if isinstance(error, psycopg.errors.ConnectionTimeout) or any(words in text for words in _NOT_MADE):
        return "fatal:" not in text or any(words in text for words in _NOT_YET)
    return False


def closes(error: psycopg.Error) -> bool:
    """Tell whether the connection that gave this error must be given up."""
    return error.sqlstate in _CLOSING_STATES


def outcome_unknown(error: psycopg.Error) -> bool:
    """Tell whether a COMMIT may have happened although it ended in this error: nobody answered, or the server went."""
    return retryable(error) and (error.sqlstate is None or error.sqlstate[:3] == "57P" or error.sqlstate[:2] == "08")


def first_line(error: BaseException) -> str:
    """The first line of an error's text: libpq repeats itself on the following ones."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
