//! The connections, the scripts, and one method for each script.

use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, FromRedisValue, Value};

use super::*;
use crate::domain::amount::{Amount, Units};
use crate::domain::codec::{Reader, Write};
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::reservation::{BodyRest, CounterPlace, LineUnits, Record, ReservationState, SubjectHash};

const RESERVE: &str = include_str!("../../lua/reserve.lua");
const CONSUME: &str = include_str!("../../lua/consume.lua");
const RELEASE: &str = include_str!("../../lua/release.lua");
const EXTEND: &str = include_str!("../../lua/extend.lua");
const EXPIRE: &str = include_str!("../../lua/expire.lua");
const PEEK: &str = include_str!("../../lua/peek.lua");
const RESTORE: &str = include_str!("../../lua/restore.lua");
const CAPACITY: &str = include_str!("../../lua/capacity.lua");
const ADOPT: &str = include_str!("../../lua/adopt.lua");
const PUBLISH: &str = include_str!("../../lua/publish.lua");

const INCLUDES: [(&str, &str); 8] = [
    ("clock", include_str!("../../lua/include/clock.lua")),
    ("last_id", include_str!("../../lua/include/last_id.lua")),
    ("record", include_str!("../../lua/include/record.lua")),
    ("outbox", include_str!("../../lua/include/outbox.lua")),
    ("due", include_str!("../../lua/include/due.lua")),
    ("counters", include_str!("../../lua/include/counters.lua")),
    ("resolve", include_str!("../../lua/include/resolve.lua")),
    ("consume", include_str!("../../lua/include/consume.lua")),
];

#[derive(Clone, Copy)]
enum Script {
    Reserve,
    ConsumePart,
    ConsumeFinal,
    Release,
    Extend,
    Expire,
    Peek,
    Restore,
    Capacity,
    Adopt,
    Publish,
}

const SCRIPTS: [(Script, &str, &str, &str); 11] = [
    (Script::Reserve, "reserve", RESERVE, ""),
    (Script::ConsumePart, "consume_part", CONSUME, ""),
    (Script::ConsumeFinal, "consume_final", CONSUME, "flags=allow-oom"),
    (Script::Release, "release", RELEASE, ""),
    (Script::Extend, "extend", EXTEND, ""),
    (Script::Expire, "expire", EXPIRE, ""),
    (Script::Peek, "peek", PEEK, ""),
    (Script::Restore, "restore", RESTORE, ""),
    (Script::Capacity, "capacity", CAPACITY, ""),
    (Script::Adopt, "adopt", ADOPT, ""),
    (Script::Publish, "publish", PUBLISH, ""),
];

fn source(text: &str, flags: &str, run_id: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("-- include ") {
            if name == "status" {
                for status in Status::ALL {
                    out.push_str(&format!("local {} = {}\n", status.lua_name(), status.code()));
                }
            } else if let Some((_, include)) = INCLUDES.iter().find(|(known, _)| *known == name) {
                out.push_str(include);
            }
        } else {
            out.push_str(&line.replace("{flags}", flags));
            out.push('\n');
        }
    }
    out.push_str(&format!("-- {run_id}\n"));
    out
}

struct Loaded {
    digests: Vec<String>,
}

/// The gate.
pub struct Gate {
    options: GateOptions,
    connections: Vec<ConnectionManager>,
    bell: tokio::sync::Mutex<redis::aio::MultiplexedConnection>,
    next: AtomicUsize,
    epochs: Vec<AtomicU64>,
    known: Vec<RwLock<OutboxId>>,
    loaded: RwLock<Arc<Loaded>>,
    offset_ms: AtomicI64,
    tags: Vec<String>,
}

fn unavailable(error: &redis::RedisError) -> GateError {
    if error.is_timeout() { GateError::Timeout } else { GateError::Unavailable(error.to_string()) }
}

fn tags(partitions: u16) -> Vec<String> {
    let crc = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
    let letters = "abcdefghijklmnopqrstuvwxyz";
    (0..partitions)
        .map(|number| {
            let wanted = (u32::from(number) * 2 + 1) * 16384 / (u32::from(partitions) * 2);
            let one = letters.chars().map(|a| a.to_string());
            let two = letters.chars().flat_map(|a| letters.chars().map(move |b| format!("{a}{b}")));
            one.chain(two)
                .map(|suffix| format!("p{number:02}{suffix}"))
                .min_by_key(|tag| (u32::from(crc.checksum(tag.as_bytes())) % 16384).abs_diff(wanted))
                .unwrap_or_default()
        })
        .collect()
}

struct Reply {
    values: Vec<Value>,
}

impl Reply {
    fn status(&self) -> Result<Status, GateError> {
        let code = self.integer(0)?;
        Status::from_code(code).ok_or(GateError::Undecodable(crate::domain::codec::Undecodable("status")))
    }
    fn integer(&self, at: usize) -> Result<i64, GateError> {
        let value = self.values.get(at).cloned().unwrap_or(Value::Nil);
        i64::from_redis_value(value)
            .map_err(|_| GateError::Undecodable(crate::domain::codec::Undecodable("integer")))
    }
    fn bytes(&self, at: usize) -> Result<Vec<u8>, GateError> {
        match self.values.get(at) {
            Some(Value::BulkString(bytes)) => Ok(bytes.clone()),
            _ => Err(GateError::Undecodable(crate::domain::codec::Undecodable("bytes"))),
        }
    }
    fn id(&self, at: usize) -> Result<OutboxId, GateError> {
        let text = String::from_utf8(self.bytes(at)?).unwrap_or_default();
        text.parse().map_err(|_| GateError::Undecodable(crate::domain::codec::Undecodable("outbox id")))
    }
    fn record(&self, at: usize) -> Result<Record, GateError> {
        Ok(Record::decode(&self.bytes(at)?)?)
    }
    fn readings(&self, at: usize) -> Result<Vec<CounterReading>, GateError> {
        let bytes = self.bytes(at)?;
        let mut reader = Reader::new(&bytes);
        let mut readings = Vec::new();
        while !reader.rest().is_empty() {
            let (consumed, reserved) = (reader.i64()?, reader.i64()?);
            let (capacity, next_end) = (reader.i64()?, reader.i64()?);
            let current = reader.u8()? == 1;
            readings.push(CounterReading {
                consumed: Units::new(consumed).unwrap_or_default(),
                reserved: Units::new(reserved).unwrap_or_default(),
                capacity: Units::new(capacity),
                next_hold_ends_at_ms: (next_end > 0).then_some(next_end),
                current,
            });
        }
        Ok(readings)
    }
    fn units(&self, at: usize) -> Result<Vec<Units>, GateError> {
        let bytes = self.bytes(at)?;
        let mut reader = Reader::new(&bytes);
        let mut all = Vec::new();
        while !reader.rest().is_empty() {
            all.push(Units::new(reader.i64()?).unwrap_or_default());
        }
        Ok(all)
    }
    fn indexes(&self, at: usize) -> Result<Vec<usize>, GateError> {
        Ok(self.bytes(at)?.into_iter().map(usize::from).collect())
    }
}

fn pack_totals(totals: &Totals) -> Result<Vec<u8>, GateError> {
    let mut out = Vec::new();
    let mut entry = |meter: &str, amount: &Amount, out: &mut Vec<u8>| -> Result<(), GateError> {
        let (mantissa, scale) = amount
            .mantissa_and_scale()
            .map_err(|_| GateError::Malformed { script: "consume", reason: "an amount beyond the bound" })?;
        out.put_text(meter);
        out.put_8(mantissa);
        out.put_byte(scale);
        Ok(())
    };
    match totals {
        Totals::Default => out.extend_from_slice(&[0, 0]),
        Totals::Single(amount) => {
            out.extend_from_slice(&[1, 1]);
            entry("", amount, &mut out)?;
        }
        Totals::ByMeter(lines) => {
            out.extend_from_slice(&[2, u8::try_from(lines.len()).unwrap_or(u8::MAX)]);
            for (meter, amount) in lines {
                entry(meter.as_str(), amount, &mut out)?;
            }
        }
    }
    Ok(out)
}

fn pack_checks(checks: &[CounterCheck]) -> Vec<u8> {
    let mut out = Vec::new();
    for check in checks {
        out.put_byte(check.place.holder);
        out.extend_from_slice(&check.place.field.0);
        out.put_8(check.place.window_start_ms);
        out.put_byte(u8::from(check.class == CounterClass::Rate));
        out.put_8(check.since_ms);
        out.put_8(match check.capacity {
            CheckCapacity::Limit(units) => units.get(),
            CheckCapacity::Quota { .. } => -2,
        });
        out.put_byte(u8::try_from(check.place.pairs.len()).unwrap_or(u8::MAX));
        for (line, weight) in &check.place.pairs {
            out.put_byte(*line);
            out.put_8(*weight);
        }
    }
    out
}

fn pack_counters(counters: &[RestoredCounter]) -> Vec<u8> {
    let mut out = Vec::new();
    for counter in counters {
        out.extend_from_slice(&counter.field.0);
        out.put_8(counter.window_start_ms);
        out.put_8(counter.consumed.get());
        out.put_8(counter.reserved.get());
        out.put_8(counter.next_hold_ends_at_ms.unwrap_or(0));
    }
    out
}

fn pack_capacity(capacity: &QuotaCapacity) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_8(i64::try_from(capacity.version).unwrap_or(i64::MAX));
    out.put_byte(u8::try_from(capacity.parts.len()).unwrap_or(u8::MAX));
    for (from, units) in &capacity.parts {
        out.put_8(*from);
        out.put_8(units.get());
    }
    out.put_8(capacity.until_ms);
    out
}

fn pack_capacities(capacities: &[QuotaCapacity]) -> Vec<u8> {
    let mut out = Vec::new();
    for capacity in capacities {
        let packed = pack_capacity(capacity);
        out.extend_from_slice(&capacity.field.0);
        out.put_byte(u8::try_from(packed.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(&packed);
    }
    out
}

#[allow(missing_docs, reason = "documented by the trait of the same methods")]
impl Gate {
    pub async fn connect(options: GateOptions) -> Result<Self, GateError> {
        let client =
            redis::Client::open(options.url.as_str()).map_err(|e| GateError::Settings(e.to_string()))?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(options.response_timeout))
            .set_connection_timeout(Some(options.connect_timeout));
        let mut connections = Vec::new();
        for _ in 0..options.connections.max(1) {
            let made = ConnectionManager::new_with_config(client.clone(), config.clone()).await;
            connections.push(made.map_err(|e| unavailable(&e))?);
        }
        let bell_config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let bell = client
            .get_multiplexed_async_connection_with_config(&bell_config)
            .await
            .map_err(|e| unavailable(&e))?;
        let count = usize::from(options.partitions);
        let mut first = connections[0].clone();
        let (seconds, micros): (i64, i64) =
            redis::cmd("TIME").query_async(&mut first).await.map_err(|e| unavailable(&e))?;
        let real = seconds * 1000 + micros / 1000;
        Ok(Self {
            tags: tags(options.partitions),
            connections,
            bell: tokio::sync::Mutex::new(bell),
            next: AtomicUsize::new(0),
            epochs: (0..count).map(|_| AtomicU64::new(0)).collect(),
            known: (0..count).map(|_| RwLock::new(OutboxId::default())).collect(),
            loaded: RwLock::new(Arc::new(Loaded { digests: Vec::new() })),
            offset_ms: AtomicI64::new(real - jiff_free_now_ms()),
            options,
        })
    }

    fn connection(&self) -> ConnectionManager {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[at].clone()
    }

    fn key(&self, p: Partition, rest: &str) -> String {
        format!("tg1:{{{}}}:{rest}", self.tags.get(p.index()).map_or("", String::as_str))
    }

    pub fn partition_of(&self, tenant: &TenantId) -> Partition {
        Partition::of(tenant, self.options.partitions)
    }

    pub fn subject_hash(&self, tenant: &TenantId, subject: &Subject) -> SubjectHash {
        use base64::Engine;
        let key = blake3::derive_key("tollgate subject hashes v1", &self.options.secret);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        for part in [tenant.as_str(), subject.kind.as_str(), subject.id.as_str()] {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        let text =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&hasher.finalize().as_bytes()[..9]);
        let mut hash = [b'='; 13];
        hash[1..].copy_from_slice(text.as_bytes());
        SubjectHash(hash)
    }

    pub fn set_epoch(&self, p: Partition, epoch: Epoch) {
        if let Some(slot) = self.epochs.get(p.index()) {
            slot.store(epoch.0, Ordering::Release);
        }
    }

    pub fn epoch(&self, p: Partition) -> Option<Epoch> {
        self.epochs.get(p.index()).map(|slot| slot.load(Ordering::Acquire)).filter(|e| *e > 0).map(Epoch)
    }

    pub fn note_cursor(&self, p: Partition, id: OutboxId) {
        if let Some(slot) = self.known.get(p.index()) {
            let mut known = slot.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            *known = (*known).max(id);
        }
    }

    pub fn highest_known(&self, p: Partition) -> OutboxId {
        self.known.get(p.index()).map_or_else(OutboxId::default, |slot| {
            *slot.read().unwrap_or_else(std::sync::PoisonError::into_inner)
        })
    }

    pub async fn run_id(&self) -> Result<String, GateError> {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut self.connection())
            .await
            .map_err(|e| unavailable(&e))?;
        let found = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        found.map(|id| id.trim().to_owned()).ok_or_else(|| GateError::Unavailable("no run_id in INFO".into()))
    }

    pub async fn load_scripts(&self, run_id: &str) -> Result<(), GateError> {
        let mut digests = Vec::new();
        for (_, _, text, flags) in SCRIPTS {
            let flags = if flags.is_empty() { "" } else { flags };
            let mut text = source(text, flags, run_id);
            text = text.replacen("#!lua \n", "#!lua\n", 1);
            let digest: String = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(text)
                .query_async(&mut self.connection())
                .await
                .map_err(|e| GateError::Script { script: "load", message: e.to_string() })?;
            digests.push(digest);
        }
        *self.loaded.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Arc::new(Loaded { digests });
        Ok(())
    }

    pub async fn partition_facts(&self, p: Partition) -> Result<PartitionFacts, GateError> {
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(self.key(p, "meta")).arg("epoch").arg("swept");
        pipe.cmd("XREVRANGE").arg(self.key(p, "outbox")).arg("+").arg("-").arg("COUNT").arg(1);
        let (meta, last): ((Option<u64>, Option<i64>), redis::streams::StreamRangeReply) =
            pipe.query_async(&mut self.connection()).await.map_err(|e| unavailable(&e))?;
        Ok(PartitionFacts {
            epoch: meta.0.map(Epoch),
            last_id: last.ids.first().and_then(|entry| entry.id.parse().ok()),
            swept: meta.1,
        })
    }

    async fn call(
        &self,
        script: Script,
        p: Partition,
        keys: &[String],
        epoch: u64,
        now: Option<i64>,
        args: &[&[u8]],
    ) -> Result<Reply, GateError> {
        let loaded = self.loaded.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let alarm = |reason: &str| GateError::Alarm { partition: p, reason: reason.into() };
        let Some(digest) = loaded.digests.get(script as usize) else {
            return Err(alarm("scripts are not loaded"));
        };
        let local = jiff_free_now_ms();
        let timeout = i64::try_from(self.options.response_timeout.as_millis()).unwrap_or(i64::MAX);
        let not_after = local + self.offset_ms.load(Ordering::Relaxed) + timeout;
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(digest).arg(keys.len());
        for key in keys {
            cmd.arg(key);
        }
        cmd.arg(epoch).arg(not_after).arg(now.map(|n| n.to_string()).unwrap_or_default());
        for arg in args {
            cmd.arg(*arg);
        }
        let value: Value = cmd.query_async(&mut self.connection()).await.map_err(|e| {
            let text = e.to_string();
            if text.contains("NOSCRIPT")
                || e.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript)
            {
                alarm("the server does not know the scripts")
            } else if matches!(e.kind(), redis::ErrorKind::Server(redis::ServerErrorKind::ResponseError)) {
                GateError::Script { script: SCRIPTS[script as usize].1, message: text }
            } else {
                unavailable(&e)
            }
        })?;
        let Value::Array(values) = value else {
            return Err(GateError::Script {
                script: SCRIPTS[script as usize].1,
                message: format!("{value:?}"),
            });
        };
        let reply = Reply { values };
        let real = reply.integer(1)?;
        self.offset_ms.store(real - jiff_free_now_ms(), Ordering::Relaxed);
        match reply.status()? {
            Status::Alarm => Err(alarm("the partition's memory is missing or of another epoch")),
            Status::TooLate => Err(GateError::TooLate),
            _ => Ok(reply),
        }
    }

    fn expected(&self, p: Partition) -> Result<u64, GateError> {
        self.epoch(p).map(|epoch| epoch.0).ok_or(GateError::NoEpoch(p))
    }

    fn acknowledged(&self, p: Partition, before: OutboxId, id: OutboxId) -> Result<(), GateError> {
        if id <= before {
            return Err(GateError::Alarm {
                partition: p,
                reason: format!("the outbox gave {id} after {before}"),
            });
        }
        self.note_cursor(p, id);
        Ok(())
    }

    pub async fn adopt(&self, p: Partition, epoch: Epoch, now: Option<i64>) -> Result<Epoch, GateError> {
        // Adopting comes before the scripts are loaded: it runs from its text.
        let text = source(ADOPT, "", "adopt");
        let mut cmd = Cmd::new();
        cmd.arg("EVAL").arg(text).arg(1).arg(self.key(p, "meta")).arg(epoch.0).arg(0);
        cmd.arg(now.map(|n| n.to_string()).unwrap_or_default()).arg(self.options.due_bucket_ms);
        let values: Vec<Value> =
            cmd.query_async(&mut self.connection()).await.map_err(|e| unavailable(&e))?;
        let adopted = Reply { values }.integer(3)?;
        Ok(Epoch(u64::try_from(adopted).unwrap_or_default()))
    }

    pub async fn reserve(&self, call: &ReserveCall<'_>) -> Result<ReserveOutcome, GateError> {
        let p = call.partition;
        let epoch = self.expected(p)?;
        let before = self.highest_known(p);
        let state = self.key(p, &format!("state:{}", call.tenant));
        let mut keys = vec![
            self.key(p, "meta"),
            self.key(p, "outbox"),
            self.key(p, &format!("rsv:{}", call.id.to_hex())),
            state.clone(),
        ];
        keys.extend(call.subjects.iter().map(|(_, hash)| format!("{state}:{}", hash.as_str())));
        let mode = match call.mode {
            ReserveMode::AllOrNothing => "1",
            ReserveMode::BestEffort => "2",
            ReserveMode::DryRun => "3",
            ReserveMode::Usage => "4",
        };
        let mut amounts = Vec::new();
        call.amounts.iter().for_each(|units| amounts.put_8(units.get()));
        let keyed = call.body.rest.as_ref().is_some_and(|rest| rest.keyed);
        let text = |n: i64| n.to_string().into_bytes();
        let args = [
            mode.as_bytes().to_vec(),
            text(call.valid.0),
            text(call.valid.1),
            text(call.ttl_ms),
            text(call.max_life_ms),
            if call.ledger_asked { b"1".to_vec() } else { b"0".to_vec() },
            call.id.as_bytes().to_vec(),
            call.id.to_hex().into_bytes(),
            self.key(p, "due:").into_bytes(),
            text(self.options.due_bucket_ms),
            text(self.tombstone(keyed)),
            amounts,
            pack_checks(&call.checks),
            call.body.encode(),
        ];
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let reply = self.call(Script::Reserve, p, &keys, epoch, call.now_ms, &args).await?;
        let now_ms = reply.integer(2)?;
        match reply.status()? {
            Status::Replayed => Ok(ReserveOutcome::Replayed {
                record: reply.record(3)?,
                readings: reply.readings(4)?,
                now_ms,
            }),
            Status::KeyReused => Ok(ReserveOutcome::KeyReused),
            Status::StaleWindow => Ok(ReserveOutcome::StaleWindow { now_ms }),
            Status::Cold => Ok(ReserveOutcome::Cold(Cold {
                last_id: reply.id(3)?,
                tenant: reply.integer(4)? == 1,
                holders: reply.bytes(5)?,
                counters: reply.indexes(6)?,
            })),
            Status::AskLedger => Ok(ReserveOutcome::AskLedger { last_id: reply.id(3)? }),
            Status::Refused => Ok(ReserveOutcome::Refused {
                now_ms,
                readings: reply.readings(3)?,
                refusing: reply.indexes(4)?,
                granted_by_line: reply.units(5)?,
            }),
            Status::Allowed => {
                Ok(ReserveOutcome::Allowed { granted: reply.units(5)?, now_ms, readings: reply.readings(3)? })
            }
            Status::Done => {
                let sequence = u64::try_from(reply.integer(5)?).unwrap_or_default();
                let event = OutboxId { epoch: Epoch(epoch), sequence };
                self.acknowledged(p, before, event)?;
                Ok(ReserveOutcome::Admitted {
                    granted: reply.units(4)?,
                    expires_at_ms: reply.integer(6)?,
                    event,
                    now_ms,
                    readings: reply.readings(3)?,
                })
            }
            _ => {
                Err(GateError::Script { script: "reserve", message: "an answer that fits no request".into() })
            }
        }
    }

    fn tombstone(&self, keyed: bool) -> i64 {
        if keyed { self.options.tombstone_keyed_ms } else { self.options.tombstone_unkeyed_ms }
    }

    fn resolve_keys(&self, id: ReservationId) -> [String; 3] {
        let p = id.partition();
        [self.key(p, "meta"), self.key(p, "outbox"), self.key(p, &format!("rsv:{}", id.to_hex()))]
    }

    pub async fn consume(&self, call: &ConsumeCall<'_>) -> Result<ResolveOutcome, GateError> {
        let script = if call.is_final { Script::ConsumeFinal } else { Script::ConsumePart };
        let totals = pack_totals(&call.totals)?;
        let is_final: &[u8] = if call.is_final { b"1" } else { b"0" };
        self.resolve(script, call.id, call.bound, call.now_ms, &[&totals, is_final]).await
    }

    pub async fn release(&self, call: &ReleaseCall<'_>) -> Result<ResolveOutcome, GateError> {
        let totals = pack_totals(&call.incurred)?;
        self.resolve(Script::Release, call.id, call.bound, call.now_ms, &[&totals]).await
    }

    async fn resolve(
        &self,
        script: Script,
        id: ReservationId,
        bound: Option<&TenantId>,
        now: Option<i64>,
        rest: &[&[u8]],
    ) -> Result<ResolveOutcome, GateError> {
        let p = id.partition();
        let states = self.key(p, "state:");
        let (keyed, unkeyed) = (self.tombstone(true).to_string(), self.tombstone(false).to_string());
        let mut args: Vec<&[u8]> = vec![
            bound.map_or("", TenantId::as_str).as_bytes(),
            states.as_bytes(),
            id.as_bytes(),
            keyed.as_bytes(),
            unkeyed.as_bytes(),
        ];
        args.extend_from_slice(rest);
        self.resolved(script, id, now, &args).await
    }

    pub async fn extend(&self, call: &ExtendCall<'_>) -> Result<ResolveOutcome, GateError> {
        let p = call.id.partition();
        let (states, hex, due) = (self.key(p, "state:"), call.id.to_hex(), self.key(p, "due:"));
        let (ttl, width) = (call.ttl_ms.to_string(), self.options.due_bucket_ms.to_string());
        let args: [&[u8]; 7] = [
            call.bound.map_or("", TenantId::as_str).as_bytes(),
            states.as_bytes(),
            call.id.as_bytes(),
            hex.as_bytes(),
            ttl.as_bytes(),
            due.as_bytes(),
            width.as_bytes(),
        ];
        self.resolved(Script::Extend, call.id, call.now_ms, &args).await
    }

    async fn resolved(
        &self,
        script: Script,
        id: ReservationId,
        now: Option<i64>,
        args: &[&[u8]],
    ) -> Result<ResolveOutcome, GateError> {
        let p = id.partition();
        let epoch = self.expected(p)?;
        let before = self.highest_known(p);
        let reply = self.call(script, p, &self.resolve_keys(id), epoch, now, args).await?;
        let now_ms = reply.integer(2)?;
        let line = |reply: &Reply| -> Result<(usize, Record), GateError> {
            Ok((usize::try_from(reply.integer(3)?).unwrap_or_default(), reply.record(4)?))
        };
        Ok(match reply.status()? {
            Status::Unknown => ResolveOutcome::Unknown { last_id: reply.id(3)? },
            Status::Replayed => {
                let record = reply.record(3)?;
                let readings = places(&record, reply.readings(4)?);
                ResolveOutcome::Replayed { record, readings, now_ms }
            }
            Status::AlreadyResolved => ResolveOutcome::AlreadyResolved { record: reply.record(3)? },
            Status::Expired => ResolveOutcome::Expired { record: reply.record(3)? },
            Status::AmountNeedsOneLine => ResolveOutcome::AmountNeedsOneLine,
            Status::MeterNotReserved => {
                let name = String::from_utf8(reply.bytes(3)?).unwrap_or_default();
                let meter = crate::domain::ids::MeterId::parse(&name)
                    .map_err(|_| GateError::Undecodable(crate::domain::codec::Undecodable("meter")))?;
                ResolveOutcome::MeterNotReserved { meter }
            }
            Status::TooPrecise => {
                let (line, record) = line(&reply)?;
                ResolveOutcome::TooPrecise { line, record }
            }
            Status::TooLarge => {
                let (line, record) = line(&reply)?;
                ResolveOutcome::TooLarge { line, record }
            }
            Status::AmountDecreased => {
                let (line, record) = line(&reply)?;
                ResolveOutcome::AmountDecreased { line, record }
            }
            Status::ExcessRejected => {
                let (line, record) = line(&reply)?;
                ResolveOutcome::ExcessRejected { line, record }
            }
            Status::Cold => {
                let record = reply.record(7)?;
                let rest: &BodyRest = record
                    .body
                    .rest
                    .as_ref()
                    .ok_or(GateError::Undecodable(crate::domain::codec::Undecodable("rest")))?;
                let holders = reply.bytes(5)?;
                ResolveOutcome::Cold(ColdRecord {
                    last_id: reply.id(3)?,
                    tenant_cold: reply.integer(4)? == 1,
                    subjects: holders
                        .iter()
                        .filter_map(|h| rest.subjects.get(usize::from(*h) - 1).cloned())
                        .collect(),
                    counters: reply
                        .indexes(6)?
                        .into_iter()
                        .filter_map(|at| rest.counters.get(at).cloned())
                        .collect(),
                    tenant: record.body.tenant.clone(),
                })
            }
            Status::Done => {
                let record = reply.record(3)?;
                let readings = places(&record, reply.readings(4)?);
                let event = OutboxId {
                    epoch: Epoch(epoch),
                    sequence: u64::try_from(reply.integer(5)?).unwrap_or_default(),
                };
                self.acknowledged(p, before, event)?;
                let consumed = reply.units(6)?;
                let previous = record
                    .units
                    .iter()
                    .zip(consumed)
                    .map(|(units, consumed)| LineUnits { held: units.held, consumed })
                    .collect();
                ResolveOutcome::Done { record, previous, event, uncharged: reply.units(7)?, readings, now_ms }
            }
            _ => {
                return Err(GateError::Script {
                    script: "resolve",
                    message: "an answer that fits no request".into(),
                });
            }
        })
    }

    pub async fn expire(
        &self,
        p: Partition,
        batch: u32,
        now: Option<i64>,
    ) -> Result<ExpireReport, GateError> {
        let epoch = self.expected(p)?;
        let args = [
            self.key(p, "due:"),
            self.key(p, "rsv:"),
            self.key(p, "state:"),
            self.options.due_bucket_ms.to_string(),
            batch.to_string(),
            self.tombstone(true).to_string(),
            self.tombstone(false).to_string(),
            "5000".to_owned(),
        ];
        let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
        let reply = self
            .call(Script::Expire, p, &[self.key(p, "meta"), self.key(p, "outbox")], epoch, now, &args)
            .await?;
        let count = |at| reply.integer(at).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        Ok(ExpireReport {
            expired: count(3)?,
            skipped: count(4)?,
            missing: count(5)?,
            postponed: count(6)?,
            inconsistent: count(7)?,
            more: reply.integer(8)? == 1,
            swept: reply.integer(9)?,
        })
    }

    pub async fn peek_counters(&self, call: &PeekCall<'_>) -> Result<PeekedCounters, GateError> {
        let p = call.partition;
        let epoch = self.expected(p)?;
        let state = self.key(p, &format!("state:{}", call.tenant));
        let mut keys = vec![self.key(p, "meta"), self.key(p, "outbox"), state.clone()];
        keys.extend(call.subjects.iter().map(|hash| format!("{state}:{}", hash.as_str())));
        let checks = pack_checks(call.checks);
        let reply =
            self.call(Script::Peek, p, &keys, epoch, call.now_ms, &[b"counters", b"", &checks]).await?;
        let last_id = reply.id(4)?;
        let cold = Cold {
            last_id,
            tenant: reply.integer(5)? == 1,
            holders: reply.bytes(6)?,
            counters: reply.indexes(7)?,
        };
        let is_cold = cold.tenant || !cold.holders.is_empty() || !cold.counters.is_empty();
        Ok(PeekedCounters {
            readings: reply.readings(3)?,
            cold: is_cold.then_some(cold),
            last_id,
            now_ms: reply.integer(2)?,
        })
    }

    pub async fn peek_record(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Result<PeekedRecord, GateError> {
        let p = id.partition();
        let epoch = self.expected(p)?;
        let bound = bound.map_or("", TenantId::as_str).as_bytes();
        let reply =
            self.call(Script::Peek, p, &self.resolve_keys(id), epoch, None, &[b"record", bound, b""]).await?;
        let now_ms = reply.integer(2)?;
        match reply.status()? {
            Status::Done => {
                Ok(PeekedRecord { record: Some(reply.record(3)?), last_id: reply.id(4)?, now_ms })
            }
            _ => Ok(PeekedRecord { record: None, last_id: reply.id(3)?, now_ms }),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one private call behind the restores")]
    async fn tell(
        &self,
        p: Partition,
        state: String,
        what: &str,
        warm: &WarmState,
        records: &[(ReservationId, Record)],
        now: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let epoch = self.expected(p)?;
        let mut keys = vec![self.key(p, "meta"), self.key(p, "outbox"), state];
        keys.extend(records.iter().map(|(id, _)| self.key(p, &format!("rsv:{}", id.to_hex()))));
        let keyed = records.first().and_then(|(_, r)| r.body.rest.as_ref()).is_some_and(|rest| rest.keyed);
        let mut args = vec![
            what.as_bytes().to_vec(),
            warm.ask_until_ms.to_string().into_bytes(),
            pack_counters(&warm.counters),
            pack_capacities(&warm.capacities),
            self.key(p, "due:").into_bytes(),
            self.options.due_bucket_ms.to_string().into_bytes(),
            self.tombstone(keyed).to_string().into_bytes(),
        ];
        for (id, record) in records {
            let mut head = record.head;
            head.epoch = Epoch(epoch);
            args.push(id.to_hex().into_bytes());
            args.push(head.encode(&record.units));
            let mut body = record.body.clone();
            if matches!(head.state, ReservationState::Consumed | ReservationState::Released) {
                body.rest = None;
            }
            args.push(body.encode());
        }
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let reply = self.call(Script::Restore, p, &keys, epoch, now, &args).await?;
        Ok(match reply.status()? {
            Status::Warm | Status::Kept => RestoreOutcome::AlreadyWarm,
            Status::Cold => RestoreOutcome::StillCold,
            _ => RestoreOutcome::Done,
        })
    }

    pub async fn restore_page(&self, page: &RestorePage<'_>) -> Result<RestoreOutcome, GateError> {
        let state = self.key(page.partition, &format!("state:{}", page.tenant));
        let (what, empty) =
            if page.last.is_some() { ("last", None) } else { ("page", Some(WarmState::default())) };
        let warm = page.last.as_ref().or(empty.as_ref());
        let default = WarmState::default();
        self.tell(page.partition, state, what, warm.unwrap_or(&default), page.records, page.now_ms).await
    }

    pub async fn restore_subject(
        &self,
        p: Partition,
        tenant: &TenantId,
        hash: SubjectHash,
        warm: &WarmState,
        now: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let state = self.key(p, &format!("state:{tenant}:{}", hash.as_str()));
        self.tell(p, state, "subject", warm, &[], now).await
    }

    pub async fn restore_counters(
        &self,
        p: Partition,
        tenant: &TenantId,
        holder: Holder,
        counters: &[RestoredCounter],
        capacities: &[QuotaCapacity],
        now: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let state = match holder {
            Holder::Tenant => self.key(p, &format!("state:{tenant}")),
            Holder::Subject(hash) => self.key(p, &format!("state:{tenant}:{}", hash.as_str())),
        };
        let warm =
            WarmState { ask_until_ms: 0, counters: counters.to_vec(), capacities: capacities.to_vec() };
        self.tell(p, state, "counters", &warm, &[], now).await
    }

    pub async fn restore_record(
        &self,
        id: ReservationId,
        record: &Record,
        now: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let p = id.partition();
        let state = self.key(p, &format!("state:{}", record.body.tenant));
        self.tell(p, state, "record", &WarmState::default(), &[(id, record.clone())], now).await
    }

    pub async fn publish(&self, p: Partition, id: OutboxId) -> Result<(), GateError> {
        let sequence = id.sequence.to_string();
        self.call(Script::Publish, p, &[self.key(p, "meta")], id.epoch.0, None, &[sequence.as_bytes()])
            .await
            .map(|_| ())
    }

    pub async fn read_outbox(
        &self,
        from: &[(Partition, OutboxId)],
        count: usize,
    ) -> Result<Vec<OutboxBatch>, GateError> {
        let mut pipe = redis::pipe();
        for (p, id) in from {
            pipe.cmd("XRANGE")
                .arg(self.key(*p, "outbox"))
                .arg(id.to_string())
                .arg("+")
                .arg("COUNT")
                .arg(count);
        }
        let replies: Vec<redis::streams::StreamRangeReply> =
            pipe.query_async(&mut self.connection()).await.map_err(|e| unavailable(&e))?;
        let read = from.iter().zip(replies).map(|((p, _), reply)| {
            let entries = reply.ids.into_iter().filter_map(|entry| {
                let id = entry.id.parse().ok()?;
                let bytes = match entry.map.get("e") {
                    Some(Value::BulkString(bytes)) => bytes.clone(),
                    _ => Vec::new(),
                };
                Some((id, bytes))
            });
            (*p, entries.collect())
        });
        Ok(read.collect())
    }

    pub async fn wait_outbox(
        &self,
        after: &[(Partition, OutboxId)],
        timeout: Duration,
    ) -> Result<(), GateError> {
        let mut cmd = redis::cmd("XREAD");
        cmd.arg("COUNT")
            .arg(1)
            .arg("BLOCK")
            .arg(u64::try_from(timeout.as_millis().max(1)).unwrap_or(1))
            .arg("STREAMS");
        for (p, _) in after {
            cmd.arg(self.key(*p, "outbox"));
        }
        for (_, id) in after {
            cmd.arg(id.to_string());
        }
        let mut bell = self.bell.lock().await;
        let asked: Result<Value, _> =
            tokio::time::timeout(timeout + self.options.response_timeout, cmd.query_async(&mut *bell))
                .await
                .map_err(|_| GateError::Timeout)?;
        asked.map(|_| ()).map_err(|e| unavailable(&e))
    }

    pub async fn trim_outbox(&self, p: Partition, below: OutboxId) -> Result<(), GateError> {
        redis::cmd("XTRIM")
            .arg(self.key(p, "outbox"))
            .arg("MINID")
            .arg(below.to_string())
            .exec_async(&mut self.connection())
            .await
            .map_err(|e| unavailable(&e))
    }
}

fn places(record: &Record, readings: Vec<CounterReading>) -> Vec<(CounterPlace, CounterReading)> {
    let places = record.body.rest.iter().flat_map(|rest| rest.counters.iter().cloned());
    places.zip(readings).collect()
}

fn jiff_free_now_ms() -> i64 {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}
