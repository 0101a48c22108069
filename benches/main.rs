//! `make bench`: measures the parts alone and the service as a whole in one run on this machine, prints the figures and
//! the ratios between them, and writes them into docs/benchmarks.md.
//!
//! ```text
//! cargo bench --bench bench -- [--seconds 5] [--callers 32] [--tenants 1000] [--more-tenants 20000] [--events 200000]
//!     [--year-of-entries 300000] [--closing 100000] [--history 0] [--trace FILE] [--before COMMAND]
//!     [--only gate|'plain path'|algorithms|check|ledger|booking|service|writer|close|replay|builds] [--no-write]
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench that cannot go on ends")]
#![allow(unreachable_pub, reason = "one binary, nobody else can reach anything")]
#![allow(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "rates and ratios, never amounts"
)]

mod algorithms;
mod booking;
mod books;
mod builds;
mod calls;
mod checks;
mod closing;
mod cpu;
mod figures;
mod goals;
mod load;
mod over_http;
mod plain_path;
mod recorded;
mod redis_alone;
mod replay;
mod report;
mod service;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use load::Load;

/// How the bench runs.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// How long each figure is measured, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Calls under way at once.
    #[arg(long, default_value_t = 32)]
    callers: usize,
    /// Tenants that the calls are spread over.
    #[arg(long, default_value_t = 1_000)]
    tenants: usize,
    /// Tenants of the figure that shows what many of them cost.
    #[arg(long, default_value_t = 20_000)]
    more_tenants: usize,
    /// Events that the writer drains.
    #[arg(long, default_value_t = 200_000)]
    events: usize,
    /// Entries in the books while quotas are read, spread over the last year; 0 leaves the figure out.
    #[arg(long, default_value_t = 300_000)]
    year_of_entries: i32,
    /// Tenants whose last month is closed.
    #[arg(long, default_value_t = 100_000)]
    closing: usize,
    /// Entries of the last month in the books while keyed jobs are booked, such as 10000000; 0 leaves the figures out.
    #[arg(long, default_value_t = 0)]
    history: i32,
    /// The trace that is replayed, instead of one that is made up.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// The command of an earlier build, which is measured in turn with this one.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Only the parts whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave docs/benchmarks.md as it is.
    #[arg(long)]
    no_write: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn load(&self) -> Load {
        Load { callers: self.callers, duration: self.duration() }
    }

    fn wants(&self, part: &str) -> bool {
        part.contains(&self.only)
    }
}

fn main() {
    let options = Options::parse();
    // One thread: what calls takes as little as it can from what is called.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let figures = runtime.block_on(run(&options));
    report::print(&figures);
    println!("\n{} calls were answered 503 and repeated, those of new tenants among them", load::repeated());
    if !options.no_write && options.only.is_empty() {
        report::write(&figures, &options).expect("docs/benchmarks.md can be written");
    }
}

async fn run(options: &Options) -> figures::Figures {
    let mut figures = figures::Figures::default();
    if options.wants("gate") {
        redis_alone::measure(options, &mut figures).await;
    }
    if options.wants("plain path") {
        plain_path::measure(options, &mut figures).await;
    }
    if options.wants("algorithms") {
        algorithms::measure(options, &mut figures).await;
    }
    if options.wants("check") {
        checks::measure(options, &mut figures).await;
    }
    if options.wants("ledger") {
        books::measure_inserts(options, &mut figures).await;
    }
    if options.wants("booking") {
        booking::measure(options, &mut figures).await;
    }
    if options.wants("service") {
        over_http::measure(options, &mut figures).await;
    }
    if options.wants("writer") {
        books::measure_drain(options, &mut figures).await;
    }
    if options.wants("close") {
        closing::measure(options, &mut figures).await;
    }
    if options.wants("replay") {
        replay::measure(options, &mut figures).await;
    }
    if let (true, Some(before)) = (options.wants("builds"), &options.before) {
        builds::measure(options, before, &mut figures).await;
    }
    figures
}
