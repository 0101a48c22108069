//! Statements: issued for every period that has ended, once all of its meters are closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::ids::{OutboxId, Partition};
use crate::ledger::{DuePeriod, Issued, Issuing, Manner};
use crate::operations::boundaries::Boundaries;
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::Answer;
use crate::operations::left_partitions::LeftPartitions;

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
    ///
    /// Errors: a server is away or the writer lags, for some partitions at least. All others are billed.
    pub async fn issue(&self, manner: Manner, grace: Duration) -> Answer<Issued> {
        let now_ms = self.core.trusted_now_ms()?;
        let as_of_ms = manner.as_of_ms.map_or(now_ms, |at_ms| at_ms.min(now_ms));
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let ended_by_ms = as_of_ms.saturating_sub(grace_ms).max(0);
        if !manner.dry_run {
            self.core.ledger.begin_billing(now_ms).await?;
        }
        let boundaries = Boundaries::new(&self.core);
        let (mut done, mut left) = (Issued::default(), LeftPartitions::default());
        let run = Run { ended_by_ms, as_of_ms, manner, grace };
        loop {
            let round = self.issue_next(run, &boundaries, &mut left).await?;
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
        left.end_run(done)
    }

    /// Bills each tenant's next period that has ended.
    async fn issue_next(
        &self,
        run: Run,
        boundaries: &Boundaries<'_>,
        left: &mut LeftPartitions,
    ) -> Answer<Issued> {
        let (mut done, mut after) = (Issued::default(), None);
        loop {
            let page = self.core.ledger.periods_to_bill(run.ended_by_ms, after, PAGE).await?;
            done.failed.extend(page.unread);
            let mut by_partition: BTreeMap<Partition, Vec<DuePeriod>> = BTreeMap::new();
            for due in page.due {
                by_partition.entry(self.core.gate.partition_of(&due.tenant)).or_default().push(due);
            }
            for (partition, due) in by_partition {
                let place = match run.manner.dry_run {
                    _ if left.has(partition) => Ok(None),
                    true => Ok(Some(OutboxId::default())),
                    false => boundaries.pass_to_close(partition, run.as_of_ms).await,
                };
                match place {
                    Ok(Some(after)) => {
                        let issuing = Issuing { after, grace: run.grace, dry_run: run.manner.dry_run };
                        self.issue_chunks(partition, &due, issuing, (&mut done, left)).await;
                    }
                    Ok(None) => done.add(waiting(due.len())),
                    Err(error) => {
                        let item = format!("partition {partition}");
                        left.go_on(partition, error, (&self.core.damage, Work::Statement, &item)).await;
                        done.add(waiting(due.len()));
                    }
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(done);
            }
        }
    }

    /// Bills the periods of a partition chunk by chunk or, where that fails, one by one: what is damaged of one tenant
    /// holds up that one.
    async fn issue_chunks(
        &self,
        partition: Partition,
        due: &[DuePeriod],
        issuing: Issuing,
        (done, left): (&mut Issued, &mut LeftPartitions),
    ) {
        for chunk in due.chunks(CHUNK) {
            if !left.has(partition) {
                match self.issue_together(partition, chunk, issuing).await {
                    Ok(issued) => {
                        done.add(issued);
                        continue;
                    }
                    Err(error) if error.may_be_of_one() => {}
                    Err(error) => left.leave(partition, error),
                }
            }
            for one in chunk {
                if left.has(partition) {
                    done.add(waiting(1));
                    continue;
                }
                match self.issue_together(partition, std::slice::from_ref(one), issuing).await {
                    Ok(issued) => done.add(issued),
                    Err(error) if left.is_of_item(partition, &error) => {
                        done.failed.push((one.tenant.clone(), error.to_string()));
                    }
                    Err(error) => {
                        left.leave(partition, error);
                        done.add(waiting(1));
                    }
                }
            }
        }
    }

    async fn issue_together(
        &self,
        partition: Partition,
        due: &[DuePeriod],
        issuing: Issuing,
    ) -> Answer<Issued> {
        Ok(self.core.ledger.issue_statements(partition, due.to_vec(), issuing).await?)
    }
}

/// What a run bills.
#[derive(Clone, Copy)]
struct Run {
    /// Periods that have ended by then (unix ms).
    ended_by_ms: i64,
    as_of_ms: i64,
    manner: Manner,
    grace: Duration,
}

fn waiting(tenants: usize) -> Issued {
    Issued { waiting: u64::try_from(tenants).unwrap_or(u64::MAX), ..Issued::default() }
}
