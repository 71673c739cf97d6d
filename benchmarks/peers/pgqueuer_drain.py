# The peer is installed in an environment of its own only.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false, reportUnusedFunction=false
"""Drains no-op jobs with pgqueuer and prints the seconds; run by an interpreter that has ``pgqueuer[asyncpg]``, uvloop.

pgqueuer_drain.py DSN fill JOBS | DSN drain BATCH
"""

import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

_FILL_BATCH = 5_000


async def fill(dsn: str, jobs: int) -> None:
    """Install the schema when it is missing and enqueue ``jobs`` no-ops."""
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()
    for start in range(0, jobs, _FILL_BATCH):
        count = min(_FILL_BATCH, jobs - start)
        await queries.enqueue(["noop"] * count, [b"https://example.org/a/b.git"] * count, [0] * count)
    await connection.execute("ANALYZE")
    await connection.close()


async def drain(dsn: str, batch: int) -> float:
    """Seconds from start to an empty queue, connection included in neither."""
    connection = await asyncpg.connect(dsn)
    worker = QueueManager(Queries(AsyncpgDriver(connection)))

    @worker.entrypoint("noop")
    async def noop(job: object) -> None:
        del job

    started = time.perf_counter()
    await worker.run(batch_size=batch, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1))
    return time.perf_counter() - started


if __name__ == "__main__":
    address, act, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if act == "fill":
        uvloop.run(fill(address, number))
    else:
        print(uvloop.run(drain(address, number)))
