UPDATE billing b SET next_end = later.ends
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS later(tenant, billed_until, ends)
WHERE b.tenant = later.tenant AND b.billed_until = later.billed_until AND b.next_end < later.ends
