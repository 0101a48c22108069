//! Reserves that go together against the same reserves one by one, on two servers: outcomes, state and events.

use futures::future::join_all;
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::counter::Counter;
use tollgate::gate::{Gate, ReserveMode};

use super::*;

/// How many worlds a run tries.
const CASES: u32 = 60;

/// A world whose tenant is warm.
async fn world(server: &Arc<Server>, case: &Case) -> World {
    server.empty();
    let world = World::over(Arc::clone(server)).await;
    world.warm_up(state_of(case, START_MS, 0, u16::MAX)).await;
    world
}

/// What is asked for in this case, in turn: only what may go together with others, which else would not keep the order.
fn asks(case: &Case) -> Vec<Ask> {
    let (mut now_ms, mut latest, mut asks) = (START_MS, 0_u8, Vec::new());
    for (step, _) in &case.steps {
        match step {
            Step::Pass { ms } => now_ms += ms,
            Step::Reserve { back, .. } => {
                latest += u8::from(*back == 0);
                asks.push(ask_of(case, now_ms, &latest.saturating_sub(*back).to_string(), step, true));
            }
            _ => {}
        }
    }
    let is_whole = |ask: &Ask| matches!(ask.mode, ReserveMode::AllOrNothing | ReserveMode::Usage);
    let is_known = |counter: &Counter| {
        let parameters = counter.parameters;
        parameters.has_windows() || matches!(parameters, Parameters::SlidingCounter(_))
    };
    asks.retain(|ask| is_whole(ask) && ask.checks.iter().all(is_known));
    asks
}

/// How many scripts were called.
fn calls(server: &Server) -> u64 {
    let told: String = redis::from_redis_value(server.command(&["INFO", "commandstats"])).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

/// Plays the case on both servers. Returns how often fewer scripts were called than reserves asked for.
async fn play(servers: &[Arc<Server>; 2], case: &Case) -> u32 {
    let worlds = [world(&servers[0], case).await, world(&servers[1], case).await];
    let mut fewer = 0;
    for asks in asks(case).chunk_by(|one, next| one.now_ms == next.now_ms) {
        let mut one_by_one = Vec::new();
        for ask in asks {
            one_by_one.push(worlds[0].try_reserve(ask).await);
        }
        let before = calls(&servers[1]);
        let together = Gate::together(join_all(asks.iter().map(|ask| worlds[1].try_reserve(ask)))).await;
        assert_eq!(format!("{one_by_one:#?}"), format!("{together:#?}"));
        fewer += u32::from(calls(&servers[1]) - before < u64::try_from(asks.len()).unwrap());
    }
    assert_alike(servers.each_ref().map(|server| state(&mut server.connection())));
    fewer
}

#[test]
fn reserves_that_go_together_come_to_what_they_come_to_one_by_one() {
    // On one thread calls go over one connection, in the order in which they are asked for.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let servers = [Server::own(), Server::own()];
    let fewer = RefCell::new(0);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&cases(), |case| {
        *fewer.borrow_mut() += runtime.block_on(play(&servers, &case));
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(fewer.into_inner() >= 30, "hardly any went together");
}
