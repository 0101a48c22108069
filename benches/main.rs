//! `make bench`: measures the parts alone and the service as a whole in one run on this machine, prints the figures and
//! the ratios between them, and writes them into docs/benchmarks.md.
//!
//! ```text
//! cargo bench --bench bench -- [--seconds 5] [--callers 32] [--tenants 1000] [--more-tenants 20000] [--only NAME] [--no-write]
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

mod cpu;
mod figures;
mod gate_alone;
mod ledger_alone;
mod load;
mod report;
mod service;

use std::time::Duration;

use clap::Parser;

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

    fn wants(&self, part: &str) -> bool {
        part.contains(&self.only)
    }
}

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let figures = runtime.block_on(run(&options));
    report::print(&figures);
    if !options.no_write && options.only.is_empty() {
        report::write(&figures, &options).expect("docs/benchmarks.md can be written");
    }
}

async fn run(options: &Options) -> figures::Figures {
    let mut figures = figures::Figures::default();
    if options.wants("gate") {
        gate_alone::measure(options, &mut figures).await;
    }
    if options.wants("ledger") {
        ledger_alone::measure(options, &mut figures).await;
    }
    if options.wants("service") {
        service::measure(options, &mut figures).await;
    }
    if options.wants("writer") {
        service::measure_drain(options, &mut figures).await;
    }
    figures
}
