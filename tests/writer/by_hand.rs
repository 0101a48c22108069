//! Outboxes that are kept by hand, and who watches a writer of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tollgate::domain::ids::{Epoch, OutboxId, Partition, TenantId};
use tollgate::ledger::Ledger;
use tollgate::writer::{
    Alarm, Outbox, OutboxEntry, OutboxError, TailStretch, Writer, WriterObserver, WriterOptions,
};

use crate::ledger::events::{Work, at, partition};

/// Outboxes kept by hand.
#[derive(Clone, Default)]
pub(super) struct Hand {
    streams: Arc<Mutex<BTreeMap<Partition, Vec<OutboxEntry>>>>,
    pub(super) published: Arc<Mutex<BTreeMap<Partition, OutboxId>>>,
    adopted: Arc<Mutex<BTreeMap<Partition, Epoch>>>,
    at_next_read: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
}

impl Hand {
    pub(super) fn append(&self, partition: Partition, epoch: u64, event: Vec<u8>) {
        let mut streams = self.streams.lock().unwrap();
        let stream = streams.entry(partition).or_default();
        let last = stream.last().map(|(id, _)| *id).filter(|id| id.epoch.0 == epoch);
        let sequence = last.map_or(0, |id| id.sequence + 1);
        stream.push((at(&format!("{epoch}-{sequence}")), event));
    }

    /// What happens beside the next read.
    pub(super) fn at_next_read(&self, happens: impl Future<Output = ()> + Send + 'static) {
        *self.at_next_read.lock().unwrap() = Some(happens.boxed());
    }

    /// How many bytes the events of all partitions take.
    pub(super) fn bytes(&self) -> u64 {
        let streams = self.streams.lock().unwrap();
        streams.values().flatten().map(|(_, event)| event.len() as u64).sum()
    }

    pub(super) fn adopt(&self, partition: Partition, epoch: u64) {
        self.adopted.lock().unwrap().insert(partition, Epoch(epoch));
    }

    /// Loses its last event.
    pub(super) fn lose_last(&self, partition: Partition) -> OutboxEntry {
        self.streams.lock().unwrap().get_mut(&partition).unwrap().pop().unwrap()
    }

    /// Loses its event number `index`.
    pub(super) fn lose_at(&self, partition: Partition, index: usize) {
        self.streams.lock().unwrap().get_mut(&partition).unwrap().remove(index);
    }

    /// Has an event again that was lost.
    pub(super) fn put_back(&self, partition: Partition, entry: OutboxEntry) {
        self.streams.lock().unwrap().get_mut(&partition).unwrap().push(entry);
    }

    pub(super) fn lose(&self, partition: Partition) {
        self.streams.lock().unwrap().remove(&partition);
    }

    pub(super) fn ids(&self, partition: Partition) -> Vec<String> {
        let streams = self.streams.lock().unwrap();
        streams.get(&partition).into_iter().flatten().map(|(id, _)| id.to_string()).collect()
    }
}

impl Outbox for Hand {
    async fn read(
        &self,
        from: &[(Partition, OutboxId)],
        count: usize,
    ) -> Result<Vec<(Partition, Vec<OutboxEntry>)>, OutboxError> {
        let happens = self.at_next_read.lock().unwrap().take();
        if let Some(happens) = happens {
            happens.await;
        }
        let streams = self.streams.lock().unwrap();
        let read = |(partition, from): &(Partition, OutboxId)| {
            let stream = streams.get(partition).into_iter().flatten();
            (*partition, stream.filter(|(id, _)| id >= from).take(count).cloned().collect())
        };
        Ok(from.iter().map(read).collect())
    }

    async fn epochs(&self, partitions: &[Partition]) -> Result<Vec<(Partition, Option<Epoch>)>, OutboxError> {
        let adopted = self.adopted.lock().unwrap();
        Ok(partitions.iter().map(|partition| (*partition, adopted.get(partition).copied())).collect())
    }

    async fn wait(
        &self,
        after: &[(Partition, OutboxId)],
        timeout: Duration,
    ) -> Result<Vec<Partition>, OutboxError> {
        let news: Vec<_> = {
            let streams = self.streams.lock().unwrap();
            let has_news = |(partition, place): &&(Partition, OutboxId)| {
                let last = streams.get(partition).and_then(|stream| stream.last());
                last.is_some_and(|(id, _)| id > place)
            };
            after.iter().filter(has_news).map(|(partition, _)| *partition).collect()
        };
        if news.is_empty() {
            tokio::time::sleep(timeout).await;
        }
        Ok(news)
    }

    async fn publish(&self, booked: &[(Partition, OutboxId)]) -> Result<(), OutboxError> {
        self.published.lock().unwrap().extend(booked.iter().copied());
        Ok(())
    }

    async fn standing(
        &self,
        up_to: &[(Partition, OutboxId)],
    ) -> Result<Vec<(Partition, Vec<TailStretch>)>, OutboxError> {
        let streams = self.streams.lock().unwrap();
        let standing = |(partition, place): &(Partition, OutboxId)| {
            let booked = streams.get(partition).into_iter().flatten().filter(|(id, _)| id <= place);
            let standing = booked.map(|(last, event)| TailStretch {
                last: *last,
                age: Duration::ZERO,
                bytes: event.len() as u64,
            });
            (*partition, standing.collect())
        };
        Ok(up_to.iter().map(standing).collect())
    }

    async fn trim(&self, partition: Partition, below: OutboxId) -> Result<(), OutboxError> {
        if let Some(stream) = self.streams.lock().unwrap().get_mut(&partition) {
            stream.retain(|(id, _)| *id >= below);
        }
        Ok(())
    }
}

#[derive(Clone, Default)]
pub(super) struct Alarms(Arc<Mutex<Vec<Alarm>>>);

impl Alarms {
    pub(super) fn all(&self) -> Vec<Alarm> {
        self.0.lock().unwrap().clone()
    }
}

impl WriterObserver for Alarms {
    fn alarm(&self, alarm: &Alarm) {
        self.0.lock().unwrap().push(alarm.clone());
    }
}

/// Alarms of a writer while a caller always waits for the books.
#[derive(Clone, Default)]
pub(super) struct Impatient(pub(super) Alarms);

impl WriterObserver for Impatient {
    fn alarm(&self, alarm: &Alarm) {
        self.0.alarm(alarm);
    }

    async fn wanted(&self) {}
}

/// Outboxes of which one has a new event whenever the writer waits.
pub(super) struct Busy {
    pub(super) hand: Hand,
    pub(super) tenant: TenantId,
    pub(super) jobs: AtomicU64,
}

impl Outbox for Busy {
    async fn read(
        &self,
        from: &[(Partition, OutboxId)],
        count: usize,
    ) -> Result<Vec<(Partition, Vec<OutboxEntry>)>, OutboxError> {
        self.hand.read(from, count).await
    }

    async fn epochs(&self, partitions: &[Partition]) -> Result<Vec<(Partition, Option<Epoch>)>, OutboxError> {
        self.hand.epochs(partitions).await
    }

    async fn wait(&self, _: &[(Partition, OutboxId)], _: Duration) -> Result<Vec<Partition>, OutboxError> {
        let job = format!("job-{}", self.jobs.fetch_add(1, Ordering::SeqCst));
        let place = partition(&self.tenant);
        self.hand.append(place, 1, Work::new(&self.tenant, &job, &[("ocr.page", 1)]).reserve());
        Ok(vec![place])
    }

    async fn publish(&self, booked: &[(Partition, OutboxId)]) -> Result<(), OutboxError> {
        self.hand.publish(booked).await
    }

    async fn standing(
        &self,
        up_to: &[(Partition, OutboxId)],
    ) -> Result<Vec<(Partition, Vec<TailStretch>)>, OutboxError> {
        self.hand.standing(up_to).await
    }

    async fn trim(&self, partition: Partition, below: OutboxId) -> Result<(), OutboxError> {
        self.hand.trim(partition, below).await
    }
}

pub(super) fn options(owner: &str) -> WriterOptions {
    WriterOptions {
        owner: owner.into(),
        safety_tail: Duration::ZERO,
        batch_events: 64,
        ..WriterOptions::default()
    }
}

/// A writer without a safety tail.
pub(super) fn writer(hand: &Hand, ledger: &Ledger, alarms: &Alarms) -> Writer<Hand, Alarms> {
    Writer::new(hand.clone(), ledger.clone(), alarms.clone(), options("one"))
}

pub(super) async fn drain(writer: &mut Writer<Hand, Alarms>) {
    while {
        let pass = writer.pass().await.unwrap();
        pass.more || pass.applied.events > 0
    } {}
}
