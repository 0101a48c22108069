//! What is to be reached, and whether it is.

use super::figures::{Figure, Figures};

use Bound::{AtLeast, AtMost};
use Measure::{
    Behind, CostRatio, DecidingCostRatio, High, HighRatio, JobCost, Median, Noticed, Rate, RateRatio,
    RedisCost, RedisCostRatio, Seconds, ServiceCost, ServiceCostRatio,
};

/// What is read off the figures.
enum Measure {
    /// A second, of this row.
    Rate(&'static str),
    /// The rate of one row by another's.
    RateRatio(&'static str, &'static str),
    /// Half of the calls take no longer, in ms.
    Median(&'static str),
    /// 99 of 100 calls take no longer, in ms.
    High(&'static str),
    /// Processor time of the service, in µs.
    ServiceCost(&'static str),
    /// Processor time of Redis, in µs.
    RedisCost(&'static str),
    /// Redis's processor time of one row by another's.
    RedisCostRatio(&'static str, &'static str),
    /// Processor time of service and Redis together, of one row by another's.
    DecidingCostRatio(&'static str, &'static str),
    /// Processor time of service, Redis and Postgres together, in µs.
    JobCost(&'static str),
    /// Processor time of all three together, of one row by another's.
    CostRatio(&'static str, &'static str),
    /// Processor time of the service, of one row by another's.
    ServiceCostRatio(&'static str, &'static str),
    /// What 99 of 100 calls take no longer than, of one row by another's.
    HighRatio(&'static str, &'static str),
    /// How long after the end the ledger had everything, in seconds.
    Behind(&'static str),
    /// So many of this row, in seconds.
    Seconds(&'static str, f64),
    /// What 99 of 100 calls take no longer than, by twice that of another row or by 5 ms, if that is more.
    Noticed(&'static str, &'static str),
}

/// On which side of the target a figure should be.
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

const RESERVE: &str = "service: reserve, 3 limits";
const RESERVE_ALONE: &str = "gate alone: reserve, 3 limits, pipelined";
const YARDSTICK: &str = "gate alone: yardstick of plain commands, pipelined";
const WITH_QUOTA_ALONE: &str = "gate alone: reserve, 3 limits, quota, pipelined";
const CONSUME_ALONE: &str = "gate alone: consume, 3 limits, pipelined";
const ONE_CALLER: &str = "service: reserve, 3 limits, one caller";
const JOB: &str = "service: job (reserve + consume)";
const JOB_LEDGER: &str = "service: job, ack: ledger";
const USAGE_LEDGER: &str = "service: usage, ack: ledger";
const BATCH: &str = "service: reserve, batches of 100";
const QUOTA: &str = "service: quota read";
const QUOTA_YEAR: &str = "service: quota read, a year of entries";
const RESERVE_BEFORE: &str = "build before: reserve, 3 limits";
const RESERVE_NOW: &str = "this build: reserve, 3 limits";
const JOB_BEFORE: &str = "build before: job";
const JOB_NOW: &str = "this build: job";
const ONE_LIMIT: &str = "service: reserve, 1 limit, one tenant";
const CHECK: &str = "service: check, 1 limit, one tenant";
const REPLAY: &str = "replay: jobs of a trace";

/// Each target: the figure's name, where it is read, and where it should be.
const GOALS: &[(&str, Measure, Bound)] = &[
    ("reserve over HTTP, 3 limits, a second", Rate(RESERVE), AtLeast(30_000.0)),
    (
        "the same to Redis alone, both unpipelined",
        RateRatio(RESERVE, "gate alone: reserve, 3 limits, one by one"),
        AtLeast(0.85),
    ),
    ("the same, p99 in ms", High(RESERVE), AtMost(2.2)),
    (
        "CPU of one reserve, µs: service, booking apart",
        ServiceCost("service: reserve, 3 limits, no writer"),
        AtMost(20.0),
    ),
    ("CPU of one reserve, µs: Redis, 3 limits", RedisCost(RESERVE_ALONE), AtMost(19.0)),
    ("CPU of one reserve, µs: Redis, 3 limits and quota", RedisCost(WITH_QUOTA_ALONE), AtMost(22.0)),
    ("CPU of one consume, µs: Redis", RedisCost(CONSUME_ALONE), AtMost(22.0)),
    (
        "Redis's CPU to plain commands': reserve, 3 limits",
        RedisCostRatio(RESERVE_ALONE, YARDSTICK),
        AtMost(1.0),
    ),
    (
        "Redis's CPU to plain commands': reserve, 3 limits and quota",
        RedisCostRatio(WITH_QUOTA_ALONE, YARDSTICK),
        AtMost(1.15),
    ),
    ("Redis's CPU to plain commands': consume", RedisCostRatio(CONSUME_ALONE, YARDSTICK), AtMost(1.15)),
    (
        "Redis's CPU to plain commands': a check of one window",
        RedisCostRatio("check: 1 window", "check: yardstick"),
        AtMost(0.6),
    ),
    (
        "a check to a reserve, 1 limit: CPU of service and Redis",
        DecidingCostRatio(CHECK, ONE_LIMIT),
        AtMost(0.65),
    ),
    ("the same, calls a second", RateRatio(CHECK, ONE_LIMIT), AtLeast(1.5)),
    ("the same, p99", HighRatio(CHECK, ONE_LIMIT), AtMost(1.0)),
    ("CPU of one finished job, µs: all processes", JobCost(JOB), AtMost(110.0)),
    ("one caller, p50 in ms", Median(ONE_CALLER), AtMost(0.20)),
    ("one caller, p99 in ms", High(ONE_CALLER), AtMost(0.40)),
    ("batches of 100, reserves a second", Rate(BATCH), AtLeast(45_000.0)),
    ("the same to Redis pipelined", RateRatio(BATCH, RESERVE_ALONE), AtLeast(0.85)),
    ("ack: ledger, one call, p50 in ms", Median(USAGE_LEDGER), AtMost(8.0)),
    ("ack: ledger, one call, p99 in ms", High(USAGE_LEDGER), AtMost(25.0)),
    (
        "ack: ledger to ack: gate, one call",
        RateRatio(USAGE_LEDGER, "service: usage, ack: gate"),
        AtLeast(0.6),
    ),
    ("ack: ledger to ack: gate, whole jobs", RateRatio(JOB_LEDGER, JOB), AtLeast(0.6)),
    ("writer, events a second", Rate("writer: drain of jobs, one line each, events"), AtLeast(100_000.0)),
    (
        "writer, rows to plain batched insert",
        RateRatio("writer: the same, rows of entries", "ledger alone: plain batched insert, rows"),
        AtLeast(0.6),
    ),
    ("many tenants to few", RateRatio("service: reserve, 3 limits, many tenants", RESERVE), AtLeast(0.9)),
    (
        "1 limit to 16, over HTTP",
        RateRatio(ONE_LIMIT, "service: reserve, 16 limits, one tenant"),
        AtMost(3.0),
    ),
    (
        "16 limits to 1, Redis's CPU",
        RedisCostRatio(
            "gate alone: reserve, 16 limits, pipelined",
            "gate alone: reserve, 1 limit, pipelined",
        ),
        AtMost(3.0),
    ),
    (
        "the same, fixed_window",
        RedisCostRatio("algorithms: reserve, 16 × fixed_window", "algorithms: reserve, 1 × fixed_window"),
        AtMost(3.0),
    ),
    (
        "the same, sliding_log",
        RedisCostRatio("algorithms: reserve, 16 × sliding_log", "algorithms: reserve, 1 × sliding_log"),
        AtMost(3.0),
    ),
    (
        "the same, sliding_counter",
        RedisCostRatio(
            "algorithms: reserve, 16 × sliding_counter",
            "algorithms: reserve, 1 × sliding_counter",
        ),
        AtMost(3.0),
    ),
    (
        "the same, token_bucket",
        RedisCostRatio("algorithms: reserve, 16 × token_bucket", "algorithms: reserve, 1 × token_bucket"),
        AtMost(3.0),
    ),
    (
        "the same, leaky_bucket",
        RedisCostRatio("algorithms: reserve, 16 × leaky_bucket", "algorithms: reserve, 1 × leaky_bucket"),
        AtMost(3.0),
    ),
    (
        "the same, concurrency",
        RedisCostRatio("algorithms: reserve, 16 × concurrency", "algorithms: reserve, 1 × concurrency"),
        AtMost(3.0),
    ),
    ("one hot tenant to spread out", RateRatio("service: job, one hot tenant", JOB), AtLeast(0.9)),
    ("quota read, a second", Rate(QUOTA), AtLeast(40_000.0)),
    ("quota read, p99 in ms", High(QUOTA), AtMost(2.0)),
    ("quota read, a year of entries to none", RateRatio(QUOTA_YEAR, QUOTA), AtLeast(0.9)),
    ("quota read, a year of entries, p99 in ms", High(QUOTA_YEAR), AtMost(2.0)),
    (
        "a reserve, all processes' CPU, to the build before",
        CostRatio(RESERVE_NOW, RESERVE_BEFORE),
        AtMost(0.68),
    ),
    (
        "a reserve, the service's CPU, to the build before",
        ServiceCostRatio(RESERVE_NOW, RESERVE_BEFORE),
        AtMost(0.75),
    ),
    ("a job, all processes' CPU, to the build before", CostRatio(JOB_NOW, JOB_BEFORE), AtMost(0.68)),
    ("reserves a second, to the build before", RateRatio(RESERVE_NOW, RESERVE_BEFORE), AtLeast(1.5)),
    ("p99 of a reserve, to the build before", HighRatio(RESERVE_NOW, RESERVE_BEFORE), AtMost(1.0)),
    ("job, ack: ledger, p50 in ms", Median("this build: job, ack: ledger"), AtMost(8.0)),
    (
        "close of 100,000 periods with two grants each, s",
        Seconds("close: periods with two grants, closed and rolled over", 100_000.0),
        AtMost(30.0),
    ),
    (
        "p99 of a reserve meanwhile, to 5 ms or twice the quiet one",
        Noticed(
            "close: reserve at 30 % of that, while periods close",
            "close: reserve at 30 % of that, quiet",
        ),
        AtMost(1.0),
    ),
    ("replay of a trace, jobs a second", Rate(REPLAY), AtLeast(5_000.0)),
    ("replay of a trace, the ledger has all after, s", Behind(REPLAY), AtMost(1.0)),
];

impl Measure {
    fn read(&self, figures: &Figures) -> Option<f64> {
        let latency = |name: &str, at: usize| Some(figures.get(name)?.latency_us?[at] as f64 / 1000.0);
        let cost = |name: &str, part: usize| Some(figures.get(name)?.cpu_us?[part]);
        let whole = |name: &str| figures.get(name)?.cpu_us.map(|parts| parts.iter().sum::<f64>());
        let deciding = |name: &str| figures.get(name)?.cpu_us.map(|[service, redis, _]| service + redis);
        let rate = |name: &str| figures.get(name).map(|figure| figure.rate);
        match self {
            Rate(name) => rate(name),
            RateRatio(of, to) => Some(rate(of)? / rate(to)?),
            Median(name) => latency(name, 0),
            High(name) => latency(name, 1),
            ServiceCost(name) => cost(name, 0),
            RedisCost(name) => cost(name, 1),
            RedisCostRatio(of, to) => Some(cost(of, 1)? / cost(to, 1)?),
            DecidingCostRatio(of, to) => Some(deciding(of)? / deciding(to)?),
            JobCost(name) => whole(name),
            CostRatio(of, to) => Some(whole(of)? / whole(to)?),
            ServiceCostRatio(of, to) => Some(cost(of, 0)? / cost(to, 0)?),
            HighRatio(of, to) => Some(latency(of, 1)? / latency(to, 1)?),
            Seconds(name, count) => Some(count / rate(name)?),
            Noticed(name, quiet) => Some(latency(name, 1)? / (2.0 * latency(quiet, 1)?).max(5.0)),
            Behind(name) => figures.get(name).and_then(|figure: &Figure| Some(figure.behind?.as_secs_f64())),
        }
    }
}

/// A target beside what was reached.
pub struct Reached {
    /// What it is about.
    pub name: &'static str,
    /// In words.
    pub target: String,
    /// The result of the run.
    pub reached: String,
    /// Whether that is enough.
    pub is_met: bool,
}

/// The targets whose figures this run has.
pub fn reached(figures: &Figures) -> Vec<Reached> {
    let one = |(name, measure, bound): &(&'static str, Measure, Bound)| {
        let value = measure.read(figures)?;
        let (sign, target, is_met) = match *bound {
            AtLeast(target) => ("≥", target, value >= target),
            AtMost(target) => ("≤", target, value <= target),
        };
        Some(Reached { name, target: format!("{sign} {}", text(target)), reached: text(value), is_met })
    };
    GOALS.iter().filter_map(one).collect()
}

/// Three digits that count, or whole numbers.
fn text(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
