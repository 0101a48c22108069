//! A million reservations, and around them what a large installation has.

use tollgate::domain::ids::Partition;

use super::super::events::{HOUR_MS, PERIOD_START_MS, Work, tenant};

/// Of one tenant, none of whose calls had a key, and of many others, whose holds are open. Without indexes until all is
/// there: these are built much faster than they grow.
#[allow(clippy::too_many_lines, reason = "one list of statements")]
pub fn fill(of: Partition) -> String {
    let (partition, hour, period) = (of.number(), HOUR_MS / 1000, PERIOD_START_MS / 1000);
    let mut work = Work::new(&tenant("acme"), "filled", &[("ocr.page", 600)]);
    work.usage();
    let record: String = work.record.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    let columns = "partition, id, tenant, state, step, epoch, sequence, record, fingerprint, keyed, operation, policy_version, \
                   period_start, meters, subjects, born_at, expires_at, resolved_at";
    let row = |state: &str, tenant: &str| {
        format!(
            "{partition}, gen_random_uuid(), {tenant}, '{state}', 1, 1, i, '\\x{record}'::bytea, '\\x00'::bytea, false, 'ocr.submit', 1, \
             to_timestamp({period}), '{{ocr.page}}'::text[], ARRAY[i % 100000], to_timestamp({hour}) - i * interval '1 s', \
             to_timestamp({hour}) + i * interval '1 s', to_timestamp({hour})"
        )
    };
    let expired = |tenant: &str| {
        let (row, resolved) = (row("expired", tenant), format!("to_timestamp({hour})"));
        let before = row.strip_suffix(&resolved).expect("when it was resolved comes last");
        format!("{before}{resolved} + i * interval '1 s'")
    };
    let (acme, other) = ("'acme'".to_owned(), "'tenant-' || i % 10000".to_owned());
    [
        without_indexes("reservations_resolved"),
        format!("INSERT INTO reservations_resolved ({columns}) SELECT {} FROM generate_series(1, 980000) i", row("consumed", &acme)),
        format!("INSERT INTO reservations_open ({columns}) SELECT {} FROM generate_series(1, 20000) i", row("reserved", &other)),
        with_indexes(),
        format!("INSERT INTO reservations_archive ({columns}) SELECT {} FROM generate_series(1, 50000) i", row("consumed", &acme)),
        // Of a few tenants, each of another second.
        format!(
            "INSERT INTO reservations_resolved ({columns}) SELECT {} FROM generate_series(1, 40000) i",
            expired("'tenant-' || i % 20")
        ),
        format!("INSERT INTO reservations_archive ({columns}) SELECT {} FROM generate_series(1, 20000) i", expired("'tenant-' || i % 20")),
        "INSERT INTO subjects (tenant, kind, id) SELECT 'acme', 'user', 'user-' || i FROM generate_series(1, 100000) i".into(),
        format!(
            "INSERT INTO tenants (id, partition, version, definition, created_at) \
             SELECT 'tenant-' || i, {partition}, 1, '{{}}', now() - i * interval '1 s' \
             FROM generate_series(0, 100000) i"
        ),
        "UPDATE tenants SET id = 'acme' WHERE id = 'tenant-0'".into(),
        format!(
            "INSERT INTO usage_hourly (tenant, meter, hour_at, operation, subject, consumed, count, excess, late) \
             SELECT 'acme', 'ocr.page', to_timestamp({hour}) - (i / 400) * interval '1 hour', 'ocr.submit', i % 400, 1, 1, 0, 0 \
             FROM generate_series(400, 500000) i"
        ),
        "SELECT ensure_entries_month('2025-12-01')".into(),
        format!(
            "INSERT INTO entries (tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class, happened_at, \
                 booked_at, operation, hour_at, subjects, chain, batch) \
             SELECT 'acme', gen_random_uuid(), 1, 0, 0, 'ocr.page', to_timestamp({period}), 'available', 'consumed', 1, 'usage', \
                 to_timestamp({period}) + i * interval '1 s', now(), 'ocr.submit', to_timestamp({hour}), '{{}}', 0, i \
             FROM generate_series(1, 300000) i"
        ),
        format!(
            "INSERT INTO balances (tenant, meter, period_start, period_end, is_closed) \
             SELECT 'tenant-' || i, 'ocr.page', to_timestamp({period}), to_timestamp({hour}), i <= 99000 FROM generate_series(1, 100000) i"
        ),
        format!(
            "INSERT INTO period_closures (tenant, meter, period_start, period_end, closed_at, lapsed, overage) \
             SELECT 'tenant-' || i, 'ocr.page', to_timestamp({period}), to_timestamp({hour}), to_timestamp({hour}), 0, 0 \
             FROM generate_series(1, 99000) i"
        ),
        format!(
            "INSERT INTO quota_periods (tenant, meter, period_start, period_end, decimals, included, version) \
             SELECT 'tenant-' || i, 'ocr.page', to_timestamp({period}), to_timestamp({hour}), 2, 1, 1 FROM generate_series(1, 100000) i"
        ),
        format!(
            "INSERT INTO quota_notices (tenant, meter, period_start, period_end, percent, consumed, allowance, raised_at) \
             SELECT 'tenant-' || i % 1000, 'ocr.page', to_timestamp({period}) - (i / 1000) * interval '1 day', to_timestamp({hour}), 80, 8, 10, \
                 to_timestamp({hour}) - (i / 1000) * interval '1 day' FROM generate_series(1, 100000) i"
        ),
        // One of these has all deliveries, of which few are due.
        "INSERT INTO webhooks (id, url, events, created_at, created_by) \
             SELECT lpad(to_hex(i), 32, '0')::uuid, 'https://example.com/', '{quota.threshold}', now() - i * interval '1 s', 'key' \
             FROM generate_series(1, 200) i"
            .into(),
        "INSERT INTO webhook_deliveries (tenant, meter, period_start, percent, event, webhook, created_at, state, next_attempt_at) \
             SELECT tenant, meter, period_start, percent, 'quota.threshold', lpad('1', 32, '0')::uuid, raised_at, \
                 CASE WHEN is_due THEN 'waiting' ELSE 'delivered' END, CASE WHEN is_due THEN raised_at END \
             FROM (SELECT *, row_number() OVER () % 1000 = 0 AS is_due FROM quota_notices) n"
            .into(),
        format!(
            "INSERT INTO violations (id, minute, tenant, limit_id, subject_kind, subject_hash, counted, bans, under_ban) \
             SELECT gen_random_uuid(), to_timestamp({hour}) - (i / 1000) * interval '1 minute', 'tenant-' || i % 1000, 'day', 'user', \
                 'abcdefghijkl', 1, 0, 0 FROM generate_series(1, 100000) i"
        ),
        "SELECT ensure_decisions_day('2026-03-09'), ensure_decisions_day('2026-03-10')".into(),
        "INSERT INTO decisions (tenant, id, at, call, outcome, dry_run, degraded, policy_version, subjects, lines, limits) \
             SELECT 'acme', gen_random_uuid(), '2026-03-09T00:00:00Z'::timestamptz + i * interval '2 s', 'check', 'admitted', false, \
                 false, 1, '[]', '[]', '[]' FROM generate_series(1, 80000) i".into(),
        // Each tenth of one tenant, and a few that have not begun.
        format!(
            "INSERT INTO grants (tenant, id, meter, decimals, amount, kind, priority, effective_at, expires_at, reason, fingerprint, \
                 created_at, created_by, period_start) \
             SELECT CASE WHEN i % 10 = 0 THEN 'acme' ELSE 'tenant-' || i % 10000 END, gen_random_uuid(), 'ocr.page', 2, 1, 'paid', 50, \
                 to_timestamp({period}) - (i / 100) * interval '1 hour', to_timestamp({hour}), '', decode(repeat('00', 32), 'hex'), now() - i * interval '1 s', 'key', \
                 CASE WHEN i < 20 THEN NULL ELSE to_timestamp({period}) END \
             FROM generate_series(1, 100000) i"
        ),
        format!(
            "INSERT INTO parked (tenant, partition, reservation_id, call, taken_at, payload, state, settled_at) \
             SELECT 'tenant-' || i % 10000, {partition}, gen_random_uuid(), 'consume', now(), '\\x00', 'done', now() \
             FROM generate_series(1, 100000) i"
        ),
        format!(
            "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason, status) \
             SELECT {partition}, 1, 1000 + i, gen_random_uuid(), 'tenant-' || i % 10000, '\\x00', 'torn', 'discarded' \
             FROM generate_series(1, 100000) i"
        ),
        format!(
            "INSERT INTO repeats (partition, epoch, sequence, reservation_id, tenant, undone_at, undone_sequence) \
             SELECT {partition}, 1, i, gen_random_uuid(), 'tenant-' || i % 10000, now(), i FROM generate_series(1, 100000) i"
        ),
        format!(
            "INSERT INTO reconciliations (tenant, checkpoint_id, partition, epoch, sequence, taken_at, counters, quarantined, gaps, state) \
             SELECT 'tenant-' || i % 10000, gen_random_uuid(), {partition}, 1, i, now(), 1, 0, 0, 'clean' FROM generate_series(1, 100000) i"
        ),
        // The other chain of the last partition: nothing is booked there.
        "INSERT INTO batches (chain, number, rows, hash, previous, booked_at) \
             SELECT 259, i, 1, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), now() FROM generate_series(1, 100000) i"
            .into(),
        "INSERT INTO policy_history (kind, id, version, policy_version) SELECT 'tenant', 'tenant-' || i, 1, i FROM generate_series(1, 100000) i"
            .into(),
        "INSERT INTO audit_log (actor, action, object, detail) \
             SELECT 'key-' || i % 1000, 'put', 'tenant tenant-' || i, '{\"version\": 1}' FROM generate_series(1, 100000) i"
            .into(),
        "ALTER TABLE api_keys DISABLE TRIGGER USER".into(),
        "INSERT INTO api_keys (id, name, role, hash, created_at, change) \
             SELECT 'key-' || i, 'key', 'admin', decode(repeat('00', 32), 'hex'), now() - i * interval '1 s', i FROM generate_series(1, 30000) i"
            .into(),
        "ALTER TABLE api_keys ENABLE TRIGGER USER".into(),
        "ANALYZE".into(),
    ]
    .join("; ")
}

fn without_indexes(table: &str) -> String {
    format!(
        "CREATE TEMPORARY TABLE dropped AS SELECT indexrelid::regclass::text AS name, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') AS definition \
             FROM pg_index WHERE indrelid = '{table}'::regclass AND NOT indisprimary; \
         DO $$ DECLARE name text; BEGIN FOR name IN SELECT d.name FROM dropped d LOOP EXECUTE 'DROP INDEX ' || name; END LOOP; END $$"
    )
}

fn with_indexes() -> String {
    "DO $$ DECLARE definition text; BEGIN FOR definition IN SELECT d.definition FROM dropped d LOOP EXECUTE definition; END LOOP; END $$"
        .into()
}
