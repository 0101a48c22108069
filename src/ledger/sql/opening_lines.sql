-- All that an opening says, as texts in a fixed order.
SELECT text FROM (
    SELECT concat_ws('|', 'balance', tenant, meter, extract(epoch FROM period_start), available, reserved, consumed,
        reserved_beside_gate, consumed_beside_gate, consumed_of_carried) AS text
    FROM opening_balances WHERE opening = $1
    UNION ALL
    SELECT concat_ws('|', 'chain', chain, number, encode(hash, 'hex'), kept_rows, encode(kept_hash, 'hex'))
    FROM opening_chains WHERE opening = $1
    UNION ALL
    SELECT concat_ws('|', 'operation', tenant, operation_id, line, reserved, consumed)
    FROM opening_operations WHERE opening = $1
    UNION ALL
    SELECT concat_ws('|', 'usage', tenant, meter, extract(epoch FROM hour_at), operation, subject, consumed, count, excess, late)
    FROM opening_usage WHERE opening = $1
) l
ORDER BY text COLLATE "C"
