//! A failover to a replica that lags, and back to the old server with the tail that it had.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::json;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tollgate::embedded::{EmbeddedRedis, RedisOptions};

use super::load::{Load, names, prepare, prepare_on};
use super::{PATIENCE, Storm, rounds};
use crate::support::wait::wait_for;

const TENANTS: u64 = 8;
const CALLERS: u64 = 8;

/// A port whose target server can be replaced; connections end when it is.
struct Forwarder {
    port: u16,
    target: watch::Sender<Option<PathBuf>>,
}

impl Forwarder {
    /// Forwards everything to the target, or nothing while there is none.
    async fn to(target: Option<PathBuf>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = watch::Sender::new(target);
        let mut seen = target.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let Some(socket) = seen.borrow_and_update().clone() else { continue };
                let mut moved = seen.clone();
                tokio::spawn(async move {
                    let Ok(mut server) = UnixStream::connect(&socket).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = moved.changed() => {}
                    }
                });
            }
        });
        Self { port, target }
    }

    fn turn_to(&self, target: Option<PathBuf>) {
        self.target.send_replace(target);
    }
}

/// Sends a command to a server and returns the answer.
fn say<T: redis::FromRedisValue>(redis: &EmbeddedRedis, words: &[&str]) -> T {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
}

/// A service that reaches Redis by a port, and a replica of that Redis that reaches it by another.
struct Pair {
    storm: Storm,
    replica: EmbeddedRedis,
    service_way: Forwarder,
    replica_way: Forwarder,
}

impl Pair {
    async fn begin() -> Self {
        let mut storm = Storm::servers(Vec::new()).await;
        let at = storm.directory.path().join("replica");
        let replica = tokio::task::spawn_blocking(move || {
            EmbeddedRedis::start(RedisOptions::new(at)).expect("a Redis")
        })
        .await
        .unwrap();
        let service_way = Forwarder::to(Some(storm.redis.socket())).await;
        let replica_way = Forwarder::to(Some(storm.redis.socket())).await;
        storm.redis_url = Some(format!("redis://127.0.0.1:{}/", service_way.port));
        storm.service = Some(storm.serve("127.0.0.1:0").await);
        Self { storm, replica, service_way, replica_way }
    }

    /// The replica has the whole of the other.
    async fn follow(&self) {
        self.replica_way.turn_to(Some(self.storm.redis.socket()));
        say::<()>(&self.replica, &["REPLICAOF", "127.0.0.1", &self.replica_way.port.to_string()]);
        wait_for("the replica follows", PATIENCE, async || {
            let info: String = say(&self.replica, &["INFO", "replication"]);
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    async fn epoch(&self) -> u64 {
        self.storm.rows("SELECT min(epoch) FROM (SELECT max(epoch) AS epoch FROM epochs GROUP BY partition) AS in_force").await[0].parse().unwrap()
    }

    /// Nothing reaches the replica any more, so that it lags.
    fn cut(&self) {
        self.replica_way.turn_to(None);
    }

    /// The replica is the server from now on; the other stays as it is.
    fn fail_over(&self) {
        say::<()>(&self.replica, &["REPLICAOF", "NO", "ONE"]);
        self.service_way.turn_to(Some(self.replica.socket()));
    }

    /// The old server is the server again, with the tail that it had.
    fn fail_back(&self) {
        self.service_way.turn_to(Some(self.storm.redis.socket()));
    }
}

/// Swaps the servers to and fro under this load, so many times.
async fn swap(pair: &Pair, load: &Load, rounds: u64) {
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        pair.follow().await;
        load.goes_on(CALLERS).await;
        pair.cut();
        load.goes_on(4 * CALLERS).await;
        for turn in [Pair::fail_over, Pair::fail_back] {
            let before = pair.epoch().await;
            turn(pair);
            let turned = Instant::now();
            load.goes_on(4 * CALLERS).await;
            slowest = slowest.max(turned.elapsed());
            wait_for("every epoch rises", PATIENCE, async || (pair.epoch().await > before).then_some(()))
                .await;
        }
    }
    eprintln!("{} swaps, {} jobs done again after {slowest:?} at most", 2 * rounds, 4 * CALLERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_lagging_replica_and_back_loses_nothing_that_the_ledger_acknowledged_and_counts_it_once()
 {
    let pair = Pair::begin().await;
    prepare(&pair.storm, TENANTS).await;
    let caller = pair.storm.caller();
    let load = Load::start(std::slice::from_ref(&caller), CALLERS, TENANTS, "ledger");
    load.goes_on(CALLERS).await;
    swap(&pair, &load, rounds().unwrap_or(1)).await;
    let done = load.end().await;
    pair.storm.books_hold("page", done.units()).await;
    done.repeat(&caller).await;
    pair.storm.books_hold("page", done.units()).await;
    pair.storm.verify(&names(TENANTS), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_lagging_replica_and_back_admits_nothing_above_a_limit() {
    const CAPACITY: u64 = 400;
    let pair = Pair::begin().await;
    let month =
        json!([{ "id": "month", "meter": "page", "window": "month", "capacity": CAPACITY.to_string() }]);
    prepare_on(&pair.storm, TENANTS, json!({ "limits": month })).await;
    let caller = pair.storm.caller();
    let load = Load::start(std::slice::from_ref(&caller), CALLERS, TENANTS, "ledger");
    swap(&pair, &load, rounds().unwrap_or(2)).await;
    let done = load.end().await;
    done.repeat(&caller).await;
    let query = "SELECT tenant, sum(consumed)::text AS c FROM usage_hourly WHERE meter = 'page' GROUP BY 1";
    let used = pair.storm.rows(query).await;
    assert_eq!(used.len() as u64, TENANTS, "{used:?}");
    for row in &used {
        let consumed: Decimal = row.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(consumed <= Decimal::from(CAPACITY), "above the limit: {used:?}");
        assert!(consumed > Decimal::ZERO, "a limit that admits nothing is never exceeded either");
    }
    eprintln!("{} jobs, used of {CAPACITY}: {used:?}", done.jobs());
    pair.storm.verify(&names(TENANTS), 1).await;
}
