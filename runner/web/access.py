"""Who may ask: the Host header names us, and where others can reach us a token is shown."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN = frozenset({"/livez", "/readyz", "/healthz"})  # probes carry no token and say nothing worth one
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a request must show. ``tokens`` empty: nothing, which only a loopback address may do."""

    host: str  # the address that is listened on
    loopback: bool
    tokens: tuple[str, ...] = ()


class Gate:
    """ASGI middleware: refuses foreign Host headers (DNS rebinding) and requests without a token."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        """Stand before ``app``."""
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 400 or 401."""
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope), str(scope["path"]))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> PlainTextResponse | None:
        host = _host_of(headers.get("host", ""))
        # On an address that others reach, names are the operator's own; there the token is what counts.
        if self._rules.loopback and host not in _LOCAL and host != self._rules.host:
            return PlainTextResponse("this address is not known by that name\n", status_code=400)
        if self._rules.tokens and path not in _OPEN:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            good = [hmac.compare_digest(shown.strip().encode(), token.encode()) for token in self._rules.tokens]
            if scheme.lower() != "bearer" or not any(good):
                return PlainTextResponse(
                    "a token is needed: Authorization: Bearer …\n",
                    status_code=401,
                    headers={"www-authenticate": "Bearer"},
                )
        return None


def _host_of(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()
