//! Redis alone: the very calls that the service sends, repeated by a plain client that knows nothing of Tollgate. The
//! limit of everything above.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::embedded::{EmbeddedRedis, RedisOptions};

use super::Options;
use super::cpu;
use super::figures::{self, Figure, Figures};
use super::recorded;

/// Calls sent together by the pipelined client.
const PIPELINED: usize = 16;
/// A counter that one short script raises: a yardstick of the machine.
const COUNT_SCRIPT: &str = "#!lua\nreturn redis.call('INCR', KEYS[1])";
/// What a script of plain commands costs: a yardstick of the scripts.
const YARDSTICK_SCRIPT: &str = include_str!("yardstick.lua");
/// As long as what is kept of a reservation with one line.
const RECORD: [u8; 150] = [b'x'; 150];

/// Calls that differ by a number.
pub trait Calls {
    /// The call of this number.
    fn command(&self, number: u64) -> redis::Cmd;
    /// Whether this answers a call that did what it should.
    fn is_done(&self, answer: &redis::Value) -> bool;
}

/// A script of the bench's own.
pub struct Plain {
    digest: String,
    arguments: fn(redis::Cmd, u64) -> redis::Cmd,
}

impl Calls for Plain {
    fn command(&self, number: u64) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest);
        (self.arguments)(command, number)
    }

    fn is_done(&self, answer: &redis::Value) -> bool {
        matches!(answer, redis::Value::Int(1..))
    }
}

fn counted(mut command: redis::Cmd, _: u64) -> redis::Cmd {
    command.arg(1).arg("counter");
    command
}

fn held(mut command: redis::Cmd, number: u64) -> redis::Cmd {
    command.arg(4).arg(format!("hold:{number:032x}")).arg(format!("due:{}", number / 20_000));
    command.arg("outbox").arg("tenant").arg(&RECORD).arg(&u128::from(number).to_be_bytes()).arg(3);
    command
}

/// Measures Redis alone.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let alone = Alone::start(options.duration()).await;
    let count = Plain { digest: alone.load(COUNT_SCRIPT), arguments: counted };
    for (name, plain) in [("a script of one INCR", count), ("yardstick of plain commands", alone.yardstick())]
    {
        let (figure, _) = alone.pipelined(&plain, None);
        figures.add(Figure { name: format!("gate alone: {name}, pipelined"), ..figure });
    }
    for (name, limits, has_quota) in [
        ("1 limit", 1, false),
        ("3 limits", 3, false),
        ("3 limits, quota", 3, true),
        ("16 limits", 16, false),
    ] {
        let recorded = recorded::record(&alone.redis.url(), &alone.redis.socket(), limits, has_quota).await;
        let (pipelined, ids) = alone.pipelined(&recorded.reserve, None);
        figures.add(Figure { name: format!("gate alone: reserve, {name}, pipelined"), ..pipelined });
        let (pipelined, _) = alone.pipelined(&recorded.consume, Some(ids));
        figures.add(Figure { name: format!("gate alone: consume, {name}, pipelined"), ..pipelined });
        if limits == 3 && !has_quota {
            let single = alone.single(&recorded.reserve, options.callers).await;
            figures.add(Figure { name: format!("gate alone: reserve, {name}, one by one"), ..single });
        }
    }
}

/// A Redis that nobody else calls.
pub struct Alone {
    /// The server.
    pub redis: EmbeddedRedis,
    duration: Duration,
    _directory: TempDir,
}

impl Alone {
    /// Starts one whose figures are measured for so long.
    pub async fn start(duration: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().to_owned();
        let started = tokio::task::spawn_blocking(move || EmbeddedRedis::start(RedisOptions::new(at)));
        let redis = started.await.expect("a thread").expect("Redis starts");
        Self { redis, duration, _directory: directory }
    }

    /// The yardstick of the scripts.
    pub fn yardstick(&self) -> Plain {
        Plain { digest: self.load(YARDSTICK_SCRIPT), arguments: held }
    }

    fn connection(&self) -> redis::Connection {
        redis::Client::open(self.redis.url()).unwrap().get_connection().unwrap()
    }

    /// Loads a script; its digest.
    pub fn load(&self, script: &str) -> String {
        redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut self.connection()).unwrap()
    }

    /// Sends the calls many at once over one connection, with new reservations or those of `ids`; returns those that
    /// were used.
    pub fn pipelined(&self, calls: &impl Calls, ids: Option<Range<u64>>) -> (Figure, Range<u64>) {
        let mut connection = self.connection();
        let first = ids.as_ref().map_or_else(fresh, |ids| ids.start);
        let end = ids.map_or(u64::MAX, |ids| ids.end);
        let (before, began, mut next) = (cpu::of_process(self.redis.id()), Instant::now(), first);
        while began.elapsed() < self.duration && next < end {
            let mut pipeline = redis::pipe();
            let until = (next + PIPELINED as u64).min(end);
            for number in next..until {
                pipeline.add_command(calls.command(number));
            }
            let answers: Vec<redis::Value> = pipeline.query(&mut connection).unwrap();
            assert!(answers.iter().all(|answer| calls.is_done(answer)), "{answers:?}");
            next = until;
        }
        let count = next - first;
        let cost = cpu::of_process(self.redis.id()) - before;
        (Figure::new("", count, began.elapsed()).costing([0, cost, 0], count), first..next)
    }

    /// Sends new reservations from so many callers, each over a connection of its own, one call after the other.
    async fn single(&self, calls: &impl Calls, callers: usize) -> Figure {
        let client = redis::Client::open(self.redis.url()).unwrap();
        let (before, began) = (cpu::of_process(self.redis.id()), Instant::now());
        let first = fresh();
        let calling = (0..callers).map(|caller| {
            let client = client.clone();
            async move {
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let mut times = figures::times();
                while began.elapsed() < self.duration {
                    let number = first + times.len() * callers as u64 + caller as u64;
                    let started = Instant::now();
                    let answer: redis::Value =
                        calls.command(number).query_async(&mut connection).await.unwrap();
                    assert!(calls.is_done(&answer), "{answer:?}");
                    times.saturating_record(started.elapsed().as_micros() as u64);
                }
                times
            }
        });
        let all = futures::future::join_all(calling).await;
        let mut times = figures::times();
        all.into_iter().for_each(|one| times.add(one).unwrap());
        let cost = cpu::of_process(self.redis.id()) - before;
        Figure::new("", times.len(), began.elapsed()).timed(&times).costing([0, cost, 0], times.len())
    }
}

/// A number no reservation had before.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1 << 32, Ordering::Relaxed)
}
