//! Compares a checkpoint with the books as of exactly its place, in the transaction that has booked all before it.

use std::time::{Duration, Instant};

use diesel_async::AsyncPgConnection;
use futures::{FutureExt, try_join};

use crate::clock::Clock;
use crate::domain::checkpoint::{Checkpoint, CounterDescription, Difference, Figures, ReconciliationState};
use crate::domain::holds::{Holds, NewCounter};
use crate::domain::ids::Partition;
use crate::ledger::open_holds::read_open_page;
use crate::ledger::reconciliations::{DriftContext, circumstances};
use crate::ledger::snapshot::{BookFigures, CounterAsk, RestoreAsk, read_figures};
use crate::ledger::{Ledger, LedgerError, Reconciliation, begin_aside, end_aside};

/// The most checkpoints judged in one transaction: later events wait until they are judged.
pub(super) const CHECKPOINTS_MAX: usize = 4;
/// How many open holds are in memory at once while a checkpoint is judged.
const OPEN_PAGE: usize = 5_000;
/// One statement gets this fraction (1/n) of the time for one checkpoint.
const STATEMENTS: u32 = 5;
/// All checkpoints together get this fraction (1/n) of a transaction's time; the rest is for booking.
const PART_OF_TIME: u32 = 2;

type Judgement = (Vec<Difference>, ReconciliationState, String);

/// Compares a checkpoint with the books, which contain everything before it and nothing after it.
///
/// Errors: those after which the whole batch is retried. A checkpoint that cannot be compared, or not in time, is
/// judged undecided: it must not hold up the partition.
pub(super) async fn judge(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    partition: Partition,
    checkpoint: &Checkpoint,
) -> Result<Reconciliation, LedgerError> {
    let most = u32::try_from(CHECKPOINTS_MAX).unwrap_or(u32::MAX);
    let time = ledger.work_timeout() / (PART_OF_TIME * most);
    begin_aside(connection, time / STATEMENTS).await?;
    let compared = compare(connection, partition, checkpoint, time).await;
    end_aside(connection).await?;
    let (context, (differences, state, detail)) = match compared {
        Err(error) if error.is_transient() && !error.is_statement_timeout() => return Err(error),
        Err(error) if error.is_statement_timeout() => (DriftContext::default(), undecided(TOO_SLOW)),
        Err(error) => (DriftContext::default(), undecided(&why(error))),
        Ok(compared) => compared,
    };
    Ok(Reconciliation {
        tenant: checkpoint.description.tenant.clone(),
        checkpoint: checkpoint.id,
        partition,
        place: checkpoint.outbox_id,
        taken_at_ms: checkpoint.gate_time_ms,
        judged_at_us: 0,
        counters: u64::try_from(checkpoint.with_figures().count()).unwrap_or(u64::MAX),
        differences,
        quarantined: context.quarantined,
        parked: context.parked,
        gaps: context.gaps,
        state,
        detail,
        is_known: false,
    })
}

async fn compare(
    connection: &AsyncPgConnection,
    partition: Partition,
    checkpoint: &Checkpoint,
    time: Duration,
) -> Result<(DriftContext, Judgement), LedgerError> {
    let until = Clock::monotonic() + time;
    let tenant = &checkpoint.description.tenant;
    let ask = ask_of(checkpoint);
    // Unreadable books give an undecided judgement, not an error, so the context is read in any case.
    let reading = read_figures(connection, tenant, &ask).map(Ok);
    let (context, books) = try_join!(circumstances(connection, partition, checkpoint), reading)?;
    let holds = read_holds(connection, checkpoint, until).await;
    let judgement = match books.and_then(|books| Ok((books, holds?))) {
        Ok((books, Some(holds))) => decide(checkpoint, &figures_of(checkpoint, &books, &holds), &context),
        Ok((_, None)) => undecided(TOO_SLOW),
        Err(error @ (LedgerError::Damaged(_) | LedgerError::Refused(_))) => undecided(&why(error)),
        Err(error) => return Err(error),
    };
    Ok((context, judgement))
}

/// Reads the open holds in pages. The transaction holds the partition's cursor, so all pages are as of one place. None
/// when there are more than can be read in time.
async fn read_holds(
    connection: &AsyncPgConnection,
    checkpoint: &Checkpoint,
    until: Instant,
) -> Result<Option<Holds>, LedgerError> {
    let counters = || checkpoint.with_figures().map(|(counter, _)| counter);
    let new: Vec<NewCounter> = counters().filter(|counter| counter.is_new).map(new_counter).collect();
    // A checkpoint that names only subjects needs only their holds.
    let subjects: Option<Vec<_>> = counters().map(|counter| counter.subject.as_ref()).collect();
    let (mut holds, mut after) = (Holds::default(), None);
    while Clock::monotonic() < until {
        let tenant = &checkpoint.description.tenant;
        let page = read_open_page(connection, tenant, subjects.as_deref(), after, OPEN_PAGE).await?;
        page.iter().for_each(|(_, record)| holds.add(record, &new));
        after = page.last().map(|(id, record)| (record.head.expires_at_ms, *id));
        if page.len() < OPEN_PAGE {
            return Ok(Some(holds));
        }
    }
    Ok(None)
}

fn new_counter(counter: &CounterDescription) -> NewCounter {
    NewCounter {
        subject: counter.subject.clone(),
        field: counter.field,
        meters: counter.counted_meters(),
        operations: counter.operations.clone(),
        window_ms: counter.window_ms,
    }
}

fn why(error: LedgerError) -> String {
    match error {
        LedgerError::Damaged(why) | LedgerError::Refused(why) => why,
        other => other.to_string(),
    }
}

fn undecided(why: &str) -> Judgement {
    (Vec::new(), ReconciliationState::Refused, why.to_owned())
}

const TOO_SLOW: &str = "reading the books took longer than it may; the next checkpoint decides";
const REPEATS_WAIT: &str =
    "an operation that came again had not been taken back yet; the next checkpoint decides";
const POLICY_CHANGED: &str = "policy or tenant changed while it was taken; the next checkpoint decides";

fn decide(checkpoint: &Checkpoint, books: &[Figures], context: &DriftContext) -> Judgement {
    let differences = checkpoint.differences(books);
    match (differences.is_empty(), context) {
        (true, _) => (differences, ReconciliationState::Clean, String::new()),
        (_, DriftContext { repeats_wait: true, .. }) => undecided(REPEATS_WAIT),
        (_, DriftContext { policy_changed: true, .. }) => undecided(POLICY_CHANGED),
        _ => (differences, ReconciliationState::Drift, String::new()),
    }
}

/// The figures to read for the checkpoint's counters: the query of a restore.
fn ask_of(checkpoint: &Checkpoint) -> RestoreAsk {
    let counters = || checkpoint.with_figures().map(|(counter, _)| counter);
    RestoreAsk {
        counters: counters().filter(|counter| !counter.is_quota).map(counter_ask).collect(),
        quotas: counters()
            .filter(|counter| counter.is_quota)
            .map(|quota| (quota.meter.clone(), quota.decimals, quota.window_ms.0))
            .collect(),
        with_open: false,
        open_of: None,
        subjects_max: None,
        latest_since_ms: 0,
    }
}

fn counter_ask(counter: &CounterDescription) -> CounterAsk {
    CounterAsk {
        meters: counter.counted_meters(),
        subject: counter.subject.clone(),
        operations: counter.operations.clone(),
        window_start_ms: counter.window_ms.0,
        window_end_ms: counter.window_ms.1,
    }
}

/// The booked figures for each counter of the checkpoint, in order.
fn figures_of(checkpoint: &Checkpoint, books: &BookFigures, holds: &Holds) -> Vec<Figures> {
    let mut limits = books.counters.iter();
    let mut quotas = books.quotas.iter().map(|quota| &quota.consumed);
    let figures = checkpoint.with_figures().map(|(counter, _)| {
        let consumed = if counter.is_quota { quotas.next() } else { limits.next() };
        let reserved = holds.in_window(counter.subject.as_ref(), counter.field, counter.window_ms.0);
        Figures { consumed: consumed.map_or(0, |units| units.get()), reserved: reserved.get() }
    });
    figures.collect()
}
