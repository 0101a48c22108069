//! Engine 1, Redis: holds amounts, counts them, and appends events of it. It imports only the domain.
//!
//! One script is one transition (`lua/`); one method calls one script. Every mutating call carries the expected epoch
//! and the instant at which the caller stops waiting.

mod anchor;
mod backlog;
mod bans;
mod boundary;
pub mod breaker;
mod call;
mod cells;
pub mod check;
pub mod checkpoint;
mod conduct;
mod connections;
mod counters;
pub mod error;
pub mod expire;
mod forget;
mod guard;
mod inspect;
pub mod keys;
pub mod known_subjects;
pub mod lease;
mod node_facts;
pub mod outbox;
pub mod peek;
pub mod record;
pub mod repair;
pub mod reserve;
pub mod resolve;
pub mod restore;
mod scan;
pub mod scripts;
mod server;
pub mod status;
pub mod take;
pub mod time_check;
mod together;
mod watch;
mod work;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use redis::{RedisError, Value};

use crate::domain::ids::{Epoch, OutboxId, PARTITIONS_MAX, Partition, Subject, TenantId};
use crate::domain::reservation::SubjectHash;

use connections::{Link, Links, first_error, plain_error};
use guard::{Guard, Heard};
use keys::Keys;
use scripts::{Digests, Script};

pub use backlog::{OutboxStretch, TailStart, Waiting};
pub use bans::{LimitBan, PlacedBan};
pub use breaker::{BreakerState, FAILURES_MAX as BREAKER_FAILURES_MAX};
pub use check::{CheckAsk, CheckOutcome, CheckedCounters};
pub use checkpoint::{CheckpointCall, CheckpointOutcome};
pub use connections::address_of;
pub use error::GateError;
pub use expire::{DueList, ExpireReport};
pub use inspect::InspectError;
pub use known_subjects::{KnownSubjects, SubjectFilter};
pub use lease::{LeaseCall, LeaseOutcome};
pub use node_facts::NodeFacts;
pub use outbox::{OutboxBatch, OutboxFrom};
pub use peek::{PeekCall, PeekedCounters, PeekedRecord};
pub use record::{IdCheck, RecordCall, RecordOutcome};
pub use repair::{RepairCall, RepairOutcome, UndoCall, UndoOutcome};
pub use reserve::{Cold, CounterReading, ReserveCall, ReserveMode, ReserveOutcome};
pub use resolve::{ColdRecord, ConsumeCall, ExtendCall, ReleaseCall, ResolveOutcome, Totals};
pub use restore::{
    HoldOutcome, Holder, QuotaCapacity, RestoreOutcome, RestorePage, RestoredCounter, WarmState,
};

pub use server::Durability;
pub use take::{GivenBack, TakeCall, TakeMode, TakeOutcome, Taking};
pub use watch::OutboxState;
pub use work::{GuardedWork, WorkHash};

/// How to reach the gate, and its time limits.
#[derive(Debug, Clone)]
pub struct GateOptions {
    /// `redis://host:port` or `unix:///path/to/socket`.
    pub url: String,
    /// The number of multiplexed connections for calls that do not come from a worker's thread; at least 1.
    pub connections: usize,
    /// How long a call waits for its answer. A script that starts later does nothing.
    pub response_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How many script calls for callers may wait for their answers at once; at least 1.
    pub concurrent_calls_max: usize,
    /// The installation's number of partitions, 1 to 256; fixed at installation.
    pub partitions: u16,
    /// The width of a due bucket, in ms: [`DUE_BUCKET_MS`] of every service.
    pub due_bucket_ms: i64,
    /// How long a resolved reservation with an idempotency key is remembered, in ms.
    pub tombstone_keyed_ms: i64,
    /// How long one without is remembered, in ms.
    pub tombstone_unkeyed_ms: i64,
    /// In how many slots each tenant's anonymous subjects are counted, at least 1; the same on every instance.
    pub anonymous_slots: u32,
    /// Whether a server is accepted that may lose or evict data.
    pub allow_unsafe: bool,
    /// The installation's secret; subject hashes derive from it.
    pub secret: [u8; 32],
}

/// The facts in a partition's `meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaFacts {
    /// Its epoch; none when its memory is missing.
    pub epoch: Option<Epoch>,
    /// The last due bucket that is finished.
    pub swept: Option<i64>,
}

/// The width of a due bucket, in ms. Stored buckets are numbered by it, so no installation may change it.
pub const DUE_BUCKET_MS: i64 = 1000;

/// The time that a client needs to notice that its answer is overdue; the limit of scripts is shorter by it.
const TIMEOUT_SLACK: Duration = Duration::from_millis(5);

/// The gate: one Redis node, its partitions, and what this instance knows about them.
pub struct Gate {
    options: GateOptions,
    timeout_ms: i64,
    keys: Keys,
    links: Links,
    outbox_link: Link,
    bell_link: Link,
    watch_link: Link,
    guard: Guard,
    digests: ArcSwapOption<Digests>,
    epochs: Vec<AtomicU64>,
    highest: Vec<Mutex<OutboxId>>,
    started: Instant,
    redis_offset_ms: AtomicI64,
    /// None until Redis has answered for the first time.
    durability: ArcSwapOption<Durability>,
}

impl Gate {
    /// Connects and refuses a server that is not safe to keep counters in. Loads no scripts: see
    /// [`Self::load_scripts`].
    pub async fn connect(options: GateOptions) -> Result<Self, GateError> {
        let gate = Self::new(options)?;
        gate.meet_first().await?;
        Ok(gate)
    }

    /// As [`Self::connect`], but a server that does not answer is no error: until it does, the gate is away, and its
    /// time is the host's, as of the last look. It is then refused, or not, by the check of its memory.
    pub async fn connect_if_there(options: GateOptions) -> Result<Self, GateError> {
        let gate = Self::new(options)?;
        match gate.meet_first().await {
            Ok(()) => {}
            Err(error) if error.is_away() => tracing::error!(%error, "Redis does not answer"),
            Err(error) => return Err(error),
        }
        Ok(gate)
    }

    fn new(options: GateOptions) -> Result<Self, GateError> {
        check_options(&options)?;
        let client = redis::Client::open(options.url.as_str())
            .map_err(|error| GateError::Settings(format!("the gate's url cannot be used: {error}")))?;
        let runtime = tokio::runtime::Handle::current();
        let (connect_timeout, response_timeout) = (options.connect_timeout, options.response_timeout);
        let link = move |response_timeout, runtime| {
            Link::new(client.clone(), connect_timeout, response_timeout, runtime)
        };
        let (outbox_link, watch_link) = (
            link(Some(response_timeout), Some(runtime.clone())),
            link(Some(response_timeout), Some(runtime.clone())),
        );
        let bell_link = link(None, Some(runtime.clone()));
        Ok(Self {
            timeout_ms: i64::try_from(options.response_timeout.as_millis()).unwrap_or(i64::MAX),
            keys: Keys::new(options.partitions, options.anonymous_slots, &options.secret),
            links: Links::new(options.connections, &runtime, move |runtime| {
                link(Some(response_timeout), runtime)
            }),
            outbox_link,
            bell_link,
            watch_link,
            guard: Guard::new(options.concurrent_calls_max),
            digests: ArcSwapOption::empty(),
            epochs: (0..options.partitions).map(|_| AtomicU64::new(0)).collect(),
            highest: (0..options.partitions).map(|_| Mutex::default()).collect(),
            started: Instant::now(),
            redis_offset_ms: AtomicI64::new(0),
            durability: ArcSwapOption::empty(),
            options,
        })
    }

    async fn meet_first(&self) -> Result<(), GateError> {
        let refused = |error: RedisError| first_error(&error);
        self.links.connect().await.map_err(refused)?;
        self.links.pick().send(&redis::cmd("PING")).await.map_err(refused)?;
        self.meet().await?;
        self.measure_time().await
    }

    /// Looks at the server that answers now, notes what acknowledged writes survive there, and returns its run id:
    /// another one means a restart or another node.
    ///
    /// Errors: it does not answer, or is not safe to keep counters in.
    pub async fn meet(&self) -> Result<String, GateError> {
        let info = self.info("default").await?;
        server::check_safety(&info, self.options.allow_unsafe)?;
        let appendfsync = self.plain(redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await.ok();
        self.durability.store(Some(Arc::new(server::durability(&info, appendfsync.as_ref()))));
        server::info_field(&info, "run_id")
            .map(str::to_owned)
            .ok_or_else(|| GateError::Unavailable("INFO names no run_id".into()))
    }

    /// What acknowledged writes survive; nothing, as far as is known, before Redis has answered.
    pub fn durability(&self) -> Durability {
        self.durability.load().as_deref().copied().unwrap_or(Durability::None)
    }

    /// The tenant's partition.
    pub fn partition_of(&self, tenant: &TenantId) -> Partition {
        Partition::of(tenant, self.options.partitions)
    }

    /// How long a call waits for its answer.
    pub fn response_timeout(&self) -> Duration {
        self.options.response_timeout
    }

    /// How many of the script calls for callers that may wait at once do wait, and how many may.
    pub fn waiting_calls(&self) -> (usize, usize) {
        self.guard.waiting_calls()
    }

    /// The partition of all counters of global limits.
    pub fn global_partition(&self) -> Partition {
        Partition::FIRST
    }

    /// All partitions of the installation.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        Partition::all(self.options.partitions)
    }

    /// A subject's name in keys and records.
    pub fn subject_hash(&self, tenant: &TenantId, subject: &Subject) -> SubjectHash {
        self.keys.subject_hash(tenant, subject)
    }

    /// Sets the epoch that the ledger issued for a partition; it only rises.
    pub fn set_epoch(&self, partition: Partition, epoch: Epoch) {
        if let Some(slot) = self.epochs.get(partition.index()) {
            slot.fetch_max(epoch.0, Ordering::AcqRel);
        }
    }

    /// The expected epoch of a partition, once it is known from the ledger.
    pub fn epoch(&self, partition: Partition) -> Option<Epoch> {
        let epoch = self.epochs.get(partition.index())?.load(Ordering::Acquire);
        (epoch > 0).then_some(Epoch(epoch))
    }

    /// Records a place that the outbox is known to have reached: the published cursor, or an answer's event.
    pub fn note_cursor(&self, partition: Partition, id: OutboxId) {
        if let Some(mut highest) = self.lock_highest(partition) {
            *highest = (*highest).max(id);
        }
    }

    /// The highest place that this instance knows the partition's outbox to have reached.
    pub fn highest_known(&self, partition: Partition) -> OutboxId {
        self.lock_highest(partition).map_or_else(OutboxId::default, |highest| *highest)
    }

    fn lock_highest(&self, partition: Partition) -> Option<MutexGuard<'_, OutboxId>> {
        let slot = self.highest.get(partition.index())?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets the scripts: none runs until they are loaded again.
    pub fn forget_scripts(&self) {
        self.digests.store(None);
    }

    /// Loads all scripts, salted with the run id. The caller must have verified the partitions of the node that has it.
    pub async fn load_scripts(&self, run_id: &str) -> Result<(), GateError> {
        let mut digests = Vec::with_capacity(Script::ALL.len());
        for script in Script::ALL {
            let text = script.text(run_id)?;
            let digest = self.plain(redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?;
            digests.push(call::text(&digest)?.to_owned());
        }
        self.digests.store(Some(Arc::new(Digests(digests))));
        Ok(())
    }

    /// The facts in a partition's `meta`, read by a plain command.
    pub async fn meta_facts(&self, partition: Partition) -> Result<MetaFacts, GateError> {
        let meta = self.keys.meta(partition);
        let fields = self
            .plain(redis::cmd("HMGET").arg(meta).arg(&["epoch", "swept", "floor"]))
            .await?
            .into_sequence();
        let fields = fields.map_err(|_| crate::domain::codec::Undecodable("meta"))?;
        let number = |at: usize| match fields.get(at) {
            Some(value @ Value::BulkString(_)) => call::integer(value).map(Some),
            _ => Ok(None),
        };
        let epoch = number(0)?.and_then(|epoch| u64::try_from(epoch).ok()).map(Epoch);
        // Adopting an epoch reads it too.
        number(2)?;
        Ok(MetaFacts { epoch, swept: number(1)? })
    }

    /// The place of the last event in a partition's outbox, if it has any; read by a plain command.
    pub async fn last_event(&self, partition: Partition) -> Result<Option<OutboxId>, GateError> {
        let outbox = self.keys.outbox(partition);
        let last = self.plain(redis::cmd("XREVRANGE").arg(outbox).arg(&["+", "-", "COUNT", "1"])).await?;
        Ok(outbox::read_entries(last)?.first().map(|(id, _)| *id))
    }

    /// The same, and none also where the outbox is damaged: the writer reports that.
    pub async fn last_readable_event(&self, partition: Partition) -> Result<Option<OutboxId>, GateError> {
        match self.last_event(partition).await {
            Err(GateError::Undecodable(_)) => Ok(None),
            last => last,
        }
    }

    /// The end of the last second that was swept in any partition (gate time, unix ms); none before the first sweep.
    pub async fn swept_ms(&self) -> Result<Option<i64>, GateError> {
        let mut newest = None;
        for partition in self.partitions() {
            newest = newest.max(self.meta_facts(partition).await?.swept);
        }
        let bucket_ms = self.options.due_bucket_ms;
        Ok(newest.map(|bucket| bucket.saturating_add(1).saturating_mul(bucket_ms).saturating_sub(1)))
    }

    /// Some of what the server says about itself: `default` or `everything`.
    async fn info(&self, sections: &str) -> Result<String, GateError> {
        let info = self.plain(redis::cmd("INFO").arg(sections)).await?;
        match info {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::VerbatimString { text, .. } => Ok(text),
            _ => Err(GateError::Unavailable("INFO answers nothing".into())),
        }
    }

    /// Asks whether the server takes writes, at least those that free memory.
    ///
    /// Errors: it takes none, with its reason, or does not answer.
    pub async fn ask_for_writes(&self) -> Result<(), GateError> {
        self.plain(redis::cmd("EVAL").arg(watch::WOULD_FREE).arg(0)).await.map(drop)
    }

    async fn measure_time(&self) -> Result<(), GateError> {
        let time = self.plain(&redis::cmd("TIME")).await?;
        self.note_redis_time(watch::read_time(&time)?);
        Ok(())
    }

    /// Runs one plain command, never a script. Callers may wait for it, so its time limit is that of a script.
    async fn plain(&self, command: &redis::Cmd) -> Result<Value, GateError> {
        self.guard.check()?;
        let began = Instant::now();
        let answer = tokio::time::timeout(self.patience(), self.links.pick().send(command)).await;
        self.guard.heard(began, &Heard::of(&answer));
        answer.map_err(|_| GateError::Timeout)?.map_err(|error| plain_error(&error))
    }

    fn patience(&self) -> Duration {
        self.options.response_timeout + TIMEOUT_SLACK
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Estimates Redis's own time from its last answer: never ahead of it by more than drift.
    pub fn redis_time_ms(&self) -> i64 {
        self.elapsed_ms().saturating_add(self.redis_offset_ms.load(Ordering::Relaxed))
    }

    fn note_redis_time(&self, real_ms: i64) {
        self.redis_offset_ms.store(real_ms.saturating_sub(self.elapsed_ms()), Ordering::Relaxed);
    }
}

fn check_options(options: &GateOptions) -> Result<(), GateError> {
    let wrong = |what: &str| Err(GateError::Settings(what.to_owned()));
    if !(1..=PARTITIONS_MAX).contains(&options.partitions) {
        return wrong("gate.partitions must be 1 to 256");
    }
    if options.due_bucket_ms < 1 {
        return wrong("gate.due_bucket_ms must be at least 1");
    }
    if options.tombstone_keyed_ms < 1 || options.tombstone_unkeyed_ms < 1 {
        return wrong("gate.tombstone_keyed_ms and gate.tombstone_unkeyed_ms must be at least 1");
    }
    Ok(())
}
