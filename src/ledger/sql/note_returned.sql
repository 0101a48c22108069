UPDATE carried_holds h SET returned = w.returned
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::numeric[]) AS w(tenant, meter, next_start, returned)
WHERE h.tenant = w.tenant AND h.meter = w.meter AND h.next_start = w.next_start AND h.period_start = (
    SELECT max(o.period_start) FROM carried_holds o
    WHERE o.tenant = w.tenant AND o.meter = w.meter AND o.next_start = w.next_start
)
