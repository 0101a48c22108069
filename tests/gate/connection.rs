use std::sync::Arc;
use std::time::Duration;

use tollgate::gate::{
    CheckAsk, CheckOutcome, Durability, Gate, GateError, GateOptions, ReserveOutcome, Totals,
};

use super::server::{Mode, Server};
use super::world::*;
use crate::support::matching::assert_matches;

async fn refusal(server: &Server) -> String {
    match Gate::connect(options(server.url())).await {
        Err(GateError::UnsafeServer(sentence)) => sentence,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("connected"),
    }
}

#[tokio::test]
async fn a_server_that_may_evict_or_forget_is_refused_with_the_remedy() {
    let evicts = Server::own_with(&[("maxmemory-policy", "allkeys-lru")]);
    assert!(refusal(&evicts).await.contains("set `maxmemory-policy noeviction`"));
    let forgets = Server::own_with(&[("appendonly", "no")]);
    assert!(refusal(&forgets).await.contains("set `appendonly yes`"));
    let allowed = GateOptions { allow_unsafe: true, ..options(forgets.url()) };
    assert_eq!(Gate::connect(allowed).await.unwrap().durability(), Durability::None);
}

#[tokio::test]
async fn the_durability_tier_is_the_servers() {
    let always = Server::own_with(&[("appendfsync", "always")]);
    assert_eq!(Gate::connect(options(always.url())).await.unwrap().durability(), Durability::Always);
    let world = World::warm(Mode::Alone).await;
    assert_eq!(world.gate.durability().as_str(), "everysec");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_said_so() {
    let gone = options("unix:///nonexistent/redis.sock".into());
    let Err(error) = Gate::connect(gone).await else { panic!("connected") };
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_waited_for_and_one_that_lets_nobody_in_is_not() {
    let gone = options("unix:///nonexistent/redis.sock".into());
    let waiting = Gate::connect_if_there(gone).await.unwrap();
    assert_eq!(waiting.durability(), Durability::None);
    let locked = Server::own();
    locked.command(&["CONFIG", "SET", "requirepass", "secret"]);
    let Err(error) = Gate::connect_if_there(options(locked.url())).await else { panic!("connected") };
    assert_matches!(&error, GateError::Settings(_));
    assert!(error.to_string().contains("it refuses this user and password"), "{error}");
}

#[tokio::test]
async fn when_memory_is_full_nothing_new_is_held_and_every_hold_can_still_be_freed() {
    let world = World::over(Server::own()).await;
    world.warm_up(tollgate::gate::WarmState::default()).await;
    for key in ["part", "final", "release", "expire"] {
        world.hold(&pages(key, 5)).await;
    }
    world.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_matches!(world.try_reserve(&pages("new", 5)).await, Err(GateError::Unavailable(_)));
    let part = world.consume_call(START_MS, "part", total("1"), false);
    assert_matches!(world.gate.consume(&part).await, Err(GateError::Unavailable(_)));
    world.consume("final", total("5"), true).await;
    world.release("release", Totals::Default).await;
    assert_eq!(world.sweep(DUE_MS).await, 2);
    assert_eq!(world.day().await, (5, 0));
}

#[tokio::test]
async fn when_memory_is_full_light_counters_are_still_read_and_no_longer_moved() {
    let world = World::over(Server::own()).await;
    let (amounts, counters) = ([units(1)], [limit(b"light---", 5)]);
    let check = async |peeks: bool| {
        let asks = [CheckAsk {
            tenant: Some(&world.tenant),
            subjects: &[],
            amounts: &amounts,
            counters: &counters,
            valid: WINDOW,
            needed_until_ms: WINDOW.1,
            peeks,
        }];
        world.gate.check(world.partition, &asks, false, Some(START_MS)).await
    };
    check(false).await.unwrap();
    world.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_matches!(check(false).await, Err(GateError::Unavailable(_)));
    let Ok(CheckOutcome::Decided { checks, .. }) = check(true).await else { panic!("it is not read") };
    assert_eq!(checks[0].readings[0].consumed, units(1));
}

#[tokio::test]
async fn a_call_that_arrives_after_its_caller_stopped_waiting_does_nothing() {
    let server = Server::own();
    let world = World::over(Arc::clone(&server)).await;
    world.warm_up(tollgate::gate::WarmState::default()).await;
    let impatient = GateOptions { response_timeout: Duration::from_millis(1_000), ..options(server.url()) };
    let impatient = World { gate: Gate::connect(impatient).await.unwrap(), ..world };
    let run_id = impatient.gate.meet().await.unwrap();
    impatient.gate.load_scripts(&run_id).await.unwrap();
    impatient.gate.set_epoch(impatient.partition, tollgate::domain::ids::Epoch(1));
    server.command(&["CLIENT", "PAUSE", "4000", "WRITE"]);
    let hold = pages("ghost", 5);
    assert_matches!(impatient.try_reserve(&hold).await, Err(GateError::Timeout));
    // A command that waits for the end of the pause is answered only after the ghost had its turn.
    server.command(&["SET", "behind-the-pause", "1"]);
    let patient = World { gate: Gate::connect(options(server.url())).await.unwrap(), ..impatient };
    patient.gate.load_scripts(&run_id).await.unwrap();
    patient.gate.set_epoch(patient.partition, tollgate::domain::ids::Epoch(1));
    assert_eq!(patient.day().await, (0, 0));
    assert_eq!(patient.events().await.len(), 0);
    assert_matches!(patient.reserve(&hold).await, ReserveOutcome::Admitted { .. });
}

#[tokio::test]
async fn a_check_that_arrives_after_its_caller_stopped_waiting_is_not_counted() {
    let server = Server::own();
    let world = World::over(Arc::clone(&server)).await;
    let (amounts, counters) = ([units(1)], [limit(b"light---", 5)]);
    let ask = |peeks| {
        let (tenant, valid, needed_until_ms) = (&world.tenant, WINDOW, WINDOW.1);
        CheckAsk {
            tenant: Some(tenant),
            subjects: &[],
            amounts: &amounts,
            counters: &counters,
            valid,
            needed_until_ms,
            peeks,
        }
    };
    world.gate.check(world.partition, &[ask(false)], false, Some(START_MS)).await.unwrap();
    let impatient = GateOptions { response_timeout: Duration::from_millis(200), ..options(server.url()) };
    let impatient = Gate::connect(impatient).await.unwrap();
    impatient.load_scripts(&impatient.meet().await.unwrap()).await.unwrap();
    impatient.set_epoch(world.partition, tollgate::domain::ids::Epoch(1));
    server.command(&["CLIENT", "PAUSE", "600", "WRITE"]);
    let late = impatient.check(world.partition, &[ask(false)], false, Some(START_MS)).await;
    assert_matches!(late, Err(GateError::Timeout));
    server.command(&["SET", "behind-the-pause", "1"]);
    let looked = world.gate.check(world.partition, &[ask(true)], false, Some(START_MS)).await;
    let Ok(CheckOutcome::Decided { checks, .. }) = looked else { panic!("{looked:?}") };
    assert_eq!(checks[0].readings[0].consumed, units(1));
}
