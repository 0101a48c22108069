//! Retries events in quarantine, in order, one reservation at a time.

use diesel_async::AsyncPgConnection;
use futures::FutureExt;
use serde_json::json;

use super::apply::{number_subjects, read_known, write};
use super::batch::{Arrival, plan};
use super::carried::{raise_capacities, read_all_open_periods};
use crate::domain::ids::{OutboxId, Partition};
use crate::ledger::chain::{self, Chain};
use crate::ledger::{BEGIN_BOOKING, Ledger, LedgerError, audit, cursors, quarantine};

/// The result of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retried {
    /// Events that are booked now, or were booked already.
    pub resolved: usize,
    /// Events that still wait.
    pub waiting: usize,
}

/// Retries the event at this place and every other waiting event of its reservation, in order. An event that cannot be
/// booked stays, with all later ones. The audit log names `actor`.
///
/// Errors: [`crate::ledger::Conflict::Missing`] when no such event waits.
pub async fn retry(
    ledger: &Ledger,
    partition: Partition,
    id: OutboxId,
    actor: &str,
) -> Result<Retried, LedgerError> {
    let (here, actor) = (ledger.clone(), actor.to_owned());
    ledger
        .transact(BEGIN_BOOKING, move |connection| {
            async move {
                let retried = try_again(here, connection, partition, id).await?;
                let detail = json!({ "resolved": retried.resolved, "waiting": retried.waiting });
                let item = format!("quarantine {partition}/{id}");
                audit::note(connection, &actor, "retry", &item, detail).await?;
                Ok(retried)
            }
            .boxed()
        })
        .await
}

async fn try_again(
    ledger: Ledger,
    connection: &mut AsyncPgConnection,
    partition: Partition,
    id: OutboxId,
) -> Result<Retried, LedgerError> {
    // The cursor's lock keeps the partition's writer away from the same reservation and chain.
    let (locked, booked_at) = cursors::lock(connection, &[partition]).await?;
    ledger.heed_erasures(locked.iter().map(|cursor| (cursor.partition, cursor.erasures)));
    let waiting = quarantine::open_with(connection, partition, id).await?;
    if waiting.is_empty() {
        return Err(LedgerError::Conflict(quarantine::missing(partition, id)));
    }
    let arrivals: Vec<Arrival> =
        waiting.iter().map(|event| Arrival::new(partition, (event.outbox_id, event.event.clone()))).collect();
    let known = read_known(&ledger, connection, &arrivals).await?;
    let known = number_subjects(&ledger, connection, &arrivals, known).await?;
    let mut known = read_all_open_periods(&ledger, connection, &arrivals, known).await?;
    known.waiting.clear();
    let mut plan = plan(arrivals, known);
    ledger.ensure_months_of(plan.instants_ms()).await?;
    raise_capacities(connection, &plan).await?;
    let refused = std::mem::take(&mut plan.refused);
    for event in &waiting {
        let reason = refused.iter().find(|refused| refused.outbox_id == event.outbox_id);
        let reason = reason.map(|refused| refused.reason.as_str());
        quarantine::note_try(connection, partition, event.outbox_id, reason).await?;
    }
    let heads = chain::heads(connection, &[Chain::Outbox(partition)]).await?;
    write(connection, plan, &heads, booked_at).await?;
    Ok(Retried { resolved: waiting.len() - refused.len(), waiting: refused.len() })
}
