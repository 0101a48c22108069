//! A bill of very many rows: every difference is found, in bounded memory. It is short in every run; `make bill`
//! compares a million rows.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::{BY_TIME, SPAN, compare, counts, with_uses};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::process::from_environment;

/// How long a bill of a million rows may take, and what memory.
const WITHIN: Duration = Duration::from_secs(300);
const MEMORY_MB_MAX: u64 = 512;

/// Books that many uses of one page and more, a hundredth of a second apart, as the writer would have booked them.
async fn book_many(app: &TestApp, uses: u64) {
    let insert = format!(
        "SELECT ensure_entries_month('2026-03-01'); \
         INSERT INTO entries (tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class, \
             happened_at, booked_at, operation, hour_at, subjects, chain, batch) \
         SELECT 'acme', ('00000000-0000-8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1, 0, 0, 'page', '2026-03-01Z', \
             'available', 'consumed', 1 + i % 50, 'usage', '2026-03-10T00:00:00Z'::timestamptz + i * interval '10 ms', now(), '', \
             '2026-03-10Z', '{{}}', 0, i \
         FROM generate_series(1, {uses}) i"
    );
    as_owner(&app.database, &insert).await.unwrap();
}

/// The bill of these uses, in another order and a little later each, with one difference in every thousand rows; and
/// how many differences of each kind there are.
fn large_bill(uses: u64) -> (String, [u64; 4]) {
    let (mut bill, mut expected) = ("job,at,pages\n".to_owned(), [0, 0, 0, 0]);
    // A step that has no divisor in common with the number of uses visits each once.
    let step = 7_919;
    for place in 0..uses {
        let number = place * step % uses + 1;
        let (mut amount, mut job) = (1 + number % 50, format!("00000000-0000-8000-8000-{number:012x}"));
        let late_ms = number * 10 + 60_000 + number % 200_000;
        let at = format!(
            "2026-03-10T{:02}:{:02}:{:02}.{:03}Z",
            late_ms / 3_600_000,
            late_ms / 60_000 % 60,
            late_ms / 1_000 % 60,
            late_ms % 1_000
        );
        let outcome = match number % 1_000 {
            1 => 3,
            2 => {
                amount += 1_000;
                1
            }
            3 => {
                job = format!("unknown-{number}");
                // The use is missing there, and the row here.
                expected[3] += 1;
                2
            }
            _ => 0,
        };
        expected[outcome] += 1;
        if outcome != 3 {
            writeln!(bill, "{job},{at},{amount}").unwrap();
        }
    }
    (bill, expected)
}

/// The most memory that this process ever had, in MB.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb: u64 = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default();
    kb / 1_024
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_large_bill_every_planted_difference_is_found_and_none_is_invented() {
    let uses = from_environment("TOLLGATE_BILL_ROWS").unwrap_or(20_000);
    let app = with_uses(&[]).await;
    book_many(&app, uses).await;
    let (bill, expected) = large_bill(uses);
    let (bytes, before_mb) = (bytes::Bytes::from(bill), peak_mb());
    println!("a bill of {} bytes; the process had {before_mb} MB", bytes.len());
    let began = Instant::now();
    let by_id = format!("{SPAN}&supplier=s&reference_column=job&time_column=at&amount_column=pages");
    let compared = compare(&app, &by_id, "by id", bytes.clone()).await;
    println!("{uses} uses compared by reference in {:?}; peak {} MB", began.elapsed(), peak_mb());
    assert!(began.elapsed() < WITHIN);
    assert_eq!(counts(&compared), expected, "{compared:?}");
    let began = Instant::now();
    let compared = compare(&app, &format!("{SPAN}&{BY_TIME}&tenant=acme"), "by time", bytes).await;
    println!("{uses} uses compared by amount and time in {:?}; peak {} MB", began.elapsed(), peak_mb());
    assert!(began.elapsed() < WITHIN);
    let found = counts(&compared);
    // Without references, a row under another name is the same work, and an amount that nobody used is on neither side.
    let [matched, different, missing_here, missing_there] = expected;
    assert_eq!(
        found,
        [matched + missing_here, 0, different, missing_there - missing_here + different],
        "{compared:?}"
    );
    assert!(peak_mb() - before_mb < MEMORY_MB_MAX, "the peak rose from {before_mb} MB to {} MB", peak_mb());
    app.leave_unbalanced("its uses were booked past the gate");
}
