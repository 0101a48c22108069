//! A checkpoint against the books, as of exactly its place: in the transaction that has booked all before it.

use diesel_async::AsyncPgConnection;
use futures::{FutureExt, try_join};

use crate::domain::checkpoint::{Checkpoint, CounterDescription, Difference, Figures, ReconciliationState};
use crate::domain::holds::Holds;
use crate::domain::ids::Partition;
use crate::ledger::reconciliations::{Circumstances, circumstances};
use crate::ledger::snapshot::{BookFigures, CounterAsk, RestoreAsk, read_figures};
use crate::ledger::{Ledger, LedgerError, Reconciliation, begin_aside, end_aside};

/// The most checkpoints judged in one transaction: what waits behind the partitions' events waits for them too.
pub(super) const CHECKPOINTS_MAX: usize = 4;
/// The most open holds that are read to judge one.
const OPEN_MAX: usize = 20_000;
/// Judging one takes at most so many statements.
const STATEMENTS: u32 = 5;
/// All of them together get this part of the time that a transaction has; the rest is for booking.
const PART_OF_TIME: u32 = 2;

type Judgement = (Vec<Difference>, ReconciliationState, String);

/// Compares a checkpoint with the books, which hold everything before it and nothing behind.
///
/// Errors: those after which the whole batch is tried again. What cannot be compared, or not in time, is a judgement
/// too: it must not hold up the partition.
pub(super) async fn judge(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    partition: Partition,
    checkpoint: &Checkpoint,
) -> Result<Reconciliation, LedgerError> {
    let most = u32::try_from(CHECKPOINTS_MAX).unwrap_or(u32::MAX);
    begin_aside(connection, ledger.work_timeout() / (PART_OF_TIME * STATEMENTS * most)).await?;
    let compared = compare(connection, partition, checkpoint).await;
    end_aside(connection).await?;
    let (around, (differences, state, detail)) = match compared {
        Err(error) if error.is_transient() && !error.is_statement_timeout() => return Err(error),
        Err(error) if error.is_statement_timeout() => (Circumstances::default(), undecided(TOO_SLOW)),
        Err(error) => (Circumstances::default(), undecided(&why(error))),
        Ok(compared) => compared,
    };
    Ok(Reconciliation {
        tenant: checkpoint.description.tenant.clone(),
        checkpoint: checkpoint.id,
        partition,
        place: checkpoint.outbox_id,
        taken_at_ms: checkpoint.gate_time_ms,
        judged_at_us: 0,
        counters: u64::try_from(checkpoint.told().count()).unwrap_or(u64::MAX),
        differences,
        quarantined: around.quarantined,
        gaps: around.gaps,
        state,
        detail,
        is_known: false,
    })
}

async fn compare(
    connection: &AsyncPgConnection,
    partition: Partition,
    checkpoint: &Checkpoint,
) -> Result<(Circumstances, Judgement), LedgerError> {
    let tenant = &checkpoint.description.tenant;
    let ask = ask_of(checkpoint);
    // What cannot be read of the books is a judgement, so the circumstances are known all the same.
    let reading = read_figures(connection, tenant, &ask, Some(OPEN_MAX)).map(Ok);
    let (around, books) = try_join!(circumstances(connection, partition, checkpoint), reading)?;
    let judgement = match books {
        Ok(books) => decide(checkpoint, &figures_of(checkpoint, &books), &around),
        Err(error @ (LedgerError::Damaged(_) | LedgerError::Refused(_))) => undecided(&why(error)),
        Err(error) => return Err(error),
    };
    Ok((around, judgement))
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

fn decide(checkpoint: &Checkpoint, books: &[Figures], around: &Circumstances) -> Judgement {
    let differences = checkpoint.differences(books);
    match (differences.is_empty(), around) {
        (true, _) => (differences, ReconciliationState::Clean, String::new()),
        (_, Circumstances { repeats_wait: true, .. }) => undecided(REPEATS_WAIT),
        (_, Circumstances { policy_changed: true, .. }) => undecided(POLICY_CHANGED),
        _ => (differences, ReconciliationState::Drift, String::new()),
    }
}

/// What the ledger is asked about the counters told: the same that a restore asks.
fn ask_of(checkpoint: &Checkpoint) -> RestoreAsk {
    let counters = || checkpoint.told().map(|(counter, _)| counter);
    RestoreAsk {
        counters: counters().filter(|counter| !counter.is_quota).map(counter_ask).collect(),
        quotas: counters()
            .filter(|counter| counter.is_quota)
            .map(|quota| (quota.meter.clone(), quota.decimals, quota.window_ms.0))
            .collect(),
        with_open: true,
        keyed_since_ms: 0,
    }
}

fn counter_ask(counter: &CounterDescription) -> CounterAsk {
    CounterAsk {
        meters: vec![(counter.meter.clone(), counter.decimals, 1)],
        subject: counter.subject.clone(),
        operations: counter.operations.clone(),
        window_start_ms: counter.window_ms.0,
        window_end_ms: counter.window_ms.1,
    }
}

/// The books' figures for each counter told, in order.
fn figures_of(checkpoint: &Checkpoint, books: &BookFigures) -> Vec<Figures> {
    let holds = Holds::of(books.open.iter().map(|(_, record)| record), &[]);
    let mut limits = books.counters.iter();
    let mut quotas = books.quotas.iter().map(|quota| &quota.consumed);
    let figures = checkpoint.told().map(|(counter, _)| {
        let consumed = if counter.is_quota { quotas.next() } else { limits.next() };
        let reserved = holds.in_window(counter.subject.as_ref(), counter.field, counter.window_ms.0);
        Figures { consumed: consumed.map_or(0, |units| units.get()), reserved: reserved.get() }
    });
    figures.collect()
}
