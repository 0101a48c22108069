//! What the plain path of `reserve` and `consume` saves: the same calls with it and without it, and the yardstick, in
//! turn.

use std::time::Duration;

use tollgate::gate::scripts::Script;

use super::Options;
use super::figures::{Figure, Figures};
use super::recorded::{self, TOGETHER};
use super::redis_alone::Alone;

/// How often each is measured; a row is the round whose cost is in the middle.
const ROUNDS: usize = 9;

/// Measures both in one run; a round of one takes a tenth of what other rows take.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let alone = Alone::start(options.duration().max(Duration::from_secs(1)) / 10).await;
    for (name, limits, has_quota) in
        [("3 limits", 3, false), ("3 limits, quota", 3, true), ("16 limits", 16, false)]
    {
        let recorded = recorded::record(&alone.redis.url(), &alone.redis.socket(), limits, has_quota).await;
        let (reserve, consume) = (&recorded.reserve, &recorded.consume);
        let general =
            [Script::Reserve, Script::ConsumeFinal].map(|script| alone.load(&without_plain_path(script)));
        let mut rounds: [Vec<Figure>; 6] = Default::default();
        for _ in 0..ROUNDS {
            let yardstick = alone.pipelined(&alone.yardstick(), None).0;
            let (reserved, ids) = alone.pipelined(reserve, None);
            let (reserved_before, ids_before) = alone.pipelined(&reserve.of(&general[0]), None);
            let (consumed, _) = alone.pipelined(consume, Some(ids));
            let (consumed_before, _) = alone.pipelined(&consume.of(&general[1]), Some(ids_before));
            let together = each_of(TOGETHER, alone.pipelined(&recorded.reserves, None).0);
            let all = [yardstick, reserved, reserved_before, consumed, consumed_before, together];
            rounds.iter_mut().zip(all).for_each(|(rounds, figure)| rounds.push(figure));
        }
        let calls = [
            "yardstick",
            "reserve",
            "reserve without it",
            "consume",
            "consume without it",
            "one of 16 reserves together",
        ];
        let [yardstick, ..] = rounds.each_ref().map(|rounds| cost(&middle(rounds)));
        for (call, rounds) in calls.into_iter().zip(&rounds) {
            let figure = middle(rounds);
            let ratio = cost(&figure) / yardstick;
            figures.add(Figure {
                name: format!("plain path: {call}, {name}, {ratio:.2} × the yardstick"),
                ..figure
            });
        }
    }
}

/// The figure of each of so many that one call did.
fn each_of(count: usize, figure: Figure) -> Figure {
    let cpu_us = figure.cpu_us.map(|costs| costs.map(|cost| cost / count as f64));
    Figure { rate: figure.rate * count as f64, cpu_us, ..figure }
}

fn cost(figure: &Figure) -> f64 {
    figure.cpu_us.map_or(0.0, |[_, redis, _]| redis)
}

/// The round whose cost is in the middle.
pub fn middle(rounds: &[Figure]) -> Figure {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    rounds.swap_remove(rounds.len() / 2)
}

/// The script as it decides where the plain path does not.
fn without_plain_path(script: Script) -> String {
    let text = script.text("").expect("the script's text");
    let asked = text.lines().find(|line| line.starts_with("local plain = ")).expect("a plain path");
    text.replace(asked, "local plain")
}
