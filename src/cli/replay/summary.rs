//! The tables at the end of a replay.

use hdrhistogram::Histogram;
use rust_decimal::Decimal;

use super::drive::Done;
use super::job::METERS;
use super::tally::{Tally, UnitSums};
use super::trace::TraceFacts;
use crate::cli::output::{Section, Table};

/// Jobs, calls, meters, and failures if there were any.
pub(super) fn sections(facts: &TraceFacts, done: &Done, booked: &UnitSums) -> Vec<Section> {
    let mut sections = vec![
        Section { name: "jobs", table: jobs(facts, done) },
        Section { name: "calls", table: calls(&done.tally) },
        Section { name: "meters", table: meters(facts, &done.tally.units, booked) },
    ];
    if !done.tally.failures.is_empty() {
        sections.push(Section { name: "failures", table: failures(&done.tally) });
    }
    sections
}

fn jobs(facts: &TraceFacts, done: &Done) -> Table {
    let tally = &done.tally;
    let elapsed_ms = done.elapsed.as_millis().max(1);
    let ended = tally.accepted + tally.refused + tally.failed();
    let mut table = Table::new(&["jobs", ">value"]);
    for (name, value) in [
        ("in the trace", facts.rows),
        ("accepted", tally.accepted),
        ("refused", tally.refused),
        ("failed", tally.failed()),
        ("done before", tally.replayed),
        ("late", tally.late),
        ("calls repeated", tally.retries),
    ] {
        table.row([name.to_owned(), value.to_string()]);
    }
    table.row(["seconds".to_owned(), thousandths(elapsed_ms)]);
    table.row(["jobs per second".to_owned(), (u128::from(ended) * 1000 / elapsed_ms).to_string()]);
    table
}

fn calls(tally: &Tally) -> Table {
    let mut table = Table::new(&["call", ">answered", ">p50 ms", ">p99 ms", ">max ms"]);
    for (name, histogram) in [("reserve", &tally.reserve_us), ("consume", &tally.consume_us)] {
        let at = |quantile| milliseconds(histogram, quantile);
        table.row([name.to_owned(), histogram.len().to_string(), at(0.5), at(0.99), at(1.0)]);
    }
    table
}

fn milliseconds(histogram: &Histogram<u64>, quantile: f64) -> String {
    thousandths(u128::from(histogram.value_at_quantile(quantile)))
}

fn thousandths(value: u128) -> String {
    format!("{}.{:03}", value / 1000, value % 1000)
}

fn meters(facts: &TraceFacts, accepted: &UnitSums, booked: &UnitSums) -> Table {
    let in_trace = [facts.rows, facts.input_tokens, facts.output_tokens];
    let mut table = Table::new(&[
        "meter",
        "=trace",
        "=accepted",
        "=ledger",
        "=excess",
        "=ledger excess",
        "ledger equals accepted",
    ]);
    for (index, meter) in METERS.iter().enumerate() {
        let is_equal = accepted.consumed[index] == booked.consumed[index]
            && accepted.excess[index] == booked.excess[index];
        let text = |amount: Decimal| amount.normalize().to_string();
        table.row([
            (*meter).to_owned(),
            in_trace[index].to_string(),
            text(accepted.consumed[index]),
            text(booked.consumed[index]),
            text(accepted.excess[index]),
            text(booked.excess[index]),
            if is_equal { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table
}

fn failures(tally: &Tally) -> Table {
    let mut table = Table::new(&[">jobs", "why they failed"]);
    for (reason, count) in &tally.failures {
        table.row([count.to_string(), reason.clone()]);
    }
    table
}
