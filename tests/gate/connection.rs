use std::sync::Arc;
use std::time::Duration;

use tollgate::gate::{Durability, Gate, GateError, GateOptions, ReserveOutcome, Totals};

use super::server::{Mode, Server};
use super::world::*;

async fn refusal(server: &Server) -> String {
    match Gate::connect(options(server.url())).await {
        Err(GateError::UnsafeServer(sentence)) => sentence,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("connected"),
    }
}

#[tokio::test]
async fn a_server_that_may_evict_or_forget_is_refused_with_the_remedy() {
    let evicts = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    assert!(refusal(&evicts).await.contains("set `maxmemory-policy noeviction`"));
    let forgets = Server::start(&["--appendonly", "no"]);
    assert!(refusal(&forgets).await.contains("set `appendonly yes`"));
    let allowed = GateOptions { allow_unsafe: true, ..options(forgets.url()) };
    assert_eq!(Gate::connect(allowed).await.unwrap().durability(), Durability::None);
}

#[tokio::test]
async fn the_durability_tier_is_the_servers() {
    let always = Server::start(&["--appendfsync", "always"]);
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
async fn when_memory_is_full_nothing_new_is_held_and_every_hold_can_still_be_freed() {
    let world = World::over(Arc::new(Server::start(&[]))).await;
    world.warm_up(tollgate::gate::WarmState::default()).await;
    let day = limit(b"day-----", 100);
    let pages = |key: &str| ask(key, vec![line("ocr.page", 5)], vec![day.clone()]);
    for key in ["part", "final", "release", "expire"] {
        world.hold(&pages(key)).await;
    }
    world.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = world.try_reserve(&pages("new")).await;
    assert!(matches!(refused, Err(GateError::Unavailable(_))), "{refused:?}");
    let part = tollgate::gate::ConsumeCall {
        id: world.id("part"),
        bound: None,
        totals: total("1"),
        is_final: false,
        now_ms: Some(START_MS),
    };
    assert!(matches!(world.gate.consume(&part).await, Err(GateError::Unavailable(_))));
    world.consume("final", total("5"), true).await;
    world.release("release", Totals::Default).await;
    assert_eq!(world.sweep(START_MS + TTL_MS + BUCKET_MS).await, 2);
    assert_eq!(world.counts(&day).await, (5, 0));
}

#[tokio::test]
async fn a_call_that_arrives_after_its_caller_stopped_waiting_does_nothing() {
    let server = Arc::new(Server::start(&[]));
    let world = World::over(Arc::clone(&server)).await;
    world.warm_up(tollgate::gate::WarmState::default()).await;
    let impatient = GateOptions { response_timeout: Duration::from_millis(200), ..options(server.url()) };
    let impatient = World { gate: Gate::connect(impatient).await.unwrap(), ..world };
    let run_id = impatient.gate.run_id().await.unwrap();
    impatient.gate.load_scripts(&run_id).await.unwrap();
    impatient.gate.set_epoch(impatient.partition, tollgate::domain::ids::Epoch(1));
    server.command(&["CLIENT", "PAUSE", "600", "WRITE"]);
    let day = limit(b"day-----", 100);
    let hold = ask("ghost", vec![line("ocr.page", 5)], vec![day.clone()]);
    let timed_out = impatient.try_reserve(&hold).await;
    assert!(matches!(timed_out, Err(GateError::Timeout)), "{timed_out:?}");
    // A command that waits behind the pause is answered only after the ghost had its turn.
    server.command(&["SET", "behind-the-pause", "1"]);
    let patient = World { gate: Gate::connect(options(server.url())).await.unwrap(), ..impatient };
    patient.gate.load_scripts(&run_id).await.unwrap();
    patient.gate.set_epoch(patient.partition, tollgate::domain::ids::Epoch(1));
    assert_eq!(patient.counts(&day).await, (0, 0));
    assert_eq!(patient.events().await.len(), 0);
    assert!(matches!(patient.reserve(&hold).await, ReserveOutcome::Admitted { .. }));
}
