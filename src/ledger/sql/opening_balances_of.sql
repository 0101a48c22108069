SELECT tenant, meter, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS period_start,
    ARRAY[available, reserved, consumed] AS accounts
FROM opening_balances
WHERE opening = $1
ORDER BY 1, 2, 3
