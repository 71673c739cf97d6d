-- A secret is about to be shown: who, when and why, before anything is shown.
INSERT INTO finding_event (finding_id, at, kind, by, why)
VALUES (
    %(finding_id)s::bigint, coalesce(%(now)s::timestamptz, clock_timestamp()), 'revealed', %(by)s::text, %(why)s::text
)
