SELECT concat_ws(' ', 'entry', tenant, operation_id, 'step', step, 'line', line, 'leg', leg) AS what,
    concat_ws(' ', amount, 'from', credit, 'to', debit) AS detail
FROM entries
WHERE tenant = ANY($1) AND (
    NOT (amount > 0 AND amount < 1e18) OR credit = debit OR cardinality(subjects) > 4 OR line NOT BETWEEN 0 AND 255
    OR (class = 'usage' AND (credit, debit) NOT IN (
        ('available', 'reserved'), ('reserved', 'consumed'), ('available', 'consumed'), ('reserved', 'available'),
        ('consumed', 'available')
    ))
    OR (meter LIKE 'money:%' AND (credit, debit) NOT IN (
        ('revenue', 'receivable'), ('receivable', 'revenue'), ('tax', 'receivable'), ('receivable', 'tax'), ('deferred', 'receivable'),
        ('receivable', 'deferred'), ('revenue', 'deferred'), ('deferred', 'revenue'), ('breakage', 'deferred')
    ))
)
LIMIT $2
