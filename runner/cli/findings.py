"""``resweep findings``: the whole group, for the frame of the command line to add."""

from . import findings_decide, findings_read
from .findings_frame import ACCESS_KEY, FindingsAccess, findings

__all__ = ["ACCESS_KEY", "FindingsAccess", "findings", "findings_decide", "findings_read"]
