//! What a reserve and a consume cost Redis under one, four and sixteen limits of each algorithm.

use std::time::Duration;

use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{
    Parameters, concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log, token_bucket,
};

use super::Options;
use super::figures::{Figure, Figures};
use super::plain_path::middle;
use super::recorded::{self, Under};
use super::redis_alone::Alone;

/// How often each is measured; a row is the round whose cost is in the middle.
const ROUNDS: usize = 5;
/// How many limits a reserve falls under.
const LIMITS: [usize; 3] = [1, 4, 16];
/// So short that what slides out of a log is as much as what comes in while the figure is measured.
const LOG_MS: i64 = 50;

/// Measures all of them in one run; a round of one takes a tenth of what other rows take.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let alone = Alone::start(options.duration().max(Duration::from_secs(1)) / 10).await;
    let yardsticks: Vec<Figure> = (0..ROUNDS).map(|_| alone.pipelined(&alone.yardstick(), None).0).collect();
    figures.add(Figure { name: "algorithms: yardstick".into(), ..middle(&yardsticks) });
    for (algorithm, parameters) in algorithms() {
        for limits in LIMITS {
            let under = Under { limits, has_quota: false, parameters };
            let recorded = recorded::record_under(&alone.redis.url(), &alone.redis.socket(), under).await;
            let (mut reserves, mut consumes) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let (reserve, ids) = alone.pipelined(&recorded.reserve, None);
                reserves.push(reserve);
                consumes.push(alone.pipelined(&recorded.consume, Some(ids)).0);
            }
            for (call, rounds) in [("reserve", &reserves), ("consume", &consumes)] {
                let name = format!("algorithms: {call}, {limits} × {algorithm}");
                figures.add(Figure { name, ..middle(rounds) });
            }
        }
    }
}

/// Each algorithm, with parameters under which nothing that a figure sends is refused.
fn algorithms() -> [(&'static str, Option<Parameters>); 7] {
    let drain = Drain { units: 1_000_000, per_ms: 1_000 };
    let window = fixed_window::Parameters { length_ms: 60_000, aligned: false };
    let log = sliding_log::Parameters { length_ms: LOG_MS, entries_max: 10_000 };
    let slots = sliding_counter::Parameters { slot_ms: 6_000, slot_count: 10 };
    let queue = leaky_bucket::Parameters { drain, max_wait_ms: 1_000_000_000_000 };
    [
        ("calendar", None),
        ("fixed_window", Some(Parameters::FixedWindow(window))),
        ("sliding_log", Some(Parameters::SlidingLog(log))),
        ("sliding_counter", Some(Parameters::SlidingCounter(slots))),
        ("token_bucket", Some(Parameters::TokenBucket(token_bucket::Parameters { refill: drain }))),
        ("leaky_bucket", Some(Parameters::LeakyBucket(queue))),
        ("concurrency", Some(Parameters::Concurrency(concurrency::Parameters { each: 0 }))),
    ]
}
