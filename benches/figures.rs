//! What was measured.

use std::time::Duration;

use hdrhistogram::Histogram;

/// One row.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Calls (or events, or rows) a second.
    pub rate: f64,
    /// How long a call took: median, 99 % and 99.9 %, in µs; none where calls were not timed one by one.
    pub latency_us: Option<[u64; 3]>,
    /// Processor time a call: of the service, Redis and Postgres, in µs.
    pub cpu_us: Option<[f64; 3]>,
    /// Processor time a call of the client, in µs, where the client is Tollgate's own.
    pub client_us: Option<f64>,
    /// What Postgres wrote ahead for one, in bytes.
    pub log_bytes: Option<f64>,
    /// How long after the last answer the ledger had everything.
    pub behind: Option<Duration>,
}

impl Figure {
    /// A row of so many calls in this time.
    pub fn new(name: &str, calls: u64, took: Duration) -> Self {
        Self { name: name.into(), rate: calls as f64 / took.as_secs_f64(), ..Self::default() }
    }

    /// With the calls' times.
    pub fn timed(mut self, times: &Histogram<u64>) -> Self {
        self.latency_us = Some([0.5, 0.99, 0.999].map(|quantile| times.value_at_quantile(quantile)));
        self
    }

    /// With the processor time that all calls together took.
    pub fn costing(mut self, total_us: [u64; 3], calls: u64) -> Self {
        self.cpu_us = Some(total_us.map(|total| total as f64 / calls.max(1) as f64));
        self
    }

    /// With what Postgres wrote ahead for all of them together.
    pub fn logging(mut self, total_bytes: u64, calls: u64) -> Self {
        self.log_bytes = Some(total_bytes as f64 / calls.max(1) as f64);
        self
    }

    /// With what the ledger needed after the last answer.
    pub fn behind(mut self, behind: Duration) -> Self {
        self.behind = Some(behind);
        self
    }
}

/// An empty count of times in µs, up to a minute: what does not fit would be counted as the longest that does.
pub fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds of a histogram")
}

/// All rows, in the order measured.
#[derive(Debug, Default)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    /// Adds a row, and tells the person who waits.
    pub fn add(&mut self, figure: Figure) {
        eprintln!("{}", super::report::line(&figure));
        self.0.push(figure);
    }

    /// The row of this name.
    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.0.iter().find(|figure| figure.name == name)
    }
}
