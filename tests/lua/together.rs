//! Limits of all algorithms on one request.

use std::collections::BTreeMap;

use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{Parameters, leaky_bucket, sliding_log};
use tollgate::domain::counter::Counter;
use tollgate::domain::limit::Kind;
use tollgate::domain::reservation::CounterField;
use tollgate::gate::ReserveOutcome;

use crate::gate::server::Server;
use crate::gate::world::*;
use crate::properties::gate::algorithms::rows;

/// A limit of each algorithm, all of this capacity.
fn limits(capacity: i64) -> Vec<Counter> {
    let of_row = |(number, parameters)| {
        let name: [u8; 8] = format!("limit-{number:02}").into_bytes().try_into().unwrap();
        Counter { parameters, ..limit(&name, capacity) }
    };
    rows().into_iter().map(|row| row.lasting).enumerate().map(of_row).collect()
}

/// All that the server has, byte for byte: of each hash its fields, whose order a read may change, of other keys all.
pub(super) fn dump(server: &Server) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "*"])).unwrap();
    let content = |key: &str| -> BTreeMap<String, Vec<u8>> {
        let kind: String = redis::from_redis_value(server.command(&["TYPE", key])).unwrap();
        if kind == "hash" {
            return redis::from_redis_value(server.command(&["HGETALL", key])).unwrap();
        }
        let dumped = redis::from_redis_value(server.command(&["DUMP", key])).unwrap();
        BTreeMap::from([(String::new(), dumped)])
    };
    keys.into_iter().map(|key| (key.clone(), content(&key))).collect()
}

#[tokio::test]
async fn a_request_that_its_last_limit_refuses_leaves_all_others_byte_for_byte_as_they_were() {
    let server = Server::own();
    let world = World::over(std::sync::Arc::clone(&server)).await;
    world.warm_up(Default::default()).await;
    let all = limits(1_000).into_iter().chain([limit(b"last----", 5)]);
    let ask = |key: &str| pages(key, 3).under(all.clone());
    world.hold(&ask("first")).await;
    let before = dump(&server);
    let last = limits(1_000).len();
    assert_eq!(refusing(world.reserve(&ask("second").at(START_MS + 1_500)).await), [last]);
    assert_eq!(dump(&server), before);
    done(world.release("first", tollgate::gate::Totals::Default).await);
    world.hold(&ask("second")).await;
}

#[tokio::test]
async fn a_soft_limit_refuses_nothing_whatever_its_algorithm() {
    let server = Server::own();
    let world = World::over(std::sync::Arc::clone(&server)).await;
    world.warm_up(Default::default()).await;
    let queue = Drain { units: 1, per_ms: 1_000 };
    let at_its_own_bounds = [
        Parameters::LeakyBucket(leaky_bucket::Parameters { drain: queue, max_wait_ms: 1_000 }),
        Parameters::SlidingLog(sliding_log::Parameters { length_ms: 60_000, entries_max: 1 }),
    ];
    let strict = at_its_own_bounds.map(|parameters| Counter { parameters, ..limits(5)[0].clone() });
    for (number, limit) in limits(5).into_iter().chain(strict).enumerate() {
        let name: [u8; 8] = format!("soft--{number:02}").into_bytes().try_into().unwrap();
        let soft = Counter { kind: Kind::Soft, field: CounterField(name), ..limit };
        for key in ["first", "second", "third"] {
            world.hold(&pages(&format!("{key}-{number}"), 6).under([soft.clone()])).await;
        }
        done(world.release(&format!("third-{number}"), tollgate::gate::Totals::Default).await);
    }
    let full = world.key(&format!("log:{}:soft--{:02}", world.tenant, limits(5).len() + 1));
    let members: i64 = redis::from_redis_value(server.command(&["ZCARD", &full])).unwrap();
    assert_eq!(members, 2, "a log that is full takes no more entries");
}

#[tokio::test]
async fn of_several_queues_the_longest_says_when_the_work_may_start() {
    let world = World::over(Server::own()).await;
    world.warm_up(Default::default()).await;
    let queue = |name: &[u8; 8], per_ms| {
        let drain = Drain { units: 1, per_ms };
        let parameters = leaky_bucket::Parameters { drain, max_wait_ms: 1_000_000 };
        Counter { parameters: Parameters::LeakyBucket(parameters), ..limit(name, 100) }
    };
    let both = [queue(b"slow----", 2_000), queue(b"quick---", 1_000)];
    world.hold(&pages("first", 3).under(both.clone())).await;
    let outcome = world.reserve(&pages("second", 1).under(both)).await;
    let ReserveOutcome::Admitted { start_after_ms, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(start_after_ms, 6_000);
}
