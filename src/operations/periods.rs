//! The close of periods: once a period's grace is over and everything in it is booked, open holds go over to the next
//! one, what is unused rolls over or lapses, and what was used beyond the quota becomes overage.

use std::collections::{BTreeMap, HashMap, HashSet};
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
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::memory::{Memory, quota_period};
use crate::operations::run_progress::RunProgress;

/// How many periods are read at once: so many that those of one partition fill a chunk.
const PAGE: usize = 51_200;
/// How many are closed in one transaction; the writer waits for its partition meanwhile.
const CHUNK: usize = 200;
/// In how many partitions periods are closed side by side: while the books of one are written, what another's close
/// needs is worked out.
const PARTITIONS_AT_ONCE: usize = 3;
/// In how many partitions at once it is waited for what is booked there first.
const PASSED_AT_ONCE: usize = 8;
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
    /// settled and for the period before it. A tenant whose periods cannot be closed is reported and keeps no other
    /// waiting. A run may end anywhere: each chunk is closed wholly or not at all, and a later run goes on.
    ///
    /// Errors: a server is away or the writer lags, for some partitions at least. All others are closed.
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
        let (mut done, mut left) = (Closed::default(), LeftPartitions::default());
        loop {
            if !manner.dry_run {
                self.memory.settle_grants_except(None, &mut left).await?;
            }
            let round = self.close_round(manner, grace, progress, &mut left).await?;
            if manner.dry_run {
                return left.end_run(round);
            }
            done = Closed { closed: done.closed + round.closed, ..round };
            // Grants of a period are settled once the one before it is closed, and then the period can be.
            if round.closed == 0 || round.waiting == 0 {
                break;
            }
        }
        self.book_returns(&mut left).await?;
        self.memory.send_untold_except(&mut left).await?;
        left.end_run(done)
    }

    async fn close_round(
        &self,
        manner: Manner,
        grace: Duration,
        progress: &RunProgress,
        left: &mut LeftPartitions,
    ) -> Answer<Closed> {
        let now_ms = self.core.trusted_now_ms()?;
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
            let mut not_left = Vec::with_capacity(by_partition.len());
            for (partition, periods) in by_partition {
                match left.has(partition) {
                    true => done.add(waiting(periods.len())),
                    false => not_left.push((partition, periods, left.of(partition))),
                }
            }
            let partitions = not_left.iter().map(|(partition, ..)| *partition);
            let partitions = if manner.dry_run { Vec::new() } else { partitions.collect() };
            let mut places = pass_in(partitions, boundaries, instant_ms).await;
            let closing = stream::iter(not_left).map(|(partition, periods, mut left)| {
                let place = match manner.dry_run {
                    true => Ok(Some(OutboxId::default())),
                    false => places.remove(&partition).unwrap_or(Ok(None)),
                };
                async move {
                    let closed = self.close_in(partition, &periods, place, (manner, grace), &mut left).await;
                    progress.add(closed.closed);
                    (closed, left)
                }
            });
            let mut closing = closing.buffer_unordered(PARTITIONS_AT_ONCE);
            while let Some((closed, left_of_it)) = closing.next().await {
                done.add(closed);
                left.merge(left_of_it);
            }
        }
        Ok(done)
    }

    /// Closes periods of one partition as of a place, if everything that the gate did before it is booked there.
    async fn close_in(
        &self,
        partition: Partition,
        periods: &[EndedPeriod],
        place: Answer<Option<OutboxId>>,
        (manner, grace): (Manner, Duration),
        left: &mut LeftPartitions,
    ) -> Closed {
        match place {
            Ok(Some(after)) => {
                let now_ms = self.core.gate_now_ms();
                let closing = Closing { after, grace, dry_run: manner.dry_run, now_ms };
                self.close_chunks(partition, periods, closing, left).await
            }
            Ok(None) => waiting(periods.len()),
            Err(error) => {
                let item = format!("partition {partition}");
                left.go_on(partition, error, (&self.core.damage, Work::Close, &item)).await;
                waiting(periods.len())
            }
        }
    }

    async fn close_chunks(
        &self,
        partition: Partition,
        periods: &[EndedPeriod],
        closing: Closing,
        left: &mut LeftPartitions,
    ) -> Closed {
        let mut done = Closed::default();
        for chunk in chunks(periods) {
            let going_on = self.close_chunk_or_each(partition, chunk, closing, (&mut done, left)).await;
            if !going_on.is_empty() {
                self.close_chunk_or_each(partition, &going_on, closing, (&mut done, left)).await;
            }
        }
        done
    }

    /// Closes a chunk together or, where that fails, tenant by tenant: one that cannot be closed waits alone. Returns
    /// the periods whose next ones have to be known.
    async fn close_chunk_or_each(
        &self,
        partition: Partition,
        chunk: &[EndedPeriod],
        closing: Closing,
        (done, left): (&mut Closed, &mut LeftPartitions),
    ) -> Vec<EndedPeriod> {
        if !left.has(partition) {
            match self.close_chunk(partition, chunk, closing).await {
                Ok((closed, going_on)) => {
                    done.add(closed);
                    return going_on;
                }
                Err(error) if error.may_be_of_one() => {}
                Err(error) => left.leave(partition, error),
            }
        }
        let mut all_going_on = Vec::new();
        for periods in chunk.chunk_by(|one, next| one.tenant == next.tenant) {
            let Some(first) = periods.first() else { continue };
            if left.has(partition) {
                done.add(waiting(periods.len()));
                continue;
            }
            match self.close_chunk(partition, periods, closing).await {
                Ok((closed, going_on)) => {
                    done.add(closed);
                    all_going_on.extend(going_on);
                }
                Err(error) => {
                    let item = format!("tenant {}", first.tenant);
                    left.go_on(partition, error, (&self.core.damage, Work::Close, &item)).await;
                    done.add(match left.has(partition) {
                        true => waiting(periods.len()),
                        false => Closed { failed: count(periods.len()), ..Closed::default() },
                    });
                }
            }
        }
        all_going_on
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

    /// Books what returned of holds that were carried over: of a partition together or, where that fails, quota by
    /// quota.
    async fn book_returns(&self, left: &mut LeftPartitions) -> Answer<()> {
        for partition in self.core.ledger.partitions_with_returns().await? {
            let now_ms = self.core.trusted_now_ms()?;
            let mut booked = Ok(1);
            while !left.has(partition) && booked.as_ref().is_ok_and(|count| *count > 0) {
                let more = self.core.ledger.book_carried_returns(partition, now_ms).await;
                booked = more.map_err(OperationError::from);
            }
            match booked {
                Ok(_) => {}
                Err(error) if error.may_be_of_one() => self.book_each_return(partition, now_ms, left).await?,
                Err(error) => left.leave(partition, error),
            }
        }
        Ok(())
    }

    async fn book_each_return(
        &self,
        partition: Partition,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<()> {
        for (tenant, meter) in self.core.ledger.quotas_with_returns(partition).await? {
            if left.has(partition) {
                break;
            }
            if let Err(error) = self.core.ledger.book_returns_of(partition, &tenant, &meter, now_ms).await {
                let item = format!("tenant {tenant}");
                left.go_on(partition, error.into(), (&self.core.damage, Work::Close, &item)).await;
            }
        }
        Ok(())
    }

    /// The period after this one by policy; none where the tenant has no such quota any more. And when the last period
    /// ends in which counts what rolls over.
    async fn next_period(&self, ended: &EndedPeriod) -> Answer<(Option<QuotaPeriod>, Option<i64>)> {
        let Some(entry) = self.core.policy.find_tenant(&ended.tenant).await? else { return Ok((None, None)) };
        // By the calendar in force as the next period begins: whether a later one is known depends on when this runs.
        let calendar = entry.calendars.at(ended.period.end_ms);
        let end_of_next = |end_ms, passed| match passed {
            0 => entry.calendars.window(WindowKind::Period, end_ms).end_ms,
            _ => calendar.window(WindowKind::Period, end_ms).end_ms,
        };
        let ends_ms = (0..ended.rollover_periods).fold(ended.period.end_ms, end_of_next);
        let is_archived = entry.definition.archived;
        let next = quota_period(&entry, &ended.meter, ended.period.end_ms).filter(|_| !is_archived);
        Ok((next, Some(ends_ms)))
    }
}

/// Passes an instant in these partitions, before anything is closed: the writer that books there waits for a
/// partition in which periods are being closed. Returns their places.
async fn pass_in(
    partitions: Vec<Partition>,
    boundaries: &Boundaries<'_>,
    instant_ms: i64,
) -> HashMap<Partition, Answer<Option<OutboxId>>> {
    let passing = stream::iter(partitions)
        .map(|partition| async move { (partition, boundaries.pass_to_close(partition, instant_ms).await) });
    passing.buffer_unordered(PASSED_AT_ONCE).collect().await
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
    Closed { waiting: count(periods), ..Closed::default() }
}

fn count(periods: usize) -> u64 {
    u64::try_from(periods).unwrap_or(u64::MAX)
}
