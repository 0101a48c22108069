//! Redis alone: the very calls that the service sends, repeated by a plain client that knows nothing of Tollgate. The limit
//! of everything above.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tollgate::domain::amount::{Amount, Decimals, Units};
use tollgate::domain::ids::{
    Epoch, IdempotencyKey, MeterId, Partition, ReservationId, ReservationIds, TenantId,
};
use tollgate::domain::reservation::{Body, BodyRest, CounterField, CounterPlace, LineRule, OnExcess, OnLate};
use tollgate::embedded::{EmbeddedRedis, RedisOptions};
use tollgate::gate::{
    CheckCapacity, ConsumeCall, CounterCheck, CounterClass, Gate, GateOptions, QuotaCapacity, ReserveCall,
    ReserveMode, RestorePage, Totals, WarmState,
};

use super::Options;
use super::cpu;
use super::figures::{Figure, Figures};

/// Calls sent together by the pipelined client.
const PIPELINED: usize = 16;
/// A counter that one short script raises: a yardstick of the machine.
const COUNT_SCRIPT: &str = "#!lua\nreturn redis.call('INCR', KEYS[1])";

/// Measures Redis alone.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().to_owned();
    let started = tokio::task::spawn_blocking(move || EmbeddedRedis::start(RedisOptions::new(at)));
    let redis = started.await.expect("a thread").expect("Redis starts");
    let alone =
        Alone { socket: redis.socket(), url: redis.url(), id: redis.id(), duration: options.duration() };
    alone.count(figures);
    for (name, limits, has_quota) in [
        ("1 limit", 1, false),
        ("3 limits", 3, false),
        ("3 limits, quota", 3, true),
        ("16 limits", 16, false),
    ] {
        let templates = alone.capture(limits, has_quota).await;
        let (pipelined, ids) = alone.pipelined(&templates.reserve, None);
        figures.add(Figure { name: format!("gate alone: reserve, {name}, pipelined"), ..pipelined });
        let (pipelined, _) = alone.pipelined(&templates.consume, Some(ids));
        figures.add(Figure { name: format!("gate alone: consume, {name}, pipelined"), ..pipelined });
        if limits == 3 && !has_quota {
            let single = alone.single(&templates.reserve, options.callers).await;
            figures.add(Figure { name: format!("gate alone: reserve, {name}, one by one"), ..single });
        }
    }
}

struct Alone {
    socket: PathBuf,
    url: String,
    id: u32,
    duration: Duration,
}

/// Calls as they went over the wire.
struct Templates {
    reserve: Template,
    consume: Template,
}

/// One call: its words, of which the reservation's key and id change from call to call.
struct Template {
    words: Vec<Vec<u8>>,
}

/// Where the words of a call of `reserve` and `consume` stand: EVALSHA, digest, number of keys, keys, arguments.
const KEY_COUNT: usize = 2;
const RESERVATION_KEY: usize = 5;

impl Template {
    fn command(&self, number: u64) -> redis::Cmd {
        let keys: usize = std::str::from_utf8(&self.words[KEY_COUNT]).unwrap().parse().unwrap();
        let first_argument = 3 + keys;
        let mut command = redis::Cmd::new();
        for (at, word) in self.words.iter().enumerate() {
            if at == RESERVATION_KEY {
                let hex_at = word.len() - 32;
                command.arg([&word[..hex_at], format!("{number:032x}").as_bytes()].concat());
            } else if at == first_argument + 1 {
                // The time after which the call may not run: never.
                command.arg("9999999999999");
            } else if at == first_argument + 3 {
                command.arg(u128::from(number).to_be_bytes().as_slice());
            } else {
                command.arg(word.as_slice());
            }
        }
        command
    }
}

impl Alone {
    fn count(&self, figures: &mut Figures) {
        let mut connection = redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap();
        let digest: String =
            redis::cmd("SCRIPT").arg("LOAD").arg(COUNT_SCRIPT).query(&mut connection).unwrap();
        let (before, began, mut calls) = (cpu::of_process(self.id), Instant::now(), 0);
        while began.elapsed() < self.duration {
            let mut pipeline = redis::pipe();
            for _ in 0..PIPELINED {
                pipeline.cmd("EVALSHA").arg(&digest).arg(1).arg("counter");
            }
            let _: Vec<i64> = pipeline.query(&mut connection).unwrap();
            calls += PIPELINED as u64;
        }
        let cost = cpu::of_process(self.id) - before;
        let figure = Figure::new("gate alone: a script of one INCR, pipelined", calls, began.elapsed());
        figures.add(figure.costing([0, cost, 0], calls));
    }

    /// Sends the calls many at once over one connection, with new reservations or those of `ids`; answers which were used.
    fn pipelined(
        &self,
        template: &Template,
        ids: Option<std::ops::Range<u64>>,
    ) -> (Figure, std::ops::Range<u64>) {
        let mut connection = redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap();
        let first = ids.as_ref().map_or_else(fresh, |ids| ids.start);
        let end = ids.map_or(u64::MAX, |ids| ids.end);
        let (before, began, mut next) = (cpu::of_process(self.id), Instant::now(), first);
        while began.elapsed() < self.duration && next < end {
            let mut pipeline = redis::pipe();
            let until = (next + PIPELINED as u64).min(end);
            for number in next..until {
                pipeline.add_command(template.command(number));
            }
            let answers: Vec<redis::Value> = pipeline.query(&mut connection).unwrap();
            assert!(answers.iter().all(is_done), "{answers:?}");
            next = until;
        }
        let calls = next - first;
        let cost = cpu::of_process(self.id) - before;
        (Figure::new("", calls, began.elapsed()).costing([0, cost, 0], calls), first..next)
    }

    /// Sends new reservations from so many callers, each over a connection of its own, one call after the other.
    async fn single(&self, template: &Template, callers: usize) -> Figure {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let (before, began) = (cpu::of_process(self.id), Instant::now());
        let first = fresh();
        let calling = (0..callers).map(|caller| {
            let client = client.clone();
            async move {
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let mut times = Histogram::<u64>::new(3).unwrap();
                while began.elapsed() < self.duration {
                    let number = first + times.len() * callers as u64 + caller as u64;
                    let started = Instant::now();
                    let answer: redis::Value =
                        template.command(number).query_async(&mut connection).await.unwrap();
                    assert!(is_done(&answer), "{answer:?}");
                    times.saturating_record(started.elapsed().as_micros() as u64);
                }
                times
            }
        });
        let all = futures::future::join_all(calling).await;
        let mut times = Histogram::<u64>::new(3).unwrap();
        all.into_iter().for_each(|one| times.add(one).unwrap());
        let cost = cpu::of_process(self.id) - before;
        Figure::new("", times.len(), began.elapsed()).timed(&times).costing([0, cost, 0], times.len())
    }

    /// Lets the gate make one call of each kind, and listens to what it sends.
    async fn capture(&self, limits: usize, has_quota: bool) -> Templates {
        redis::cmd("FLUSHALL")
            .exec(&mut redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap())
            .unwrap();
        let gate = Gate::connect(gate_options(&self.url)).await.expect("the gate connects");
        let run_id = gate.run_id().await.unwrap();
        gate.load_scripts(&run_id).await.unwrap();
        let tenant = TenantId::parse("tenant-0").unwrap();
        let partition = gate.partition_of(&tenant);
        gate.set_epoch(partition, Epoch(1));
        gate.adopt(partition, Epoch(1), 0, None).await.unwrap();
        let world = World { gate, partition, tenant, limits, has_quota };
        world.warm_up().await;
        let mut monitor = Monitor::of(&self.socket);
        let id = world.reserve().await;
        let reserve = Template { words: monitor.next_script() };
        world.consume(id).await;
        Templates { reserve, consume: Template { words: monitor.next_script() } }
    }
}

/// A number no reservation had before.
fn fresh() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1 << 32, std::sync::atomic::Ordering::Relaxed)
}

/// The highest status is the one of a call that was carried out; see src/gate/status.rs.
fn is_done(answer: &redis::Value) -> bool {
    let done = tollgate::gate::status::Status::Done.code();
    matches!(answer, redis::Value::Array(values) if values.first() == Some(&redis::Value::Int(done)))
}

fn gate_options(url: &str) -> GateOptions {
    GateOptions {
        url: url.to_owned(),
        connections: 1,
        response_timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        partitions: 64,
        due_bucket_ms: 1000,
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
    limits: usize,
    has_quota: bool,
}

const DAY_MS: i64 = 86_400_000;

impl World {
    fn window(&self) -> (i64, i64) {
        let now_ms = self.gate.redis_time_ms();
        (now_ms - DAY_MS, now_ms + DAY_MS)
    }

    async fn warm_up(&self) {
        let capacity = QuotaCapacity {
            field: quota_field(),
            version: 1,
            parts: vec![(0, Units::new(1_000_000_000_000).unwrap())],
            until_ms: self.window().1,
        };
        let warm = WarmState { capacities: vec![capacity], ..WarmState::default() };
        let page = RestorePage {
            partition: self.partition,
            epoch: self.gate.epoch(self.partition).unwrap(),
            tenant: &self.tenant,
            records: &[],
            last: Some(warm),
            now_ms: None,
        };
        self.gate.restore_page(&page).await.unwrap();
    }

    async fn reserve(&self) -> ReservationId {
        let window = self.window();
        let checks: Vec<_> = (0..self.limits)
            .map(|number| self.check(number, window))
            .chain(self.has_quota.then(|| self.quota(window)))
            .collect();
        let body = Body {
            fingerprint: [1; 16],
            tenant: self.tenant.clone(),
            lines: vec![LineRule {
                meter: MeterId::parse("ocr.page").unwrap(),
                decimals: Decimals::new(0).unwrap(),
                on_excess: OnExcess::Record,
                on_late: OnLate::Charge,
                late_within_seconds: 604_800,
            }],
            rest: Some(BodyRest {
                subjects: Vec::new(),
                counters: checks.iter().map(|check| check.place.clone()).collect(),
                keyed: false,
                operation: None,
                policy_version: 1,
                period_ms: window,
                hour_start_ms: window.0,
                metadata: String::new(),
            }),
        };
        let key = IdempotencyKey::parse("a").unwrap();
        let id = ReservationIds::new(&[7; 32]).derive(self.partition, &self.tenant, "reserve", &key);
        let call = ReserveCall {
            id,
            partition: self.partition,
            tenant: &self.tenant,
            subjects: Vec::new(),
            mode: ReserveMode::AllOrNothing,
            amounts: vec![Units::new(3).unwrap()],
            body: &body,
            checks,
            ttl_ms: 60_000,
            max_life_ms: DAY_MS,
            valid: window,
            ledger_asked: false,
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

    fn check(&self, number: usize, window: (i64, i64)) -> CounterCheck {
        let mut name = *b"limit---";
        name[6..].copy_from_slice(format!("{number:02}").as_bytes());
        let place = CounterPlace {
            holder: 0,
            field: CounterField(name),
            window_start_ms: window.0,
            cap: None,
            pairs: vec![(0, 1)],
        };
        CounterCheck {
            place,
            class: CounterClass::Rate,
            since_ms: 0,
            capacity: CheckCapacity::Limit(Units::new(1_000_000_000_000).unwrap()),
        }
    }

    fn quota(&self, window: (i64, i64)) -> CounterCheck {
        let place = CounterPlace {
            holder: 0,
            field: quota_field(),
            window_start_ms: window.0,
            cap: None,
            pairs: vec![(0, 1)],
        };
        CounterCheck {
            place,
            class: CounterClass::Rate,
            since_ms: 0,
            capacity: CheckCapacity::Quota { field: quota_field() },
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
