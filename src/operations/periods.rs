//! The close of periods: once a period's grace is over and everything in it is booked, open holds go over to the next
//! one, what is unused rolls over or lapses, and what was used beyond the quota becomes overage.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};

use crate::domain::ids::{OutboxId, Partition};
use crate::domain::period::WindowKind;
use crate::ledger::{Closed, Closing, ClosingPeriod, EndedPeriod, Manner, QuotaPeriod};
use crate::operations::boundaries::Boundaries;
use crate::operations::core::Core;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::memory::{Memory, quota_period};
use crate::operations::run_progress::RunProgress;

/// How many periods are read at once: so many that those of one partition fill a chunk.
const PAGE: usize = 20_000;
/// How many are closed in one transaction; the writer waits for its partition meanwhile.
const CHUNK: usize = 200;
/// In how many partitions periods are closed at once.
const PARTITIONS_AT_ONCE: usize = 2;
/// How often a chunk is closed again for which a next period was prepared by an older version of its tenant.
const TRIES: usize = 3;

/// Closes periods.
pub struct Periods {
    core: Arc<Core>,
    memory: Arc<Memory>,
}

impl Periods {
    pub(super) fn new(core: Arc<Core>, memory: Arc<Memory>) -> Self {
        Self { core, memory }
    }

    /// Closes every period that ended at least `grace` ago, the ones that ended first before the others, and books
    /// what has returned of carried holds. A period waits for calls that wait for the gate, for grants that are not
    /// settled and for the period before it. A run may end anywhere: each chunk is closed wholly or not at all, and a
    /// later run goes on.
    pub async fn close(&self, manner: Manner, grace: Duration) -> Answer<Closed> {
        self.close_showing(manner, grace, &RunProgress::default()).await
    }

    /// As [`Self::close`], and shows how many of how many periods are closed.
    pub async fn close_showing(
        &self,
        manner: Manner,
        grace: Duration,
        progress: &RunProgress,
    ) -> Answer<Closed> {
        let mut done = Closed::default();
        loop {
            if !manner.dry_run {
                self.memory.settle_grants(None).await?;
            }
            let round = self.close_round(manner, grace, progress).await?;
            if manner.dry_run {
                return Ok(round);
            }
            done.closed += round.closed;
            done.waiting = round.waiting;
            // Grants of a period are settled once the one before it is closed, and then the period can be.
            if round.closed == 0 || round.waiting == 0 {
                break;
            }
        }
        self.book_returns().await?;
        self.memory.send_untold_capacities().await?;
        Ok(done)
    }

    async fn close_round(&self, manner: Manner, grace: Duration, progress: &RunProgress) -> Answer<Closed> {
        let now_ms = self.core.gate_now_ms();
        let as_of_ms = manner.as_of_ms.map_or(now_ms, |at_ms| at_ms.min(now_ms));
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let ended_by_ms = as_of_ms.saturating_sub(grace_ms).max(0);
        match self.core.ledger.count_periods_to_close(ended_by_ms).await {
            Ok(left) => progress.set_left(left),
            Err(error) => tracing::info!(%error, "how many periods are to be closed is not known"),
        }
        let (mut done, mut after) = (Closed::default(), None);
        let boundaries = &Boundaries::new(&self.core);
        loop {
            let page = self.core.ledger.periods_to_close(ended_by_ms, after.as_ref(), PAGE).await?;
            after = page.last().cloned();
            let Some(last) = &after else { break };
            let instant_ms = last.period.end_ms.saturating_add(grace_ms);
            let mut by_partition: BTreeMap<Partition, Vec<EndedPeriod>> = BTreeMap::new();
            for ended in page {
                by_partition.entry(self.core.gate.partition_of(&ended.tenant)).or_default().push(ended);
            }
            let close = |(partition, periods): (_, Vec<_>)| async move {
                let place = match manner.dry_run {
                    true => Ok(Some(OutboxId::default())),
                    false => boundaries.pass_to_close(partition, instant_ms).await,
                };
                let closed = match place {
                    Ok(place) => self.close_chunks(partition, &periods, place, manner, grace).await,
                    Err(error) => Err(error),
                };
                let closed = self.unless_away(partition, periods.len(), closed).await?;
                progress.add(closed.closed);
                Answer::Ok(closed)
            };
            // While one waits for its boundary to be booked, or for the ledger, another one is prepared.
            let mut closing = stream::iter(by_partition).map(close).buffer_unordered(PARTITIONS_AT_ONCE);
            while let Some(closed) = closing.next().await {
                done.add(closed?);
            }
        }
        Ok(done)
    }

    async fn close_chunks(
        &self,
        partition: Partition,
        periods: &[EndedPeriod],
        place: Option<OutboxId>,
        manner: Manner,
        grace: Duration,
    ) -> Answer<Closed> {
        let Some(after) = place else { return Ok(waiting(periods.len())) };
        let closing = Closing { after, grace, dry_run: manner.dry_run, now_ms: self.core.gate_now_ms() };
        let mut done = Closed::default();
        for chunk in chunks(periods) {
            let (closed, going_on) = self.close_chunk(partition, chunk, closing).await?;
            done.add(closed);
            if !going_on.is_empty() {
                done.add(self.close_chunk(partition, &going_on, closing).await?.0);
            }
        }
        Ok(done)
    }

    /// Returns also the periods whose next ones have to be known.
    async fn close_chunk(
        &self,
        partition: Partition,
        chunk: &[EndedPeriod],
        closing: Closing,
    ) -> Answer<(Closed, Vec<EndedPeriod>)> {
        let may_go_on = chunk.iter().filter(|ended| ended.may_go_on);
        self.core.policy.read_ahead(may_go_on.map(|ended| &ended.tenant)).await;
        for _ in 0..TRIES {
            let mut closed = Vec::with_capacity(chunk.len());
            for ended in chunk {
                let (next, rollover_ends_ms) =
                    if ended.may_go_on { self.next_period(ended).await? } else { (None, None) };
                closed.push(ClosingPeriod { ended: ended.clone(), next, rollover_ends_ms });
            }
            match self.core.ledger.close_periods(partition, &closed, closing).await {
                Ok(done) => return Ok(done),
                Err(refused) => self.core.policy.tenant_moved(refused).await.map(drop)?,
            }
        }
        Ok((waiting(chunk.len()), Vec::new()))
    }

    /// Books what returned of holds that were carried over.
    async fn book_returns(&self) -> Answer<()> {
        for partition in self.core.ledger.partitions_with_returns().await? {
            let now_ms = self.core.gate_now_ms();
            loop {
                match self.core.ledger.book_carried_returns(partition, now_ms).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        self.unless_away(partition, 0, Err(error.into())).await?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The period after this one by policy; none where the tenant has no such quota any more. And when the last period
    /// ends in which counts what rolls over.
    async fn next_period(&self, ended: &EndedPeriod) -> Answer<(Option<QuotaPeriod>, Option<i64>)> {
        let Some(entry) = self.core.policy.find_tenant(&ended.tenant).await? else { return Ok((None, None)) };
        let end_of_next = |end_ms, _| entry.calendars.window(WindowKind::Period, end_ms).end_ms;
        let ends_ms = (0..ended.rollover_periods).fold(ended.period.end_ms, end_of_next);
        let is_archived = entry.definition.archived;
        let next = quota_period(&entry, &ended.meter, ended.period.end_ms).filter(|_| !is_archived);
        Ok((next, Some(ends_ms)))
    }

    /// Passes over a partition that cannot be closed, so that the others go on; fails only when a server is away.
    async fn unless_away(
        &self,
        partition: Partition,
        periods: usize,
        closed: Answer<Closed>,
    ) -> Answer<Closed> {
        let error: OperationError = match closed {
            Ok(closed) => return Ok(closed),
            Err(error) if error.is_server_away() => return Err(error),
            Err(error) => error,
        };
        self.core.damage.pass_over(Work::Close, &format!("partition {partition}"), &error).await;
        Ok(waiting(periods))
    }
}

/// Parts of at most [`CHUNK`] periods that name each tenant's meter once: what one of its periods rolls over has to
/// be booked before the next one is closed.
fn chunks(periods: &[EndedPeriod]) -> Vec<&[EndedPeriod]> {
    let (mut chunks, mut named, mut from) = (Vec::new(), HashSet::new(), 0);
    for (at, ended) in periods.iter().enumerate() {
        if at - from == CHUNK || !named.insert((&ended.tenant, &ended.meter)) {
            chunks.extend(periods.get(from..at));
            named = HashSet::from([(&ended.tenant, &ended.meter)]);
            from = at;
        }
    }
    chunks.extend(periods.get(from..).filter(|rest| !rest.is_empty()));
    chunks
}

fn waiting(periods: usize) -> Closed {
    Closed { waiting: u64::try_from(periods).unwrap_or(u64::MAX), ..Closed::default() }
}
