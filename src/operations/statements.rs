//! Statements: issued for every period that has ended, once all of its meters are closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::ids::{OutboxId, Partition};
use crate::ledger::{DuePeriod, Issued, Issuing, Manner};
use crate::operations::boundaries::Boundaries;
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};

/// How many tenants are looked at together.
const PAGE: usize = 2_000;
/// How many are billed in one transaction; the writer waits for its partition meanwhile.
const CHUNK: usize = 200;

/// Issues statements.
pub struct Statements {
    core: Arc<Core>,
}

impl Statements {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Issues the statement of each tenant's period that ended at least `grace` ago, the earlier period first, and
    /// the notes for what is booked in it for periods before. A period waits until all of its meters are closed. A run
    /// may end anywhere: each chunk is issued wholly or not at all, and a later run goes on.
    pub async fn issue(&self, manner: Manner, grace: Duration) -> Answer<Issued> {
        let now_ms = self.core.gate_now_ms();
        let as_of_ms = manner.as_of_ms.map_or(now_ms, |at_ms| at_ms.min(now_ms));
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let ended_by_ms = as_of_ms.saturating_sub(grace_ms).max(0);
        if !manner.dry_run {
            self.core.ledger.begin_billing(now_ms).await?;
        }
        let boundaries = Boundaries::new(&self.core);
        let mut done = Issued::default();
        loop {
            let round = self.issue_next(ended_by_ms, as_of_ms, manner, grace, &boundaries).await?;
            let is_last = round.billed == 0 || manner.dry_run;
            (done.waiting, done.failed) = (0, Vec::new());
            done.add(round);
            if is_last {
                break;
            }
        }
        for (tenant, why) in &done.failed {
            self.core.damage.pass_over(Work::Statement, tenant.as_str(), why).await;
        }
        Ok(done)
    }

    /// Bills each tenant's next period that has ended.
    async fn issue_next(
        &self,
        ended_by_ms: i64,
        as_of_ms: i64,
        manner: Manner,
        grace: Duration,
        boundaries: &Boundaries<'_>,
    ) -> Answer<Issued> {
        let (mut done, mut after) = (Issued::default(), None);
        loop {
            let page = self.core.ledger.periods_to_bill(ended_by_ms, after, PAGE).await?;
            let mut by_partition: BTreeMap<Partition, Vec<DuePeriod>> = BTreeMap::new();
            for due in page.due {
                by_partition.entry(self.core.gate.partition_of(&due.tenant)).or_default().push(due);
            }
            for (partition, due) in by_partition {
                let place = match manner.dry_run {
                    true => Ok(Some(OutboxId::default())),
                    false => boundaries.pass_to_close(partition, as_of_ms).await,
                };
                let tenants = due.len();
                let issued = match place {
                    Ok(place) => self.issue_chunks(partition, due, place, manner, grace).await,
                    Err(error) => Err(error),
                };
                done.add(self.unless_away(partition, tenants, issued).await?);
            }
            after = page.next;
            if after.is_none() {
                return Ok(done);
            }
        }
    }

    async fn issue_chunks(
        &self,
        partition: Partition,
        due: Vec<DuePeriod>,
        place: Option<OutboxId>,
        manner: Manner,
        grace: Duration,
    ) -> Answer<Issued> {
        let Some(after) = place else { return Ok(waiting(due.len())) };
        let issuing = Issuing { after, grace, dry_run: manner.dry_run };
        let mut done = Issued::default();
        for chunk in due.chunks(CHUNK) {
            match self.core.ledger.issue_statements(partition, chunk.to_vec(), issuing).await {
                Ok(issued) => done.add(issued),
                Err(error) if error.is_transient() => return Err(error.into()),
                // What is damaged of one tenant holds up that one.
                Err(_) => done.add(self.issue_one_by_one(partition, chunk, issuing).await?),
            }
        }
        Ok(done)
    }

    async fn issue_one_by_one(
        &self,
        partition: Partition,
        due: &[DuePeriod],
        issuing: Issuing,
    ) -> Answer<Issued> {
        let mut done = Issued::default();
        for one in due {
            match self.core.ledger.issue_statements(partition, vec![one.clone()], issuing).await {
                Ok(issued) => done.add(issued),
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) => done.failed.push((one.tenant.clone(), error.to_string())),
            }
        }
        Ok(done)
    }

    /// Passes over a partition that cannot be billed, so that the others go on; fails only when a server is away.
    async fn unless_away(
        &self,
        partition: Partition,
        tenants: usize,
        issued: Answer<Issued>,
    ) -> Answer<Issued> {
        let error: OperationError = match issued {
            Ok(issued) => return Ok(issued),
            Err(error) if error.is_server_away() => return Err(error),
            Err(error) => error,
        };
        self.core.damage.pass_over(Work::Statement, &format!("partition {partition}"), &error).await;
        Ok(waiting(tenants))
    }
}

fn waiting(tenants: usize) -> Issued {
    Issued { waiting: u64::try_from(tenants).unwrap_or(u64::MAX), ..Issued::default() }
}
