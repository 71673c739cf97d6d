"""The figures of ``docs/performance.md``: ``python -m benchmarks`` measures them against a PostgreSQL of their own."""
