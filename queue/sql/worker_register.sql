-- A worker process says who it is; a new UUID at every process start, host and pid are labels only.
INSERT INTO worker (uuid, host, pid, slots, started_at, last_seen_at)
VALUES (%(uuid)s, %(host)s, %(pid)s, %(slots)s, coalesce(%(now)s::timestamptz, now()), coalesce(%(now)s::timestamptz, now()))
ON CONFLICT (uuid) DO UPDATE SET host = excluded.host, pid = excluded.pid, slots = excluded.slots, last_seen_at = excluded.last_seen_at,
    stopped_at = NULL
