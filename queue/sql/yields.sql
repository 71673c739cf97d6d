-- Scans and findings by source and admission class in a period (T59).
SELECT s.name, y.admission::text, y.scans, y.findings, y.new_findings, y.seconds
FROM (
    SELECT source_id, admission, count(*) AS scans, sum(findings) AS findings, sum(new_findings) AS new_findings,
        sum(extract(epoch FROM finished_at - claimed_at))::double precision AS seconds
    FROM target_history
    WHERE finished_at >= coalesce(%(now)s::timestamptz, now()) - %(period)s::interval AND outcome IN ('done', 'owing')
    GROUP BY source_id, admission
) AS y JOIN source AS s ON s.id = y.source_id
ORDER BY s.name, y.admission
