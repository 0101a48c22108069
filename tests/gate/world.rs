//! A gate with one warm tenant on a test clock, and short names for what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use tollgate::domain::amount::Decimals;
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Event;
use tollgate::domain::ids::{
    Epoch, IdempotencyKey, MeterId, OutboxId, PARTITIONS_MAX, Partition, ReservationId, ReservationIds,
    Subject, TenantId,
};
use tollgate::domain::reservation::{
    Body, BodyDetails, CounterRef, LineRule, OnExcess, Record, ReservationState, SubjectHash,
};
use tollgate::gate::{
    CheckAsk, CheckOutcome, ConsumeCall, CounterReading, ExpireReport, ExtendCall, Gate, GateOptions,
    HoldOutcome, PeekCall, QuotaCapacity, ReleaseCall, ReserveCall, ReserveOutcome, ResolveOutcome,
    RestoreOutcome, RestorePage, Totals, WarmState,
};

pub use super::asks::*;
use super::server::{Mode, Server};
pub use super::told::*;

/// The start of the test's window and of its clock.
pub const START_MS: i64 = 1_700_000_000_000;
/// The window of every counter unless a test says otherwise.
pub const WINDOW: (i64, i64) = (START_MS - 1_000_000, START_MS + 1_000_000);
/// The width of a due bucket.
pub const BUCKET_MS: i64 = 1000;
/// The ttl of a hold unless a test says otherwise.
pub const TTL_MS: i64 = 60_000;
/// When such a hold that was made at the start is swept.
pub const DUE_MS: i64 = START_MS + TTL_MS + BUCKET_MS;

/// The default options for this url.
pub fn options(url: String) -> GateOptions {
    GateOptions {
        url,
        connections: 2,
        response_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(20),
        concurrent_calls_max: 4_096,
        partitions: PARTITIONS_MAX,
        due_bucket_ms: BUCKET_MS,
        tombstone_keyed_ms: 86_400_000,
        tombstone_unkeyed_ms: 300_000,
        anonymous_slots: 65_536,
        allow_unsafe: false,
        secret: [7; 32],
    }
}

/// The gate, its server and one tenant.
pub struct World {
    /// The server.
    pub server: Arc<Server>,
    /// The gate.
    pub gate: Gate,
    /// Makes ids.
    pub ids: ReservationIds,
    /// The tenant.
    pub tenant: TenantId,
    /// Its partition.
    pub partition: Partition,
    /// Whether its reservations are light: the gate alone keeps them and their counters.
    pub is_light: bool,
}

impl World {
    /// A gate over the shared server of this mode, partition adopted in epoch 1, tenant cold.
    pub async fn cold(mode: Mode) -> Self {
        Self::over(Server::shared(mode)).await
    }

    /// A gate over this server, partition adopted in epoch 1, tenant cold.
    pub async fn over(server: Arc<Server>) -> Self {
        let gate = Gate::connect(options(server.url())).await.unwrap();
        let run_id = gate.meet().await.unwrap();
        gate.load_scripts(&run_id).await.unwrap();
        let partition = server.take_partition();
        let tenant = (0..)
            .map(|number| TenantId::parse(&format!("tenant-{number}")).unwrap())
            .find(|tenant| gate.partition_of(tenant) == partition)
            .unwrap();
        gate.set_epoch(partition, Epoch(1));
        gate.adopt(partition, Epoch(1), 0, Some(START_MS)).await.unwrap();
        Self { server, gate, ids: ReservationIds::new(&[7; 32]), tenant, partition, is_light: false }
    }

    /// A gate whose tenant has used nothing, and whose reservations are light.
    pub async fn light(mode: Mode) -> Self {
        Self { is_light: true, ..Self::cold(mode).await }
    }

    /// A gate whose tenant is warm and has used nothing.
    pub async fn warm(mode: Mode) -> Self {
        let world = Self::cold(mode).await;
        world.warm_up(WarmState::default()).await;
        world
    }

    /// Makes the tenant warm with this state.
    pub async fn warm_up(&self, state: WarmState) {
        let as_of = OutboxId { epoch: self.epoch(), sequence: u64::MAX };
        self.gate.restore_page(&RestorePage { as_of, ..self.page(&[], Some(state)) }).await.unwrap();
    }

    /// A page of the tenant's restore as of the outbox's beginning, in the epoch in force.
    pub fn page<'a>(
        &'a self,
        records: &'a [(ReservationId, Record)],
        last: Option<WarmState>,
    ) -> RestorePage<'a> {
        RestorePage {
            as_of: OutboxId::default(),
            partition: self.partition,
            epoch: self.epoch(),
            tenant: &self.tenant,
            records,
            last,
            now_ms: Some(START_MS),
        }
    }

    /// Tells the warm tenant these counters.
    pub async fn tell(&self, state: &WarmState) -> RestoreOutcome {
        let now_ms = Some(START_MS);
        self.gate.restore_counters(self.partition, self.epoch(), &self.tenant, state, now_ms).await.unwrap()
    }

    /// Restores this subject's use.
    pub async fn tell_subject(&self, subject: &Subject, state: WarmState) -> RestoreOutcome {
        let (hash, now_ms) = (self.hash(subject), Some(START_MS));
        let call = self.gate.restore_subject(self.partition, self.epoch(), &self.tenant, hash, state, now_ms);
        call.await.unwrap()
    }

    /// Tells a quota's capacity.
    pub async fn tell_capacity(&self, capacity: QuotaCapacity) -> RestoreOutcome {
        self.gate.set_capacity(self.partition, &self.tenant, &capacity, Some(START_MS)).await.unwrap()
    }

    /// Restores the hold of this key alone; `told` are the state hashes whose figures contain it.
    pub async fn tell_hold(&self, key: &str, open: &Record, told: &[u8]) -> HoldOutcome {
        self.tell_hold_afresh(key, open, told, &[]).await
    }

    /// The same where no ledger restores the counters of these numbers.
    pub async fn tell_hold_afresh(
        &self,
        key: &str,
        open: &Record,
        told: &[u8],
        afresh: &[u8],
    ) -> HoldOutcome {
        self.gate.restore_hold(self.id(key), self.epoch(), open, told, afresh, Some(START_MS)).await.unwrap()
    }

    /// Lets the tenant, or one subject of it, wait for what the ledger tells; the last event before that.
    pub async fn suspend(&self, subject: Option<&Subject>) -> Option<OutboxId> {
        let subject = subject.map(|subject| self.hash(subject));
        self.gate.suspend(self.partition, self.epoch(), &self.tenant, subject, Some(START_MS)).await.unwrap()
    }

    /// Begins this epoch: what the gate knew of older ones is forgotten.
    pub async fn adopt(&self, epoch: u64) -> Epoch {
        self.gate.adopt(self.partition, Epoch(epoch), 0, Some(START_MS)).await.unwrap()
    }

    /// Loses its memory, and gets the tenant back at `at_ms` with the open reservation of this key.
    pub async fn lose_and_restore(&self, key: &str, at_ms: i64) {
        let open = [(self.id(key), self.record(key).await.unwrap())];
        self.adopt(2).await;
        let page = self.page(&open, Some(WarmState::default()));
        self.gate.restore_page(&RestorePage { now_ms: Some(at_ms), ..page }).await.unwrap();
    }

    /// Lets the tenant wait for the ledger, which has no more of it at `at_ms`.
    pub async fn wait_for_ledger(&self, at_ms: i64) {
        let as_of = self.suspend(None).await.unwrap();
        let page = self.page(&[], Some(WarmState::default()));
        self.gate.restore_page(&RestorePage { as_of, now_ms: Some(at_ms), ..page }).await.unwrap();
    }

    /// The epoch that the gate expects.
    pub fn epoch(&self) -> Epoch {
        self.gate.epoch(self.partition).unwrap()
    }

    /// The id of this key.
    pub fn id(&self, key: &str) -> ReservationId {
        let key = IdempotencyKey::parse(key).unwrap();
        let id = self.ids.derive(self.partition, &self.tenant, "reserve", &key);
        if self.is_light { self.ids.light(id) } else { id }
    }

    /// A key of the world's partition.
    pub fn key(&self, rest: &str) -> String {
        format!("tg1:{{{}}}:{rest}", tollgate::gate::keys::tag(self.partition, PARTITIONS_MAX))
    }

    /// The key of this reservation's record.
    pub fn record_key(&self, key: &str) -> String {
        let kind = if self.is_light { "held" } else { "rsv" };
        self.key(&format!("{kind}:{}", self.id(key).to_hex()))
    }

    /// The key of the tenant's counters.
    pub fn state_key(&self) -> String {
        self.key(&format!("state:{}", self.tenant))
    }

    /// The hash of a subject.
    pub fn hash(&self, subject: &Subject) -> SubjectHash {
        self.gate.subject_hash(&self.tenant, subject)
    }

    /// The body of an ask.
    pub fn body(&self, ask: &Ask) -> Body {
        let rule = |line: &Line| LineRule {
            meter: MeterId::parse(line.meter).unwrap(),
            decimals: Decimals::new(line.rule.0).unwrap(),
            on_excess: line.rule.1,
            on_late: line.rule.2,
            late_within_seconds: line.rule.3,
            estimated: false,
            booked: true,
        };
        Body {
            fingerprint: tollgate::domain::fingerprint::Fingerprint([ask.meaning; 16]),
            tenant: self.tenant.clone(),
            lines: ask.lines.iter().map(rule).collect(),
            rest: Some(BodyDetails {
                subjects: self.subjects(ask),
                counters: ask.checks.iter().map(|counter| place(ask, counter)).collect(),
                keyed: ask.keyed,
                operation: None,
                policy_version: 1,
                period_ms: WINDOW,
                hour_start_ms: START_MS,
                metadata: String::new(),
            }),
        }
    }

    fn subjects(&self, ask: &Ask) -> Vec<(Subject, SubjectHash)> {
        ask.subjects.iter().map(|subject| (subject.clone(), self.hash(subject))).collect()
    }

    /// Reserves.
    pub async fn reserve(&self, ask: &Ask) -> ReserveOutcome {
        self.try_reserve(ask).await.unwrap()
    }

    /// Reserves, and may fail.
    pub async fn try_reserve(&self, ask: &Ask) -> Result<ReserveOutcome, tollgate::gate::GateError> {
        self.gate.reserve(&self.reserve_call(ask, &self.body(ask))).await
    }

    /// The call of an ask with this body.
    pub fn reserve_call<'a>(&'a self, ask: &'a Ask, body: &'a Body) -> ReserveCall<'a> {
        ReserveCall {
            id: self.id(&ask.key),
            partition: self.partition,
            tenant: &self.tenant,
            subjects: self.subjects(ask),
            mode: ask.mode,
            amounts: ask.lines.iter().map(|line| units(line.amount)).collect(),
            body,
            counters: &ask.checks,
            ttl_ms: ask.ttl_ms,
            max_life_ms: ask.max_life_ms,
            valid: ask.valid,
            subject_windows_end_ms: WINDOW.1,
            may_be_known: ask.may_be_known,
            ledger_asked: ask.ledger_asked,
            work: None,
            now_ms: Some(ask.now_ms),
        }
    }

    /// Reserves and expects it to be admitted.
    pub async fn hold(&self, ask: &Ask) {
        let outcome = self.reserve(ask).await;
        assert!(matches!(outcome, ReserveOutcome::Admitted { .. }), "{outcome:?}");
    }

    /// A consume at this time.
    pub fn consume_call(&self, now_ms: i64, key: &str, totals: Totals, is_final: bool) -> ConsumeCall<'_> {
        ConsumeCall { id: self.id(key), bound: None, totals, is_final, now_ms: Some(now_ms) }
    }

    /// Consumes at this time.
    pub async fn consume_at(&self, now_ms: i64, key: &str, totals: Totals, is_final: bool) -> ResolveOutcome {
        self.gate.consume(&self.consume_call(now_ms, key, totals, is_final)).await.unwrap()
    }

    /// Consumes at the start.
    pub async fn consume(&self, key: &str, totals: Totals, is_final: bool) -> ResolveOutcome {
        self.consume_at(START_MS, key, totals, is_final).await
    }

    /// Releases at the start.
    pub async fn release(&self, key: &str, incurred: Totals) -> ResolveOutcome {
        self.release_at(START_MS, key, incurred).await
    }

    /// Releases at this time.
    pub async fn release_at(&self, now_ms: i64, key: &str, incurred: Totals) -> ResolveOutcome {
        let call = ReleaseCall { id: self.id(key), bound: None, incurred, now_ms: Some(now_ms) };
        self.gate.release(&call).await.unwrap()
    }

    /// Extends at this time.
    pub async fn extend_at(&self, now_ms: i64, key: &str, ttl_ms: i64) -> ResolveOutcome {
        let call = ExtendCall { id: self.id(key), bound: None, ttl_ms, now_ms: Some(now_ms) };
        self.gate.extend(&call).await.unwrap()
    }

    /// Sweeps until nothing is due at this time; returns how many expired.
    pub async fn sweep(&self, now_ms: i64) -> u32 {
        let mut expired = 0;
        loop {
            let report = self.sweep_once(now_ms, 100).await;
            assert_eq!(report.inconsistent, 0);
            expired += report.expired;
            if let Some(leap) = report.leap {
                expired += self.sweep_behind(now_ms, leap).await;
            } else if !report.more {
                return expired;
            }
        }
    }

    /// Sweeps at most so many that are due at this time.
    pub async fn sweep_once(&self, now_ms: i64, count: u32) -> ExpireReport {
        match self.is_light {
            true => self.gate.expire_held(self.partition, Some(now_ms), count).await.unwrap(),
            false => self.gate.expire(self.partition, Some(now_ms), count).await.unwrap(),
        }
    }

    /// Sweeps the due lists that a leap passed over; returns how many holds expired.
    pub async fn sweep_behind(&self, now_ms: i64, leap: i64) -> u32 {
        let lists = self.gate.due_lists().await.unwrap().into_iter();
        let buckets: Vec<_> =
            lists.filter(|(partition, _)| *partition == self.partition).map(|(_, bucket)| bucket).collect();
        self.gate.expire_behind(self.partition, Some(now_ms), leap, &buckets).await.unwrap().expired
    }

    /// A counter's figures at this time.
    pub async fn reading_at(&self, now_ms: i64, check: &Counter) -> CounterReading {
        self.readings_at(now_ms, std::slice::from_ref(check)).await[0]
    }

    /// The figures of these counters at this time.
    pub async fn readings_at(&self, now_ms: i64, checks: &[Counter]) -> Vec<CounterReading> {
        if self.is_light {
            return self.light_readings_at(now_ms, checks).await;
        }
        let call = PeekCall {
            partition: self.partition,
            tenant: &self.tenant,
            subjects: &[],
            counters: checks,
            light: &[],
            now_ms: Some(now_ms),
        };
        self.gate.peek_counters(&call).await.unwrap().readings
    }

    async fn light_readings_at(&self, now_ms: i64, checks: &[Counter]) -> Vec<CounterReading> {
        let look = CheckAsk {
            tenant: Some(&self.tenant),
            subjects: &[],
            amounts: &[],
            counters: checks,
            valid: (0, i64::MAX),
            needed_until_ms: 0,
            peeks: true,
        };
        match self.gate.check(self.partition, &[look], false, Some(now_ms)).await.unwrap() {
            CheckOutcome::Decided { mut checks, .. } => checks.remove(0).readings,
            stale @ CheckOutcome::StaleWindow { .. } => panic!("{stale:?}"),
        }
    }

    /// Consumed and reserved units of a counter.
    pub async fn counts(&self, check: &Counter) -> (i64, i64) {
        let reading = self.reading_at(START_MS, check).await;
        (reading.consumed.get(), reading.reserved.get())
    }

    /// Consumed and reserved units of the day.
    pub async fn day(&self) -> (i64, i64) {
        self.counts(&day(0)).await
    }

    /// The record of this key.
    pub async fn record(&self, key: &str) -> Option<Record> {
        self.gate.peek_record(self.id(key), None, Some(START_MS)).await.unwrap().record
    }

    /// The state of the reservation of this key.
    pub async fn state(&self, key: &str) -> Option<ReservationState> {
        self.record(key).await.map(|record| record.head.state)
    }

    /// All events so far, decoded.
    pub async fn events(&self) -> Vec<Event> {
        let from = [(self.partition, OutboxId::default())];
        let (_, events) = self.gate.read_outbox(&from, 100_000).await.unwrap().remove(0);
        events.iter().map(|(id, bytes)| Event::decode(*id, bytes).unwrap()).collect()
    }
}

/// Where the ask is counted, as its record says it.
fn place(ask: &Ask, counter: &Counter) -> CounterRef {
    let place = counter.place(caps(ask, counter));
    CounterRef { is_quota: place.is_quota.filter(|_| !ask.is_former), ..place }
}

/// Whether a line that it counts is cut at what is left.
fn caps(ask: &Ask, counter: &Counter) -> bool {
    counter.lines.iter().any(|(line, _)| ask.lines[usize::from(*line)].rule.1 == OnExcess::Cap)
}
