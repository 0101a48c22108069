//! How Postgres carried out what the ledger asked: the plans that it logs of each statement, with the rows that each
//! step read.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tollgate::ledger::LedgerError;

/// What makes a server of the test's own log its plans.
pub const LOGGING: [(&str, &str); 6] = [
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
    ("auto_explain.log_format", "json"),
    ("auto_explain.log_nested_statements", "on"),
];

/// What one step of a plan may read, many times more than any call needs.
const ROWS_MAX: u64 = 3_000;

/// What was asked so far, and what was wrong with how it was carried out.
pub struct Plans {
    log: PathBuf,
    read: usize,
    large: BTreeSet<String>,
    pub walked: BTreeSet<&'static str>,
    pub faults: Vec<String>,
}

impl Plans {
    /// Those logged from here on; these tables are large.
    pub fn new(log: PathBuf, large: BTreeSet<String>) -> Self {
        let read = fs::read(&log).unwrap().len();
        Self { log, read, large, walked: BTreeSet::new(), faults: Vec::new() }
    }

    /// Waits for what this function of the ledger asks, and looks how it was carried out.
    pub async fn of<T>(
        &mut self,
        name: &'static str,
        asked: impl Future<Output = Result<T, LedgerError>>,
    ) -> T {
        let answer = asked.await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let logged = String::from_utf8_lossy(&fs::read(&self.log).unwrap()[self.read..]).into_owned();
        self.read += logged.len();
        let plans = plans_in(&logged);
        assert!(!plans.is_empty(), "{name}: nothing was planned in {logged}");
        for plan in plans {
            let query = plan["Query Text"].as_str().unwrap_or_default();
            let mut faults = Vec::new();
            self.look(&plan["Plan"], &mut faults);
            self.faults.extend(faults.into_iter().map(|fault| format!("{name}: {fault}\n    in {query}")));
        }
        self.walked.insert(name);
        answer
    }

    fn look(&self, step: &Value, faults: &mut Vec<String>) {
        let kind = step["Node Type"].as_str().unwrap_or_default();
        let over =
            ["Relation Name", "Index Name"].iter().find_map(|name| step[*name].as_str()).unwrap_or_default();
        // A newer Postgres writes fractions.
        let whole = |text: String| text.split('.').next().and_then(|whole| whole.parse::<u64>().ok());
        let figure = |name: &str| whole(step[name].to_string()).unwrap_or_default();
        let skipped = figure("Rows Removed by Filter") + figure("Rows Removed by Index Recheck");
        let rows = (figure("Actual Rows") + skipped) * figure("Actual Loops");
        if kind == "Seq Scan" && self.large.contains(over) {
            faults.push(format!("all of {over} is read"));
        }
        if kind.ends_with("Scan") && rows > ROWS_MAX {
            faults.push(format!("{rows} rows of {over} are read"));
        }
        for part in step["Plans"].as_array().into_iter().flatten() {
            self.look(part, faults);
        }
    }
}

/// The plans in a part of the server's log: each such line with those after it that begin with a tab.
fn plans_in(logged: &str) -> Vec<Value> {
    let mut plans = Vec::new();
    for part in logged.split("plan:\n").skip(1) {
        let text: Vec<_> = part.lines().map_while(|line| line.strip_prefix('\t')).collect();
        plans.push(serde_json::from_str(&text.join("\n")).unwrap());
    }
    plans
}
