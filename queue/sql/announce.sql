-- One short notification, only when a worker sleeps (performance.md: one NOTIFY a batch and only then).
SELECT pg_notify(%(channel)s, '')
WHERE EXISTS (SELECT FROM worker WHERE sleeping_until > now() AND stopped_at IS NULL)
