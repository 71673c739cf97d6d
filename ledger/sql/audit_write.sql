-- Who did what to how many rows; in the transaction of the act itself.
INSERT INTO audit (who, act, object, changed, detail)
VALUES (%(who)s, %(act)s, %(object)s, %(changed)s, %(detail)s::jsonb)
