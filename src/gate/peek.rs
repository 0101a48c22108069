//! `peek`: reads counters and reservations without changing them.

use redis::{Pipeline, Value};

use crate::domain::codec::{Reader, Undecodable};
use crate::domain::counter::Counter;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::reservation::{Record, SubjectHash};

use super::Gate;
use super::call::time_argument;
use super::conduct::with_conduct;
use super::connections::plain_error;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::reserve::{Cold, CounterReading, read_cold};
use super::scripts::Script;
use super::status::Status;

/// The value in a subject's header, instead of a time, when a script made the hash and no restore wrote it.
const MADE_BY_A_SCRIPT: i64 = -1;

/// The most counters, and the most light ones, that one script reads.
const COUNTERS_AT_ONCE: usize = 255;

/// A tenant's state, or one of its subjects'.
pub type WarmAsk<'a> = (Partition, &'a TenantId, Option<SubjectHash>);

/// Counters to read.
#[derive(Debug)]
pub struct PeekCall<'a> {
    /// The tenant's partition.
    pub partition: Partition,
    /// Their tenant.
    pub tenant: &'a TenantId,
    /// The subjects' hashes; a counter's scope index n means the n-th.
    pub subjects: &'a [SubjectHash],
    /// The counters; their lines are not used.
    pub counters: &'a [Counter],
    /// Light counters, which the gate alone keeps, likewise.
    pub light: &'a [Counter],
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// Counters as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedCounters {
    /// In the order asked; those that `cold` concerns are not current.
    pub readings: Vec<CounterReading>,
    /// Those of the light counters, in the order asked.
    pub light: Vec<CounterReading>,
    /// What is cold; none when everything asked for is warm.
    pub cold: Option<Cold>,
    /// The outbox's last id.
    pub last_id: OutboxId,
    /// The script's time (unix ms).
    pub now_ms: i64,
}

impl PeekedCounters {
    /// The same with what was read next of further counters.
    fn with(mut self, next: Self) -> Self {
        let before = self.readings.len();
        self.readings.extend(next.readings);
        self.light.extend(next.light);
        let behind =
            |cold: Cold| Cold { counters: cold.counters.iter().map(|at| at + before).collect(), ..cold };
        self.cold = match (self.cold, next.cold.map(behind)) {
            (Some(cold), Some(more)) => Some(both(cold, more)),
            (cold, more) => cold.or(more),
        };
        Self { last_id: next.last_id, now_ms: next.now_ms, ..self }
    }
}

/// What either of two reads has found cold; the second comes after the first.
fn both(mut cold: Cold, next: Cold) -> Cold {
    for holder in next.holders {
        if !cold.holders.contains(&holder) {
            cold.holders.push(holder);
        }
    }
    cold.counters.extend(next.counters);
    Cold {
        last_id: next.last_id,
        tenant: cold.tenant || next.tenant,
        only_bounds: cold.only_bounds && next.only_bounds,
        ..cold
    }
}

/// The counters of this page.
fn page(all: &[Counter], number: usize) -> &[Counter] {
    all.chunks(COUNTERS_AT_ONCE).nth(number).unwrap_or_default()
}

/// When a state hash with this header was restored (unix ms), if that was in this epoch.
fn restored_at_ms(header: &Value, epoch: Epoch) -> Option<i64> {
    let Value::BulkString(header) = header else { return None };
    let mut header = Reader::new(header);
    let is_of_epoch = header.u64().ok()? == epoch.0;
    header.i64().ok().filter(|_| is_of_epoch)
}

/// A reservation, if the gate has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedRecord {
    /// The record; none when the gate has none of this epoch, or it is another tenant's.
    pub record: Option<Record>,
    /// The outbox's last id.
    pub last_id: OutboxId,
    /// The script's time (unix ms).
    pub now_ms: i64,
}

impl Gate {
    /// Whether each of these was restored in its partition's epoch, in one pipeline. A subject's hash that a script
    /// made does not count: it lacks what came before.
    pub async fn are_warm(&self, asked: &[WarmAsk<'_>]) -> Result<Vec<bool>, GateError> {
        let keys = asked.iter().map(|(partition, tenant, subject)| match subject {
            None => self.keys.tenant(*partition, tenant),
            Some(hash) => self.keys.subject(*partition, tenant, *hash),
        });
        let answers = self.headers(keys.collect()).await?;
        let is_warm = |(partition, _, subject): &WarmAsk<'_>, header: &Value| match header {
            Value::BulkString(header) => {
                let mut header = Reader::new(header);
                let epoch = header.u64().ok().map(Epoch);
                let asks = header.i64().and_then(|_| header.i64());
                let is_made = asks == Ok(MADE_BY_A_SCRIPT) && subject.is_some();
                epoch == self.epoch(*partition) && !is_made
            }
            _ => false,
        };
        Ok(asked.iter().zip(&answers).map(|(asked, header)| is_warm(asked, header)).collect())
    }

    /// From which instant on (unix ms) scripts take each of these subjects as restored: one that no restore wrote, with
    /// its tenant.
    pub async fn restored_at_ms(
        &self,
        partition: Partition,
        tenant: &TenantId,
        subjects: &[SubjectHash],
    ) -> Result<Vec<i64>, GateError> {
        let own = subjects.iter().map(|hash| self.keys.subject(partition, tenant, *hash));
        let keys = std::iter::once(self.keys.tenant(partition, tenant)).chain(own);
        let answers = self.headers(keys.collect()).await?;
        let epoch = self.epoch(partition).unwrap_or_default();
        let mut restored = answers.iter().map(|header| restored_at_ms(header, epoch));
        let of_tenant = restored.next().flatten().unwrap_or(i64::MIN);
        Ok(restored.map(|own| own.unwrap_or(of_tenant)).collect())
    }

    /// The headers of these state hashes, in one pipeline.
    async fn headers(&self, keys: Vec<String>) -> Result<Vec<Value>, GateError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in &keys {
            pipeline.cmd("HGET").arg(key).arg("h");
        }
        let patience = self.patience() + self.options.connect_timeout;
        tokio::time::timeout(patience, self.links.pick().send_all(&pipeline, keys.len()))
            .await
            .map_err(|_| GateError::Timeout)?
            .map_err(|error| plain_error(&error))
    }

    /// Reads counters as they are, even of a tenant that is partly cold; very many of them by several scripts.
    pub async fn peek_counters(&self, call: &PeekCall<'_>) -> Result<PeekedCounters, GateError> {
        let mut peeked: Option<PeekedCounters> = None;
        let pages = call.counters.len().max(call.light.len()).div_ceil(COUNTERS_AT_ONCE);
        for number in 0..pages.max(1) {
            let (counters, light) = (page(call.counters, number), page(call.light, number));
            let next = self.peek_page(&PeekCall { counters, light, ..*call }).await?;
            peeked = Some(match peeked {
                None => next,
                Some(before) => before.with(next),
            });
        }
        peeked.ok_or(Undecodable("an answer of peek").into())
    }

    async fn peek_page(&self, call: &PeekCall<'_>) -> Result<PeekedCounters, GateError> {
        let malformed = |reason| GateError::Malformed { script: "peek", reason };
        let pack = |counters: &[Counter]| -> Result<_, GateError> {
            let counts: Vec<_> = counters.iter().map(Count::read_with_conduct).collect();
            check_counters(&counts, call.subjects.len(), usize::from(u8::MAX)).map_err(malformed)?;
            let mut packed = Vec::with_capacity(1 + 48 * counters.len());
            pack_counters(&counts, &[], &mut packed);
            Ok(packed)
        };
        let partition = call.partition;
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        keys.push(self.keys.tenant(partition, call.tenant));
        keys.extend(call.subjects.iter().map(|hash| self.keys.subject(partition, call.tenant, *hash)));
        let packed = pack(call.counters)?;
        let mut light = Vec::new();
        if !call.light.is_empty() {
            light = pack(call.light)?;
            keys.push(self.keys.light(partition, call.tenant, None));
            keys.extend(
                call.subjects.iter().map(|hash| self.keys.light(partition, call.tenant, Some(*hash))),
            );
        }
        let arguments = [self.epoch_argument(partition)?, time_argument(call.now_ms), packed, light];
        let reply = self.run(partition, Script::Peek, &keys, &arguments).await?;
        let cold = match reply.status {
            Status::Done => None,
            Status::Cold => Some(read_cold(&reply, 4)?),
            _ => return Err(Undecodable("a status of peek").into()),
        };
        Ok(PeekedCounters {
            readings: with_conduct(reply.readings(0)?, reply.bytes(2)?)?,
            light: with_conduct(reply.readings(1)?, reply.bytes(3)?)?,
            cold,
            last_id: reply.id,
            now_ms: reply.now_ms,
        })
    }

    /// Reads one reservation, unless the caller is bound to another tenant.
    pub async fn peek_record(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        now_ms: Option<i64>,
    ) -> Result<PeekedRecord, GateError> {
        let partition = id.partition();
        let keys = [self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(id)];
        let bound = bound.map_or_else(Vec::new, |tenant| tenant.as_str().as_bytes().to_vec());
        let arguments = [self.epoch_argument(partition)?, time_argument(now_ms), bound];
        let reply = self.run(partition, Script::PeekRecord, &keys, &arguments).await?;
        let record = match reply.status {
            Status::Done => Some(reply.record(0)?),
            Status::Unknown => None,
            _ => return Err(Undecodable("a status of peek_record").into()),
        };
        Ok(PeekedRecord { record, last_id: reply.id, now_ms: reply.now_ms })
    }
}
