//! The figures for people: a table, the ratios, and docs/benchmarks.md.

use std::fmt::Write as _;
use std::path::Path;

use super::Options;
use super::figures::{Figure, Figures};

const DOCUMENT: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- figures: written by make bench -->";
const END: &str = "<!-- end of figures -->";

/// Ratios of the one run: what, of which row, to which row.
const RATIOS: &[(&str, &str, &str)] = &[
    (
        "reserve over HTTP to Redis alone, both one by one",
        "service: reserve, 3 limits",
        "gate alone: reserve, 3 limits, one by one",
    ),
    (
        "batches of 100 to Redis pipelined",
        "service: reserve, batches of 100",
        "gate alone: reserve, 3 limits, pipelined",
    ),
    ("one hot tenant to spread out", "service: job, one hot tenant", "service: job (reserve + consume)"),
    ("usage with ack: ledger to ack: gate", "service: usage, ack: ledger", "service: usage, ack: gate"),
    (
        "1 limit to 16 limits",
        "service: reserve, 1 limit, one tenant",
        "service: reserve, 16 limits, one tenant",
    ),
    ("many tenants to few", "service: reserve, 3 limits, many tenants", "service: reserve, 3 limits"),
    (
        "writer's drain to plain batched insert",
        "writer: drain of jobs, one line each, events",
        "ledger alone: plain batched insert, rows",
    ),
];

/// One row as a line of a terminal.
pub fn line(figure: &Figure) -> String {
    let [latency, cpu] = cells(figure);
    format!("{:<52} {:>9.0}/s  {latency:<28} {cpu}", figure.name, figure.rate)
}

fn cells(figure: &Figure) -> [String; 2] {
    let latency = figure.latency_us.map(|[median, high, highest]| {
        let ms = |us: u64| us as f64 / 1000.0;
        format!("{:.2} / {:.2} / {:.2} ms", ms(median), ms(high), ms(highest))
    });
    let cpu = figure
        .cpu_us
        .map(|[service, redis, postgres]| format!("{service:.1} + {redis:.1} + {postgres:.1} µs"));
    [latency.unwrap_or_default(), cpu.unwrap_or_default()]
}

/// Prints the ratios; the rows were printed as they came.
pub fn print(figures: &Figures) {
    println!();
    for (name, of, to) in RATIOS {
        if let Some(ratio) = figures.ratio(of, to) {
            println!("{name:<52} {ratio:>9.2}");
        }
    }
}

/// Puts table and ratios into the document, between its marks.
pub fn write(figures: &Figures, options: &Options) -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let text = std::fs::read_to_string(&path)?;
    let around = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) =
        around.ok_or_else(|| std::io::Error::other(format!("{DOCUMENT} has lost its marks")))?;
    std::fs::write(path, format!("{head}{BEGIN}\n\n{}\n{END}{tail}", tables(figures, options)))
}

fn tables(figures: &Figures, options: &Options) -> String {
    let mut text = format!(
        "{}. {} s a row, {} callers, {} tenants.\n\n",
        machine(),
        options.seconds,
        options.callers,
        options.tenants
    );
    text.push_str("| measured | a second | p50 / p99 / p99.9 | CPU of service + Redis + Postgres, each |\n|---|--:|---|---|\n");
    for figure in &figures.0 {
        let [latency, cpu] = cells(figure);
        let _ = writeln!(text, "| {} | {:.0} | {latency} | {cpu} |", figure.name, figure.rate);
    }
    text.push_str("\n| ratio | |\n|---|--:|\n");
    for (name, of, to) in RATIOS {
        if let Some(ratio) = figures.ratio(of, to) {
            let _ = writeln!(text, "| {name} | {ratio:.2} |");
        }
    }
    text
}

fn machine() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores ({}), everything on them", model.unwrap_or("unknown"))
}
