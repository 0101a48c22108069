//! The figures for people: a table, the targets beside what was reached, and docs/benchmarks.md.

use std::fmt::Write as _;
use std::path::Path;

use super::Options;
use super::figures::{Figure, Figures};
use super::goals::{self, Reached};

const DOCUMENT: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- figures: written by make bench -->";
const END: &str = "<!-- end of figures -->";

/// One row as a line of a terminal.
pub fn line(figure: &Figure) -> String {
    let [latency, cpu, behind] = cells(figure);
    format!("{:<52} {:>9.0}/s  {latency:<28} {cpu:<34} {behind}", figure.name, figure.rate)
}

fn cells(figure: &Figure) -> [String; 3] {
    let latency = figure.latency_us.map(|[median, high, highest]| {
        let ms = |us: u64| us as f64 / 1000.0;
        format!("{:.2} / {:.2} / {:.2} ms", ms(median), ms(high), ms(highest))
    });
    let cpu = figure.cpu_us.map(|[service, redis, postgres]| {
        let client = figure.client_us.map(|client| format!(", client {client:.1}")).unwrap_or_default();
        let log = figure.log_bytes.map(|bytes| format!(", {bytes:.0} bytes of WAL")).unwrap_or_default();
        format!("{service:.1} + {redis:.1} + {postgres:.1}{client} µs{log}")
    });
    let behind = figure.behind.map(|behind| format!("{:.2} s", behind.as_secs_f64()));
    [latency.unwrap_or_default(), cpu.unwrap_or_default(), behind.unwrap_or_default()]
}

/// Prints the targets; the rows were printed as they came.
pub fn print(figures: &Figures) {
    println!();
    for Reached { name, target, reached, is_met } in goals::reached(figures) {
        println!("{name:<60} {target:>9} {reached:>9}  {}", met(is_met));
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "no" }
}

/// Puts both tables into the document, between its marks.
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
    text.push_str("| measured | a second | p50 / p99 / p99.9 | CPU of service + Redis + Postgres, each | ledger lag |\n|---|--:|---|---|--:|\n");
    for figure in &figures.0 {
        let [latency, cpu, behind] = cells(figure);
        let _ = writeln!(text, "| {} | {:.0} | {latency} | {cpu} | {behind} |", figure.name, figure.rate);
    }
    text.push_str("\n| figure | target | reached | met |\n|---|--:|--:|---|\n");
    for Reached { name, target, reached, is_met } in goals::reached(figures) {
        let _ = writeln!(text, "| {name} | {target} | {reached} | {} |", met(is_met));
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
