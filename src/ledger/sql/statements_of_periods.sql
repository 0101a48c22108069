-- The statements of these periods, each with the notes that correct it, in order.
SELECT s.number, s.document
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN statements o ON o.tenant = w.tenant AND o.period_start = w.period_start AND o.corrects IS NULL
JOIN statements s ON s.tenant = o.tenant AND (s.number = o.number OR s.corrects = o.number)
ORDER BY s.tenant, s.number
