# The peer is installed in an environment of its own only.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false, reportUnusedFunction=false
"""Drains no-op jobs with procrastinate and prints the seconds; run by an interpreter that has ``procrastinate``.

procrastinate_drain.py DSN fill JOBS | DSN drain CONCURRENCY
"""

import asyncio
import sys
import time

import procrastinate

_FILL_BATCH = 1_000


def make(dsn: str) -> tuple[procrastinate.App, procrastinate.tasks.Task]:
    """The application and its one no-op task."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))

    @app.task(name="noop")  # type: ignore[untyped-decorator,unused-ignore] # the peer is not installed here
    async def noop(address: str) -> None:
        del address

    return app, noop


async def fill(dsn: str, jobs: int) -> None:
    """Apply the schema when it is missing and defer ``jobs`` no-ops."""
    app, noop = make(dsn)
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, _FILL_BATCH):
            count = min(_FILL_BATCH, jobs - start)
            await noop.batch_defer_async(*[{"address": "https://example.org/a/b.git"}] * count)


async def drain(dsn: str, concurrency: int) -> float:
    """Seconds from start to an empty queue."""
    app, _ = make(dsn)
    async with app.open_async():
        started = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=concurrency, install_signal_handlers=False)
        return time.perf_counter() - started


if __name__ == "__main__":
    address, act, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if act == "fill":
        asyncio.run(fill(address, number))
    else:
        print(asyncio.run(drain(address, number)))
