//! What a transaction of the writer costs Postgres: made-up jobs of one line each, booked with nothing else going on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tollgate::clock::Clock;
use tollgate::domain::amount::{Decimals, Units};
use tollgate::domain::fingerprint::Fingerprint;
use tollgate::domain::ids::{
    Epoch, IdempotencyKey, MeterId, OperationId, OutboxId, Partition, ReservationId, ReservationIds, TenantId,
};
use tollgate::domain::reservation::{
    Body, BodyDetails, Head, LineRule, LineUnits, OnExcess, OnLate, Record, ReservationState,
};
use tollgate::embedded::{EmbeddedPostgres, PostgresOptions};
use tollgate::ledger::{Ledger, LedgerOptions};
use tollgate::writer::{PartitionEvents, apply};

use super::Options;
use super::books::connect;
use super::calls::tenant_of;
use super::cpu;
use super::figures::{Figure, Figures};

const PARTITIONS: u16 = 64;
const SECRET: [u8; 32] = [7; 32];
const HOUR_MS: i64 = 3_600_000;
const MONTH_MS: i64 = 31 * 24 * HOUR_MS;
/// Nothing but booking writes: no vacuum and no checkpoint falls into a figure.
const QUIET: [(&str, &str); 3] =
    [("autovacuum", "off"), ("checkpoint_timeout", "1h"), ("max_wal_size", "16GB")];
const JOBS: usize = 1_000;
/// A transaction while somebody waits for it: so many jobs begin in it, and as many end.
const FEW: usize = 10;
/// How many transactions go by before one is measured: their plans are kept then.
const WARM_UP: usize = 8;

/// The reserve, what is consumed and what is given back.
const ENTRIES_OF_A_JOB: i32 = 3;
const MONTHS: &str =
    "SELECT ensure_entries_month((now() - make_interval(months => n))::date) FROM generate_series(0, 1) n";
/// In the order of time; in a chain of their own, as no batch has them.
const ENTRIES: &str = "INSERT INTO entries SELECT 'tenant-' || (n % $2::integer), gen_random_uuid(), 1, 0, 0, 'page', \
                       date_trunc('month', at), 'available', 'reserved', 3, 'usage', false, false, false, false, at, at, 'ocr', \
                       date_trunc('hour', at), '{}', -1, n \
                       FROM (SELECT n, now() - make_interval(secs => 2592000.0 * ($1::integer - n + 1) / $1::integer) AS at \
                       FROM generate_series(1, $1::integer) n) AS month";
const RESOLVED: &str = "INSERT INTO reservations_resolved (partition, id, tenant, state, step, epoch, sequence, record, fingerprint, keyed, \
                        operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at) \
                        SELECT n % 64, gen_random_uuid(), 'tenant-' || (n % $2::integer), 'consumed', 2, 1, 0, $3::bytea, '\\x00', true, \
                        'ocr', 1, at, '{page}', '{}', at, at, at \
                        FROM (SELECT n, now() - make_interval(secs => 2592000.0 * ($1::integer - n + 1) / $1::integer) AS at \
                        FROM generate_series(1, $1::integer) n) AS month";

/// Measures transactions of a thousand jobs, begun and ended in one or in two, and small ones.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut settings = PostgresOptions::new(directory.path().to_owned());
    settings.settings = QUIET.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let started = tokio::task::spawn_blocking(move || EmbeddedPostgres::start(settings));
    let postgres = started.await.expect("a thread").expect("Postgres starts");
    let mut books = Books::open(&postgres, options.tenants).await;
    let rounds = options.events.div_ceil(2 * JOBS).max(1);
    books.jobs(rounds, "", figures).await;
    if options.history > 0 {
        books.fill(options.history).await;
        books.is_keyed = true;
        books.jobs(rounds, ", keyed, with a history", figures).await;
    }
    drop(books);
    tokio::task::spawn_blocking(move || drop(postgres)).await.unwrap();
}

/// A ledger with nobody else at it.
struct Books {
    ledger: Ledger,
    client: Client,
    server: u32,
    ids: ReservationIds,
    /// Whether ids are those of calls with a key, which come in no order.
    is_keyed: bool,
    tenants: usize,
    /// How many jobs were made so far.
    made: u64,
    /// The sequence of the last event booked, by partition.
    booked: BTreeMap<Partition, u64>,
}

impl Books {
    async fn open(postgres: &EmbeddedPostgres, tenants: usize) -> Self {
        let wait = Duration::from_secs(20);
        let options = LedgerOptions {
            url: postgres.url(),
            pool_size: 1,
            checkout_timeout: wait,
            connect_timeout: wait,
            statement_timeout: wait,
            role: None,
            idempotency_horizon: Duration::from_secs(35 * 86_400),
            close_grace: Duration::from_secs(3_600),
        };
        let url = options.url.clone();
        tokio::task::spawn_blocking(move || migrate(&url)).await.unwrap();
        let ledger = Ledger::connect(options).await.unwrap();
        ledger.install(PARTITIONS, [7; 32]).await.unwrap();
        for row in ledger.epochs().await.unwrap() {
            ledger.raise_epochs(&[(row.partition, row.epoch, row.epoch)], "bench").await.unwrap();
        }
        let client = connect(&postgres.url()).await;
        let ids = ReservationIds::new(&SECRET);
        let (is_keyed, booked) = (false, BTreeMap::new());
        Self { ledger, client, server: postgres.id(), ids, is_keyed, tenants, made: 0, booked }
    }

    /// A thousand jobs at a time, begun and ended in one transaction or in two; and small transactions.
    async fn jobs(&mut self, rounds: usize, how: &str, figures: &mut Figures) {
        let events = rounds * JOBS * 2;
        let name = format!("booking: jobs begun and ended in one transaction, events{how}");
        let figure = self.measured(&name, events, rounds, async |books| {
            let jobs = books.begin(JOBS);
            let events = jobs.iter().flat_map(|job| [job.begins(), job.ends()]).collect();
            books.book(events).await
        });
        figures.add(figure.await);

        let name = format!("booking: jobs begun in one and ended in another, events{how}");
        let figure = self.measured(&name, events, rounds, async |books| {
            let jobs = books.begin(JOBS);
            let begun = books.book(jobs.iter().map(Job::begins).collect()).await;
            begun + books.book(jobs.iter().map(Job::ends).collect()).await
        });
        figures.add(figure.await);

        let rounds = rounds * 5;
        let mut open = self.begin(FEW);
        self.book(open.iter().map(Job::begins).collect()).await;
        let name = format!("booking: transactions of 20 events{how}");
        let figure = self.measured(&name, rounds, rounds, async |books| {
            let begun = books.begin(FEW);
            let ended = std::mem::replace(&mut open, begun);
            books.book(open.iter().map(Job::begins).chain(ended.iter().map(Job::ends)).collect()).await
        });
        figures.add(figure.await);
        self.book(open.iter().map(Job::ends).collect()).await;
    }

    /// Puts so many entries of the last month into the books, and the reservations of as many jobs as make them.
    async fn fill(&self, entries: i32) {
        eprintln!("filling a month with {entries} entries …");
        self.client.batch_execute(MONTHS).await.unwrap();
        let tenants = i32::try_from(self.tenants).expect("a number of tenants");
        self.client.execute(ENTRIES, &[&entries, &tenants]).await.unwrap();
        let jobs = entries / ENTRIES_OF_A_JOB;
        let record = record(TenantId::parse("tenant-1").unwrap(), Clock::system().now_ms()).encode();
        self.client.execute(RESOLVED, &[&jobs, &tenants, &record]).await.unwrap();
        self.client.batch_execute("ANALYZE entries, reservations_resolved; CHECKPOINT").await.unwrap();
    }

    /// A row of so many `things`, done in so many rounds; each round returns how long its bookings took.
    async fn measured(
        &mut self,
        name: &str,
        things: usize,
        rounds: usize,
        mut round: impl AsyncFnMut(&mut Self) -> Duration,
    ) -> Figure {
        for _ in 0..WARM_UP {
            round(self).await;
        }
        let (cost, written) = (cpu::of_tree(self.server), self.written().await);
        let mut took = Duration::ZERO;
        for _ in 0..rounds {
            took += round(self).await;
        }
        let (cost, written) = (cpu::of_tree(self.server) - cost, self.written().await - written);
        let things = things as u64;
        Figure::new(name, things, took).costing([0, 0, cost], things).logging(written, things)
    }

    /// How much the server has written ahead so far, in bytes.
    async fn written(&self) -> u64 {
        let written = "SELECT (pg_current_wal_lsn() - '0/0')::bigint";
        u64::try_from(self.client.query_one(written, &[]).await.unwrap().get::<_, i64>(0)).unwrap()
    }

    fn begin(&mut self, count: usize) -> Vec<Job> {
        let now_ms = Clock::system().now_ms();
        (0..count).map(|_| self.job(now_ms)).collect()
    }

    fn job(&mut self, now_ms: i64) -> Job {
        self.made += 1;
        let tenant = TenantId::parse(&tenant_of(self.made, self.tenants)).unwrap();
        let partition = Partition::of(&tenant, PARTITIONS);
        let key = || IdempotencyKey::parse(&self.made.to_string()).unwrap();
        let id = match self.is_keyed {
            true => self.ids.derive(partition, &tenant, "reserve", &key()),
            false => self.ids.fresh(partition, now_ms, self.made << 16),
        };
        Job { id, record: record(tenant, now_ms) }
    }

    /// Books events in one transaction, in order of their partitions. Returns how long that took.
    async fn book(&mut self, events: Vec<(Partition, Vec<u8>)>) -> Duration {
        let mut parts: BTreeMap<Partition, PartitionEvents> = BTreeMap::new();
        for (partition, event) in events {
            let last = self.booked.get(&partition).copied();
            let place = |sequence| OutboxId { epoch: Epoch(1), sequence };
            let sequence = last.map_or(0, |last| last + 1);
            let part = parts.entry(partition).or_insert_with(|| PartitionEvents {
                partition,
                booked: last.map_or_else(OutboxId::default, place),
                events: Vec::new(),
                gaps: Vec::new(),
            });
            part.events.push((place(sequence), event));
            self.booked.insert(partition, sequence);
        }
        let began = Instant::now();
        let applied = apply(&self.ledger, parts.into_values().collect(), &Arc::default()).await.unwrap();
        assert_eq!(applied.quarantined, []);
        began.elapsed()
    }
}

/// Migrations need threads.
fn migrate(url: &str) {
    tokio::runtime::Runtime::new().unwrap().block_on(Ledger::migrate(url)).unwrap();
}

struct Job {
    id: ReservationId,
    record: Record,
}

impl Job {
    fn begins(&self) -> (Partition, Vec<u8>) {
        (self.id.partition(), [self.frame(1, 0), self.record.encode()].concat())
    }

    /// Two thirds of what is held are consumed.
    fn ends(&self) -> (Partition, Vec<u8>) {
        let mut record = self.record.clone();
        record.head.state = ReservationState::Consumed;
        record.head.step += 1;
        record.units.iter_mut().for_each(|line| line.consumed = units(2));
        (self.id.partition(), [self.frame(3, 1), record.head.encode(&record.units)].concat())
    }

    fn frame(&self, kind: u8, flags: u8) -> Vec<u8> {
        let mut frame = vec![1, kind];
        frame.extend(self.record.head.born_at_ms.to_le_bytes());
        frame.extend(self.id.as_bytes());
        frame.push(flags);
        frame
    }
}

fn units(count: i64) -> Units {
    Units::new(count).unwrap()
}

fn record(tenant: TenantId, now_ms: i64) -> Record {
    let line = LineRule {
        meter: MeterId::parse("page").unwrap(),
        decimals: Decimals::new(0).unwrap(),
        on_excess: OnExcess::Record,
        on_late: OnLate::Charge,
        late_within_seconds: 604_800,
        estimated: false,
        booked: true,
    };
    let head = Head {
        state: ReservationState::Reserved,
        late: false,
        degraded: false,
        step: 1,
        epoch: Epoch(1),
        expires_at_ms: now_ms + HOUR_MS,
        born_at_ms: now_ms,
        latest_expiry_ms: now_ms + 24 * HOUR_MS,
        last_sequence: 0,
        start_after_ms: 0,
        unmoved: 0,
        correction: None,
    };
    let period_start_ms = now_ms - now_ms % MONTH_MS;
    let rest = BodyDetails {
        subjects: Vec::new(),
        counters: Vec::new(),
        keyed: false,
        operation: Some(OperationId::parse("ocr").unwrap()),
        policy_version: 1,
        period_ms: (period_start_ms, period_start_ms + MONTH_MS),
        hour_start_ms: now_ms - now_ms % HOUR_MS,
        metadata: String::new(),
    };
    let body = Body { fingerprint: Fingerprint([9; 16]), tenant, lines: vec![line], rest: Some(rest) };
    Record { head, units: vec![LineUnits::new(units(3), Units::ZERO)], body }
}
