//! What a check costs Redis: by windows, on the plain path, and by a bucket, which goes the general way; and the
//! yardstick, in turn.

use std::time::Duration;

use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{Parameters, fixed_window, token_bucket};

use super::Options;
use super::figures::{Figure, Figures};
use super::plain_path::middle;
use super::recorded;
use super::redis_alone::Alone;

/// How often each is measured; a row is the round whose cost is in the middle.
const ROUNDS: usize = 9;

/// Measures all of them in one run; a round of one takes a tenth of what other rows take.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let alone = Alone::start(options.duration().max(Duration::from_secs(1)) / 10).await;
    let window = Parameters::FixedWindow(fixed_window::Parameters { length_ms: 60_000, aligned: false });
    let refill = Drain { units: 1_000_000, per_ms: 1_000 };
    let bucket = Parameters::TokenBucket(token_bucket::Parameters { refill });
    let kinds = [
        ("1 window", window, 1),
        ("3 windows", window, 3),
        ("1 bucket", bucket, 1),
        ("3 buckets", bucket, 3),
    ];
    let mut calls = Vec::new();
    for (name, parameters, count) in kinds {
        let check =
            recorded::record_check(&alone.redis.url(), &alone.redis.socket(), parameters, count).await;
        calls.push((name, check));
    }
    let mut rounds: Vec<Vec<Figure>> = vec![Vec::new(); 1 + calls.len()];
    for _ in 0..ROUNDS {
        rounds[0].push(alone.pipelined(&alone.yardstick(), None).0);
        for (rounds, (_, check)) in rounds[1..].iter_mut().zip(&calls) {
            rounds.push(alone.pipelined(check, None).0);
        }
    }
    let names = std::iter::once("yardstick").chain(calls.iter().map(|(name, _)| *name));
    for (name, rounds) in names.zip(&rounds) {
        figures.add(Figure { name: format!("check: {name}"), ..middle(rounds) });
    }
}
