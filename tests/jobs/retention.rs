use std::sync::Arc;

use tollgate::domain::decision::{DecidedCall, DecidedReservation, DecidedSubject, Decision};
use tollgate::domain::ids::LimitId;
use tollgate::domain::reservation::ReservationState;
use tollgate::ledger::{LedgerError, MinuteOfViolations, VerifyOptions, ViolationFilter, verify};
use uuid::Uuid;

use crate::ledger::events::{HOUR_MS, Work, partition, tenant};
use crate::ledger::{as_owner, ledger, rows};
use crate::writer::apply::{assert_proven, book};

const DAY_MS: i64 = 86_400_000;

#[tokio::test(flavor = "multi_thread")]
async fn resolved_reservations_are_archived_after_their_time_and_the_books_stay_proven()
-> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let open = Work::new(&acme, "open", &[("ocr.page", 600)]);
    let mut events = vec![open.reserve()];
    for number in 0..5 {
        let mut done = Work::new(&acme, &format!("done-{number}"), &[("ocr.page", 100)]);
        events.extend([done.reserve(), done.consume(&[100], true)]);
    }
    book(&ledger, &acme, "1-0", events).await?;
    assert_eq!(
        ledger.archive_reservations(HOUR_MS - DAY_MS, HOUR_MS - DAY_MS, 100).await?,
        0,
        "none is old enough"
    );
    for name in ["beta", "gamma"] {
        let mut done = Work::new(&tenant(name), "done", &[("ocr.page", 100)]);
        let from = ledger.cursor(partition(&tenant(name))).await?.sequence + 1;
        book(&ledger, &tenant(name), &format!("1-{from}"), vec![done.reserve(), done.release(&[0])]).await?;
    }
    let before_ms = HOUR_MS + DAY_MS;
    assert_eq!(
        ledger.archive_reservations(before_ms, before_ms, 2).await?,
        7,
        "of every tenant, chunk by chunk"
    );
    assert_eq!(ledger.archive_reservations(before_ms, before_ms, 2).await?, 0);
    let left = "SELECT (SELECT string_agg(state, ' ') FROM reservations) AS kept, (SELECT count(*) FROM reservations_archive) AS old";
    assert_eq!(rows(&database, left).await, ["reserved 7"]);
    assert_proven(&ledger).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_cannot_be_archived_holds_no_other_up() -> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    for name in ["acme", "beta", "gamma"] {
        let mut done = Work::new(&tenant(name), "done", &[("ocr.page", 100)]);
        let from = ledger.cursor(partition(&tenant(name))).await?.sequence + 1;
        book(&ledger, &tenant(name), &format!("1-{from}"), vec![done.reserve(), done.release(&[0])]).await?;
    }
    let broken = "ALTER TABLE reservations_archive ADD CONSTRAINT broken CHECK (tenant <> 'beta')";
    as_owner(&database, broken).await.unwrap();
    let before_ms = HOUR_MS + DAY_MS;
    assert!(ledger.archive_reservations(before_ms, before_ms, 2).await.is_err(), "it is said");
    let archived = "SELECT tenant FROM reservations_archive ORDER BY tenant";
    assert_eq!(rows(&database, archived).await, ["acme", "gamma"]);
    as_owner(&database, "ALTER TABLE reservations_archive DROP CONSTRAINT broken").await.unwrap();
    assert_eq!(ledger.archive_reservations(before_ms, before_ms, 2).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_stored_once_by_day_and_go_by_whole_days() -> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let of_day = |day: i64| {
        Arc::new(Decision {
            id: Uuid::from_u128(u128::from(day.unsigned_abs())),
            at_ms: HOUR_MS + day * DAY_MS,
            tenant: tenant("acme"),
            call: DecidedCall::Check,
            operation: None,
            is_admitted: day % 2 == 0,
            code: (day % 2 == 1).then(|| "banned".to_owned()),
            is_dry_run: true,
            is_degraded: false,
            policy_version: 7,
            subjects: vec![DecidedSubject { kind: "user".into(), hash: "0f".into() }],
            lines: Vec::new(),
            limits: Vec::new(),
            number: day.unsigned_abs(),
            reservation: (day > 1).then(|| DecidedReservation {
                id: Uuid::from_u128(99),
                state: ReservationState::Expired,
                expires_at_ms: HOUR_MS + day * DAY_MS + 5,
            }),
        })
    };
    let decisions: Vec<_> = (0..4).map(of_day).collect();
    ledger.copy_decisions(&decisions[..2]).await?;
    // What stands there already, and twice, stops none of the others.
    ledger.copy_decisions(&[decisions.as_slice(), &decisions[2..]].concat()).await?;
    for decision in &decisions {
        assert_eq!(ledger.decision(decision.id).await?.as_ref(), Some(&**decision));
    }
    let days = "SELECT count(*), (SELECT count(*) FROM pg_inherits WHERE inhparent = 'decisions'::regclass) FROM decisions";
    assert_eq!(rows(&database, days).await, ["4 4"]);
    assert_eq!(ledger.drop_decisions(HOUR_MS + 2 * DAY_MS).await?, 2);
    assert_eq!(rows(&database, days).await, ["2 2"]);
    assert_eq!(ledger.drop_decisions(HOUR_MS + 2 * DAY_MS).await?, 0);
    assert_eq!(ledger.decision(decisions[1].id).await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn minutes_of_violations_are_stored_once_and_go_by_their_age() -> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let of_minute = |number: i64, violations| {
        let minute = MinuteOfViolations {
            minute_ms: HOUR_MS + number * 60_000,
            tenant: tenant("acme"),
            limit: LimitId::parse("day").unwrap(),
            subject: Some(("user".into(), "abcdefghijkl".into())),
            violations,
            bans: 1,
            under_ban: 0,
        };
        (Uuid::from_u128(u128::from(number.unsigned_abs())), minute)
    };
    ledger.add_violations(&[of_minute(1, 3), of_minute(2, 4)]).await?;
    // The same again, later figures, and one that arrives after these.
    for violations in [3, 7, 5] {
        ledger.add_violations(&[of_minute(1, violations)]).await?;
    }
    // Another instance has a row of its own.
    ledger.add_violations(&[(Uuid::from_u128(99), of_minute(2, 6).1)]).await?;
    let listed = async |filter: &ViolationFilter| -> Result<Vec<_>, LedgerError> {
        let found = ledger.violations(filter, None, 10).await?;
        Ok(found.iter().map(|row| (row.minute_ms - HOUR_MS, row.violations, row.bans)).collect())
    };
    let all = ViolationFilter::default();
    assert_eq!(listed(&all).await?, [(120_000, 10, 2), (60_000, 7, 1)]);
    let first = ledger.violations(&all, None, 1).await?.remove(0);
    let place = (first.minute_ms, "acme".into(), "day".into(), "user".into(), "abcdefghijkl".into());
    assert_eq!(ledger.violations(&all, Some(&place), 10).await?.len(), 1);
    let of_one =
        ViolationFilter { from_ms: Some(HOUR_MS + 60_000), to_ms: Some(HOUR_MS + 120_000), ..all.clone() };
    assert_eq!(listed(&of_one).await?, [(60_000, 7, 1)]);
    let subject = |hash: &str| Some(("user".to_owned(), hash.to_owned()));
    for (filter, count) in [
        (ViolationFilter { subject: subject("abcdefghijkl"), ..all.clone() }, 2),
        (ViolationFilter { subject: subject("abcdefghijkm"), ..all.clone() }, 0),
        (ViolationFilter { tenant: Some(tenant("other")), ..all.clone() }, 0),
        (ViolationFilter { limit: LimitId::parse("day").ok(), ..all.clone() }, 2),
    ] {
        assert_eq!(listed(&filter).await?.len(), count, "{filter:?}");
    }
    assert_eq!(ledger.drop_violations(HOUR_MS + 120_000, 1).await?, 1);
    assert_eq!(listed(&all).await?, [(120_000, 10, 2)]);
    assert_eq!(rows(&database, "SELECT count(*) FROM violations").await, ["2"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_stays_for_as_long_as_it_may_be_consumed_late() -> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let (mut expired, mut done) =
        (Work::new(&acme, "expired", &[("ocr.page", 600)]), Work::new(&acme, "done", &[("ocr.page", 600)]));
    let events = vec![expired.reserve(), expired.expire(), done.reserve(), done.release(&[0])];
    book(&ledger, &acme, "1-0", events).await?;
    let later_ms = HOUR_MS + DAY_MS;
    assert_eq!(ledger.archive_reservations(later_ms, HOUR_MS - 1, 100).await?, 1);
    assert_eq!(rows(&database, "SELECT state FROM reservations").await, ["expired"]);
    assert_eq!(ledger.archive_reservations(later_ms, later_ms, 100).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_used_again_after_its_archival_is_archived_again_and_the_books_stay_proven()
-> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    for (life, lines) in
        [&[("ocr.page", 300)][..], &[("ocr.page", 500), ("llm.token", 200)]].iter().enumerate()
    {
        let mut work = Work::new(&acme, "again", lines);
        let later_ms = i64::try_from(life).unwrap() * 3_600_000;
        work.record.head.born_at_ms += later_ms;
        work.rest().hour_start_ms += later_ms;
        let totals: Vec<i64> = lines.iter().map(|(_, held)| held / 2).collect();
        let mut events = vec![work.reserve(), work.consume(&totals, true)];
        let gate_time_ms = work.record.head.born_at_ms.to_le_bytes();
        events.iter_mut().for_each(|event| event[2..10].copy_from_slice(&gate_time_ms));
        let applied = book(&ledger, &acme, &format!("1-{}", 2 * life), events).await?;
        assert_eq!((applied.events, applied.repeats), (2, 0), "{applied:?}");
        assert_proven(&ledger).await;
        assert_eq!(ledger.archive_reservations(HOUR_MS + DAY_MS, HOUR_MS + DAY_MS, 100).await?, 1);
        assert_proven(&ledger).await;
    }
    assert_eq!(
        rows(&database, "SELECT count(*), count(DISTINCT id) AS ids FROM reservations_archive").await,
        ["2 1"]
    );
    let wrong = "UPDATE reservations_archive SET record = (SELECT record FROM reservations_archive ORDER BY born_at LIMIT 1)";
    as_owner(&database, wrong).await.unwrap();
    let report = verify(&ledger, VerifyOptions { rebuild: false, ..VerifyOptions::default() }).await?;
    assert!(!report.is_clean(), "one life that says too little is found");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_runs_and_leases_are_dropped_and_nothing_that_is_in_use() -> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let old = "INSERT INTO job_runs (job, scheduled_for, owner, fence, lease_until, finished_at, succeeded, outcome) \
               SELECT 'a', now() - n * interval '1 day', 'one', 1, now(), now() - n * interval '1 day', true, 'done' FROM generate_series(80, 100) n; \
               INSERT INTO job_runs (job, scheduled_for, owner, fence, lease_until, finished_at, succeeded, outcome) \
               SELECT 'webhooks', now() - n * interval '1 hour', 'one', 1, now(), now() - n * interval '1 hour', true, 'done' FROM generate_series(23, 25) n; \
               INSERT INTO job_runs (job, scheduled_for, owner, fence, lease_until) VALUES ('a', now() - interval '200 days', 'one', 1, now()); \
               INSERT INTO leases VALUES ('old', 'one', 1, now() - interval '2 hours'), ('held', 'one', 1, now() + interval '1 hour'); \
               INSERT INTO pushed_loads VALUES ('old', 900, now() - interval '25 hours'), ('new', 900, now() - interval '1 hour')";
    as_owner(&database, old).await.unwrap();
    assert_eq!(
        ledger.drop_job_runs(90, 4).await?,
        13,
        "chunk by chunk, and of a job of each few seconds after a day"
    );
    assert_eq!(ledger.drop_leases().await?, 1);
    assert_eq!(ledger.drop_pushed_loads().await?, 1);
    let left = "SELECT (SELECT count(*) FROM job_runs) AS runs, (SELECT string_agg(name, ' ') FROM leases) AS leases";
    assert_eq!(rows(&database, left).await, ["12 held"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_gaps_losses_and_settled_events_are_dropped_and_what_still_counts_stays()
-> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let old = "INSERT INTO cursors (partition, epoch) VALUES (0, 2) ON CONFLICT (partition) DO UPDATE SET epoch = 2; \
               INSERT INTO gaps SELECT 0, epoch, 1, epoch, 3, now() - days * interval '1 day' \
               FROM (VALUES (0, 500), (1, 399), (2, 600)) AS g(epoch, days); \
               INSERT INTO losses SELECT 0, 1, days, 'acme', gen_random_uuid(), 'reserve', '{}', '{}', '{}', now() - days * interval '1 day' \
               FROM (VALUES (399), (401)) AS l(days); \
               INSERT INTO quarantine (partition, epoch, sequence, event, reason, status, last_at) \
               SELECT 0, 1, n, '', 'broken', status, now() - days * interval '1 day' \
               FROM (VALUES (1, 'open', 500), (2, 'resolved', 91), (3, 'discarded', 91), (4, 'resolved', 89)) AS q(n, status, days)";
    as_owner(&database, old).await.unwrap();
    assert_eq!(ledger.drop_gaps(400, 1).await?, 1, "the gap of the epoch that lasts is still counted");
    assert_eq!(ledger.drop_losses(400, 10).await?, 1);
    assert_eq!(ledger.drop_quarantine(90, 1).await?, 2, "chunk by chunk");
    let left = "SELECT (SELECT string_agg(found_epoch::text, ' ' ORDER BY found_epoch) FROM gaps) AS gaps, \
                (SELECT count(*) FROM losses) AS losses, (SELECT string_agg(status, ' ' ORDER BY sequence) FROM quarantine) AS events";
    assert_eq!(rows(&database, left).await, ["1 2 1 open resolved"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_comparisons_and_repeats_of_past_epochs_are_dropped_after_their_time()
-> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let rows_of = "INSERT INTO reconciliations (tenant, checkpoint_id, partition, epoch, sequence, taken_at, judged_at, counters, quarantined, gaps, state) \
               SELECT 'acme', gen_random_uuid(), 0, 1, 1, now(), now() - days * interval '1 day', 1, 0, 0, state \
               FROM unnest(ARRAY['clean', 'drift', 'repaired', 'refused']) state, unnest(ARRAY[89, 91]) days; \
               UPDATE cursors SET epoch = 2; \
               INSERT INTO repeats (partition, epoch, sequence, reservation_id, tenant, undone_at) \
               SELECT 0, epoch, sequence, gen_random_uuid(), 'acme', CASE WHEN sequence = 1 THEN now() END \
               FROM generate_series(1, 2) epoch, generate_series(1, 2) sequence";
    as_owner(&database, rows_of).await.unwrap();
    assert_eq!(ledger.drop_reconciliations(90, 1).await?, 2);
    assert_eq!(ledger.drop_repeats(100).await?, 1);
    let kept = "SELECT string_agg(state, ' ' ORDER BY state) AS states FROM reconciliations WHERE judged_at < now() - interval '90 days'";
    assert_eq!(rows(&database, kept).await, ["clean drift"]);
    assert_eq!(
        rows(&database, "SELECT epoch, sequence FROM repeats ORDER BY 1, 2").await,
        ["1 2", "2 1", "2 2"]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_with_bills_are_dropped_with_all_that_they_found_after_their_time()
-> Result<(), LedgerError> {
    let (database, ledger) = ledger().await;
    let two = "INSERT INTO supplier_bills (id, attempt, state, terms, fingerprint, row_count, created_at, created_by, alive_until) \
               SELECT lpad(days::text, 32, '0')::uuid, 1, 'done', '{}', '', 0, now() - days * interval '1 day', 'me', now() \
               FROM unnest(ARRAY[89, 91]) days; \
               INSERT INTO supplier_matches (bill, outcome, number, reference, amount_here, amount_there, uses, rows_there, reservations, lines) \
               SELECT id, 'matched', n, '', 1, 1, 1, 1, '{}', '{}' FROM supplier_bills, generate_series(1, 5) n";
    as_owner(&database, two).await.unwrap();
    assert_eq!(ledger.drop_bills(90, 2).await?, 6, "chunk by chunk");
    let left = "SELECT (SELECT count(*) FROM supplier_bills) AS bills, (SELECT count(*) FROM supplier_matches) AS findings";
    assert_eq!(rows(&database, left).await, ["1 5"]);
    Ok(())
}
