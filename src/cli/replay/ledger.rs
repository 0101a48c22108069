//! The ledger's figures for a run: usage is booked under the run's own subject, so that other runs do not count.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use super::job::{JobShape, SUBJECT_KIND, tenant_id};
use super::tally::{Tally, UnitSums};
use crate::cli::client::Client;
use crate::cli::failure::Failure;

/// Tenants whose usage is read at the same time.
pub(super) const READS_AT_ONCE: usize = 4;
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Deserialize)]
struct UsageRow {
    meter: String,
    subject: Option<Subject>,
    consumed: String,
    excess: String,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    id: String,
}

/// Reads the ledger until it has what the service answered, or `wait` is over; returns what it has.
pub(super) async fn caught_up(
    client: &Client,
    shape: &JobShape,
    tally: &Tally,
    wait: Duration,
) -> Result<UnitSums, Failure> {
    let began = Instant::now();
    loop {
        let booked = read(client, shape, tally).await?;
        if booked == tally.units || began.elapsed() >= wait {
            return Ok(booked);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read(client: &Client, shape: &JobShape, tally: &Tally) -> Result<UnitSums, Failure> {
    let reads = tally.tenants.iter().map(|number| {
        let from = "from=2000-01-01T00:00:00Z";
        let path = format!("/v1/tenants/{}/usage?{from}&group_by=meter,subject", tenant_id(*number));
        async move { client.list::<UsageRow>(&path).await }
    });
    let tenants: Vec<Vec<UsageRow>> =
        stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
    let is_of_run = |row: &&UsageRow| {
        row.subject
            .as_ref()
            .is_some_and(|subject| subject.kind == SUBJECT_KIND && subject.id == shape.subject)
    };
    let mut sums = UnitSums::default();
    for row in tenants.iter().flatten().filter(is_of_run) {
        sums.add(&row.meter, &row.consumed, &row.excess)
            .map_err(|why| Failure::new(format!("the ledger's figures cannot be added: {why}")))?;
    }
    Ok(sums)
}
