//! The very calls that the gate sends: it makes one of each kind, and a listener takes down its words.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate::domain::algorithms::{Parameters, calendar};
use tollgate::domain::amount::{Amount, Decimals, Units};
use tollgate::domain::counter::{Counter, Source};
use tollgate::domain::ids::{
    Epoch, IdempotencyKey, MeterId, OutboxId, Partition, ReservationId, ReservationIds, TenantId,
};
use tollgate::domain::limit::{Class, Kind};
use tollgate::domain::load::LoadLevel;
use tollgate::domain::period::Window;
use tollgate::domain::plan::QuotaMode;
use tollgate::domain::policy::Level;
use tollgate::domain::reservation::{Body, BodyDetails, CounterField, LineRule, OnExcess, OnLate};
use tollgate::gate::{
    CheckAsk, ConsumeCall, Gate, GateOptions, QuotaCapacity, ReserveCall, ReserveMode, RestorePage, Totals,
    WarmState,
};

use super::redis_alone::Calls;

/// A reserve and a consume as they went over the wire.
pub struct Recorded {
    /// The reserve.
    pub reserve: Template,
    /// The consume that ends it.
    pub consume: Template,
    /// Reserves that go together.
    pub reserves: Template,
}

/// How many reserves go together.
pub const TOGETHER: usize = 16;

/// One call: its words, which are the same from call to call but for the ids of its reservations.
pub struct Template {
    words: Vec<Vec<u8>>,
    ids: Vec<[u8; 16]>,
}

impl Template {
    /// The same call of another script.
    pub fn of(&self, digest: &str) -> Self {
        let mut words = self.words.clone();
        words[1] = digest.as_bytes().to_vec();
        Self { words, ids: self.ids.clone() }
    }
}

impl Calls for Template {
    fn command(&self, number: u64) -> redis::Cmd {
        let numbers = u128::from(number) * self.ids.len() as u128..;
        let mut words = self.words.clone();
        for (id, number) in self.ids.iter().zip(numbers) {
            let new = number.to_be_bytes();
            for word in &mut words {
                replace(word, hex(id).as_bytes(), hex(&new).as_bytes());
                replace(word, id, &new);
            }
        }
        let mut command = redis::Cmd::new();
        command.arg(words);
        command
    }

    /// The highest status is the one of a call that was carried out; see src/gate/status.rs.
    fn is_done(&self, answer: &redis::Value) -> bool {
        let done = tollgate::gate::status::Status::Done.code();
        match answer {
            redis::Value::Array(values) => values.first() == Some(&redis::Value::Int(done)),
            // What the plain path of a check answers begins with whether it refuses.
            redis::Value::BulkString(packed) => packed.first() == Some(&0),
            _ => false,
        }
    }
}

fn hex(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

/// Replaces the first `old` in `word`; both are of one length.
fn replace(word: &mut [u8], old: &[u8], new: &[u8]) {
    if let Some(at) = word.windows(old.len()).position(|part| part == old) {
        word[at..at + new.len()].copy_from_slice(new);
    }
}

/// Empties the Redis behind `url`, and records a reserve and a consume of a tenant under so many calendar limits.
pub async fn record(url: &str, socket: &Path, limits: usize, has_quota: bool) -> Recorded {
    record_under(url, socket, Under { limits, has_quota, parameters: None }).await
}

/// What a tenant's work falls under.
pub struct Under {
    /// So many limits.
    pub limits: usize,
    /// Whether it has a quota too.
    pub has_quota: bool,
    /// How the limits count, where it is not by the calendar.
    pub parameters: Option<Parameters>,
}

/// The same with what the tenant's work falls under.
pub async fn record_under(url: &str, socket: &Path, under: Under) -> Recorded {
    redis::cmd("FLUSHALL").exec(&mut redis::Client::open(url).unwrap().get_connection().unwrap()).unwrap();
    let gate = Gate::connect(gate_options(url)).await.expect("the gate connects");
    let run_id = gate.meet().await.unwrap();
    gate.load_scripts(&run_id).await.unwrap();
    let tenant = TenantId::parse("tenant-0").unwrap();
    let partition = gate.partition_of(&tenant);
    gate.set_epoch(partition, Epoch(1));
    gate.adopt(partition, Epoch(1), 0, None).await.unwrap();
    let world = World::new(gate, partition, tenant, under);
    world.warm_up().await;
    let mut monitor = Monitor::of(socket);
    let id = world.reserve("a").await;
    let mut template = |ids: &[ReservationId]| Template {
        words: monitor.next_script(),
        ids: ids.iter().map(|id| id.as_bytes().to_owned()).collect(),
    };
    let reserve = template(&[id]);
    world.consume(id).await;
    let consume = template(&[id]);
    let keys: Vec<_> = (0..TOGETHER).map(|number| format!("together-{number}")).collect();
    let ids = Gate::together(futures::future::join_all(keys.iter().map(|key| world.reserve(key)))).await;
    Recorded { reserve, consume, reserves: template(&ids) }
}

/// Records a check under so many light counters of these parameters; what Redis keeps is left as it is.
pub async fn record_check(url: &str, socket: &Path, parameters: Parameters, count: usize) -> Template {
    let gate = Gate::connect(gate_options(url)).await.expect("the gate connects");
    let run_id = gate.meet().await.unwrap();
    gate.load_scripts(&run_id).await.unwrap();
    let tenant = TenantId::parse(&format!("tenant-{}-{count}", parameters.code())).unwrap();
    let partition = gate.partition_of(&tenant);
    gate.set_epoch(partition, Epoch(1));
    gate.adopt(partition, Epoch(1), 0, None).await.unwrap();
    let under = Under { limits: count, has_quota: false, parameters: Some(parameters) };
    let world = World::new(gate, partition, tenant, under);
    let counters: Vec<_> = (0..count).map(|number| world.counter(number, world.window)).collect();
    let amounts = [Units::new(1).unwrap()];
    let ask = CheckAsk {
        tenant: Some(&world.tenant),
        subjects: &[],
        amounts: &amounts,
        counters: &counters,
        valid: world.window,
        // So that no round has to let it live longer.
        needed_until_ms: world.window.1,
        peeks: false,
    };
    world.gate.check(partition, std::slice::from_ref(&ask), false, None).await.unwrap();
    let mut monitor = Monitor::of(socket);
    world.gate.check(partition, &[ask], false, None).await.unwrap();
    Template { words: monitor.next_script(), ids: Vec::new() }
}

fn gate_options(url: &str) -> GateOptions {
    GateOptions {
        url: url.to_owned(),
        connections: 1,
        // The last moment at which a call may run is among its words: no repetition comes after it.
        response_timeout: Duration::from_secs(3600),
        connect_timeout: Duration::from_secs(5),
        partitions: 64,
        anonymous_slots: 65_536,
        // The list in which the hold ends is among its words, too.
        due_bucket_ms: DAY_MS,
        tombstone_keyed_ms: 86_400_000,
        tombstone_unkeyed_ms: 300_000,
        concurrent_calls_max: 4096,
        allow_unsafe: false,
        secret: [7; 32],
    }
}

/// One warm tenant under so many limits.
struct World {
    gate: Gate,
    partition: Partition,
    tenant: TenantId,
    under: Under,
    /// The window of every counter: a later one would make the calls before it stale.
    window: (i64, i64),
}

const DAY_MS: i64 = 86_400_000;

impl World {
    fn new(gate: Gate, partition: Partition, tenant: TenantId, under: Under) -> Self {
        let now_ms = gate.redis_time_ms();
        Self { gate, partition, tenant, under, window: (now_ms - DAY_MS, now_ms + DAY_MS) }
    }

    async fn warm_up(&self) {
        let capacity = QuotaCapacity {
            field: quota_field(),
            version: 1,
            parts: vec![(0, Units::new(1_000_000_000_000).unwrap())],
            bounds_ms: Vec::new(),
            until_ms: self.window.1,
        };
        let warm = WarmState { capacities: vec![capacity], ..WarmState::default() };
        let page = RestorePage {
            as_of: OutboxId::default(),
            partition: self.partition,
            epoch: self.gate.epoch(self.partition).unwrap(),
            tenant: &self.tenant,
            records: &[],
            last: Some(warm),
            now_ms: None,
        };
        self.gate.restore_page(&page).await.unwrap();
    }

    async fn reserve(&self, key: &str) -> ReservationId {
        let window = self.window;
        let counters: Vec<_> = (0..self.under.limits)
            .map(|number| self.counter(number, window))
            .chain(self.under.has_quota.then(|| self.quota(window)))
            .collect();
        let body = Body {
            fingerprint: tollgate::domain::fingerprint::Fingerprint([1; 16]),
            tenant: self.tenant.clone(),
            lines: vec![LineRule {
                meter: MeterId::parse("ocr.page").unwrap(),
                decimals: Decimals::new(0).unwrap(),
                on_excess: OnExcess::Record,
                on_late: OnLate::Charge,
                late_within_seconds: 604_800,
                estimated: false,
                booked: true,
            }],
            rest: Some(BodyDetails {
                subjects: Vec::new(),
                counters: counters.iter().map(|counter| counter.place(false)).collect(),
                keyed: false,
                operation: None,
                policy_version: 1,
                period_ms: window,
                hour_start_ms: window.0,
                metadata: String::new(),
            }),
        };
        let key = IdempotencyKey::parse(key).unwrap();
        let id = ReservationIds::new(&[7; 32]).derive(self.partition, &self.tenant, "reserve", &key);
        let call = ReserveCall {
            id,
            partition: self.partition,
            tenant: &self.tenant,
            subjects: Vec::new(),
            mode: ReserveMode::AllOrNothing,
            amounts: vec![Units::new(3).unwrap()],
            body: &body,
            counters: &counters,
            ttl_ms: 60_000,
            max_life_ms: DAY_MS,
            valid: window,
            may_be_known: false,
            subject_windows_end_ms: 0,
            ledger_asked: false,
            work: None,
            now_ms: None,
        };
        self.gate.reserve(&call).await.unwrap();
        id
    }

    async fn consume(&self, id: ReservationId) {
        let totals = Totals::Single(Amount::parse("2").unwrap());
        self.gate
            .consume(&ConsumeCall { id, bound: None, totals, is_final: true, now_ms: None })
            .await
            .unwrap();
    }

    fn counter(&self, number: usize, window: (i64, i64)) -> Counter {
        let mut name = *b"limit---";
        name[6..].copy_from_slice(format!("{number:02}").as_bytes());
        let definition =
            serde_json::json!({ "id": "limit", "meter": "ocr.page", "window": "day", "capacity": "1" });
        let limit = serde_json::from_value(definition).unwrap();
        let source = Source::Limit(Arc::new(limit), Level::Tenant);
        let quota = self.quota(window);
        let parameters = self.under.parameters.unwrap_or(quota.parameters);
        Counter { field: CounterField(name), source, parameters, ..quota }
    }

    fn quota(&self, window: (i64, i64)) -> Counter {
        let window = Window { start_ms: window.0, end_ms: window.1 };
        Counter {
            scope_index: 0,
            is_light: false,
            field: quota_field(),
            kind: Kind::Hard,
            class: Class::Rate,
            lines: vec![(0, 1)],
            capacity: Units::new(1_000_000_000_000).unwrap(),
            load: LoadLevel::Full,
            parameters: Parameters::Calendar(calendar::Parameters { window }),
            since_ms: 0,
            meter: MeterId::parse("ocr.page").unwrap(),
            decimals: Decimals::default(),
            budgeted: None,
            source: Source::Quota(QuotaMode::default()),
        }
    }
}

fn quota_field() -> CounterField {
    CounterField(*b"quota---")
}

/// What reaches a server, command by command.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn of(socket: &std::path::Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut monitor = Self(BufReader::new(stream));
        monitor.line();
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// The words of the next script call that a client sent.
    fn next_script(&mut self) -> Vec<Vec<u8>> {
        loop {
            let words = words(&self.line());
            if words.first().is_some_and(|word| word == b"EVALSHA") {
                return words;
            }
        }
    }
}

/// The quoted words of a line, unescaped.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut word, mut letters) = (Vec::new(), None::<Vec<u8>>, line.bytes());
    while let Some(letter) = letters.next() {
        match (&mut word, letter) {
            (None, b'"') => word = Some(Vec::new()),
            (None, _) => {}
            (Some(_), b'"') => words.extend(word.take()),
            (Some(word), b'\\') => word.push(unescaped(&mut letters)),
            (Some(word), letter) => word.push(letter),
        }
    }
    words
}

fn unescaped(letters: &mut std::str::Bytes<'_>) -> u8 {
    match letters.next() {
        Some(b'x') => {
            let digits = [letters.next().unwrap(), letters.next().unwrap()];
            u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
        }
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(letter) => letter,
        None => panic!("a line ends inside a word"),
    }
}
