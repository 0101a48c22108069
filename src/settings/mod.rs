//! The settings, and the only reader of the environment.
//!
//! `config/base.toml` (in the binary, with every key) comes first; then the file of `--config`, variables
//! `TOLLGATE__SECTION__KEY`, the command line, and for secrets the files that `…_file` keys name. A key that is not in
//! `config/base.toml` is refused in every source.

mod checks;
mod named;
mod sources;

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use ipnet::IpNet;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};

pub use self::named::Named;
use self::sources::{ENVIRONMENT_PREFIX, Effective};
pub use self::sources::{Inputs, Problem, SettingsError};

/// All settings, checked. Printing it for debugging shows no secret.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What the installation is for.
    pub environment: Environment,
    /// Listening and answering.
    pub http: HttpSettings,
    /// The gate's server.
    pub redis: RedisSettings,
    /// The ledger's server.
    pub postgres: PostgresSettings,
    /// What is fixed for the installation's life.
    pub installation: InstallationSettings,
    /// How the gate keeps its memory.
    pub gate: GateSettings,
    /// How events are booked.
    pub writer: WriterSettings,
    /// How long calls wait for the ledger.
    pub ledger: LedgerSettings,
    /// How the gate is compared with the ledger.
    pub reconciliation: ReconciliationSettings,
    /// Plans, limits and tenants.
    pub policy: PolicySettings,
    /// Corrections that finance posts.
    pub adjustments: AdjustmentSettings,
    /// How busy the installation is.
    pub load: LoadSettings,
    /// Which decisions are kept, to be explained.
    pub decisions: DecisionSettings,
    /// Which receivers of webhooks may be called.
    pub webhooks: WebhookSettings,
    /// What administrators may do how often.
    pub admin: AdminSettings,
    /// What is logged, and how.
    pub logs: LogSettings,
    #[serde(skip)]
    effective: Effective,
}

/// What an installation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Real work: a test clock is refused.
    Production,
    /// Trying things out.
    Sandbox,
}

/// `[http]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Where calls are taken.
    pub listen: SocketAddr,
    /// Where metrics are served.
    pub ops_listen: SocketAddr,
    /// Threads that take calls; 0 is one for each core.
    pub workers: usize,
    /// The longest that a call may take, in milliseconds.
    pub request_timeout_ms: u64,
    /// How long a kept connection may be silent before it is closed, in milliseconds.
    pub keep_alive_ms: u64,
    /// How long calls are still taken after a request to stop, while `/readyz` says 503, in milliseconds.
    pub shutdown_grace_ms: u64,
    /// How long calls may go on after that, in milliseconds.
    pub shutdown_timeout_ms: u64,
    /// Open connections at once.
    pub max_connections: usize,
    /// Networks of the proxies that say where a call came from.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// Also send the older `RateLimit-*` trio.
    pub ratelimit_headers_legacy: bool,
    /// Also send the older `X-RateLimit-*` trio.
    pub x_ratelimit_headers: bool,
    /// How much is added at random to a long `Retry-After`, in percent of it.
    pub retry_jitter_percent: u8,
}

/// `[redis]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisSettings {
    /// The server's URL.
    #[serde(deserialize_with = "secret")]
    pub url: SecretString,
    /// Connections shared by all calls.
    pub connections: usize,
    /// The longest that an answer may take, in milliseconds.
    pub response_timeout_ms: u64,
    /// The longest that a new connection may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Calls that may wait for Redis at once.
    pub concurrent_calls_max: usize,
    /// Start although the server may lose what it has acknowledged.
    pub allow_unsafe: bool,
}

/// `[postgres]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresSettings {
    /// The database's URL.
    #[serde(deserialize_with = "secret")]
    pub url: SecretString,
    /// The group role to work as; empty: as the URL's user.
    pub role: String,
    /// Connections at most, for calls, jobs and restores.
    pub pool_size: usize,
    /// Connections at most that only the writer uses.
    pub writer_pool_size: usize,
    /// The longest wait for a free connection, in milliseconds.
    pub checkout_timeout_ms: u64,
    /// The longest that a statement may take, in milliseconds.
    pub statement_timeout_ms: u64,
}

/// `[installation]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstallationSettings {
    /// What keys, cursors and subjects are hashed with: at least 32 characters.
    #[serde(deserialize_with = "secret")]
    pub secret: SecretString,
}

/// `[gate]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSettings {
    /// How many partitions tenants are spread over, 1 to 256.
    pub partitions: u16,
    /// How long a resolved call with an idempotency key is remembered, in seconds.
    pub tombstone_keyed_seconds: u64,
    /// How long a resolved call without one is remembered, in seconds.
    pub tombstone_unkeyed_seconds: u64,
    /// In how many slots each tenant's anonymous subjects are counted.
    pub anonymous_slots: u32,
    /// Whether calls are refused without asking Redis where what is consumed alone fills a window.
    pub prefilter: bool,
    /// Events not booked yet at which nothing new is admitted.
    pub backlog_events_max: u64,
    /// Events not booked yet at which holds are neither extended nor consumed in part.
    pub backlog_events_hard_max: u64,
    /// Bytes of events not booked yet at which nothing new is admitted.
    pub backlog_bytes_max: u64,
    /// Bytes of events not booked yet at which holds are neither extended nor consumed in part.
    pub backlog_bytes_hard_max: u64,
}

/// `[writer]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriterSettings {
    /// Events booked in one transaction at most.
    pub batch_events: usize,
    /// The wait before looking again when there is nothing to book, in milliseconds.
    pub idle_poll_ms: u64,
    /// How long events gather after the first, in milliseconds.
    pub gather_ms: u64,
    /// The same at 5,000 events a second and more, in milliseconds.
    pub gather_busy_ms: u64,
    /// How long booked events stay in the outbox, in seconds.
    pub safety_tail_seconds: u64,
    /// The most bytes that booked events may take in the outbox.
    pub safety_tail_bytes: u64,
    /// How long a stop goes on booking what waits, in milliseconds.
    pub flush_timeout_ms: u64,
}

/// `[ledger]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerSettings {
    /// The longest wait of a call with `ack: ledger`, in milliseconds.
    pub ack_timeout_ms: u64,
    /// The longest wait for a cold tenant's restore, in milliseconds.
    pub restore_wait_ms: u64,
    /// How long repeats of a resolved reservation are recognised, in days.
    pub idempotency_horizon_days: u64,
    /// For how many months after its end a month of entries stays in the books at least.
    pub entries_kept_months: u32,
    /// How many calls taken while the gate is away may wait for it.
    pub parked_calls_max: u64,
    /// How long after its end a period still takes what happened in it, before it is closed, in seconds.
    pub close_grace_seconds: u64,
}

/// `[reconciliation]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconciliationSettings {
    /// How often each active tenant's counters are compared with the books, in seconds; 0 is never.
    pub interval_seconds: u64,
    /// Tenants compared a second at most.
    pub checkpoints_per_second: u64,
}

/// `[policy]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySettings {
    /// What happens to an unknown tenant.
    pub unknown_tenant: UnknownTenant,
    /// What happens to work without a limit, on a meter that leaves it to the configuration.
    pub without_limit: WithoutLimit,
    /// How often changes of policy are polled, in addition to the notices, in milliseconds.
    pub poll_ms: u64,
}

/// What happens to an unknown tenant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum UnknownTenant {
    /// Its calls are refused.
    Refuse,
    /// It is made at its first use, on the plan with this id.
    Plan(String),
}

/// What happens to a tenant's work on a meter without limit and quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutLimit {
    /// It is refused.
    Deny,
    /// It is admitted and booked.
    Unlimited,
}

/// `[adjustments]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdjustmentSettings {
    /// By how many units of a meter an adjustment may correct at most without the approval of another person.
    pub approval_above_units: u64,
}

/// `[load]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSettings {
    /// Whether this instance measures its own load, beside those that are pushed.
    pub measured: bool,
}

/// `[decisions]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionSettings {
    /// The share of the tenants whose decisions are all kept, in percent.
    pub sample_percent: u8,
    /// Tenants whose decisions are all kept in any case.
    #[serde(deserialize_with = "listed")]
    pub tenants: Vec<String>,
    /// The most refusals of the last hour in memory.
    pub refusals_max: usize,
}

/// `[webhooks]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// Networks whose addresses may be called although they are not public, and by plain http too.
    #[serde(deserialize_with = "networks")]
    pub allowed_networks: Vec<IpNet>,
    /// The longest that a receiver's answer may take, in milliseconds.
    pub timeout_ms: u64,
}

/// `[admin]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSettings {
    /// How many calls that destroy something a key may make in a minute, over all instances.
    pub destructive_calls_per_minute: u32,
}

/// `[logs]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// How lines look.
    pub format: LogFormat,
    /// Which lines are written: a level, or levels by part.
    pub level: String,
    /// How many refusals are logged in a second at most; 0: none.
    pub refusals_per_second: u32,
    /// Which share of the admitted reserves, usages and checks is logged, in percent.
    pub admitted_percent: u8,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    Auto,
    /// A JSON object a line.
    Json,
    /// For people.
    Pretty,
}

impl Settings {
    /// Puts the sources together and checks the result. A pure function of its inputs.
    ///
    /// # Errors
    /// Every problem found: unknown keys (with the nearest known one), values of the wrong type or range, values that
    /// contradict each other, missing or weak secrets. Each names its key and where it was set; none shows a secret.
    pub fn load(inputs: &Inputs<'_>) -> Result<Self, SettingsError> {
        let effective = Effective::gather(inputs)?;
        let mut settings: Self = effective.parse()?;
        checks::check(&settings, &effective)?;
        settings.effective = effective;
        Ok(settings)
    }

    /// Loads the settings of this process: its environment, the file of `--config` if there is one, and what the
    /// command line says as (key, value), such as `("http.listen", "127.0.0.1:0")`.
    ///
    /// # Errors
    /// As [`Self::load`]; also when the file cannot be read.
    pub fn of_process(
        file: Option<&Path>,
        command_line: Vec<(String, String)>,
    ) -> Result<Self, SettingsError> {
        with_process_inputs(file, command_line, Self::load)
    }

    /// Every setting, secrets hidden, with where it came from.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        let effect = |(key, value, source): (String, toml::Value, String)| Effect {
            key,
            value: serde_json::to_value(value).unwrap_or_default(),
            source,
        };
        self.effective.rows().into_iter().map(effect).collect()
    }

    /// The settings as TOML, secrets hidden, each value that is not the default with a comment that says where it
    /// came from.
    #[must_use]
    pub fn render(&self) -> String {
        self.effective.render()
    }
}

/// Loads from the file of `--config`, this process's environment and its command line.
fn with_process_inputs<T>(
    file: Option<&Path>,
    command_line: Vec<(String, String)>,
    load: impl FnOnce(&Inputs<'_>) -> Result<T, SettingsError>,
) -> Result<T, SettingsError> {
    let file = match file {
        None => None,
        Some(path) => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path).map_err(|error| SettingsError::file(&name, &error))?;
            Some((name, text))
        }
    };
    let environment = process_environment()?;
    let read_secret = |path: &Path| -> io::Result<String> { fs::read_to_string(path) };
    load(&Inputs { file, environment, command_line, read_secret: &read_secret })
}

/// A setting as it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Its key, such as `http.listen`.
    pub key: String,
    /// Its value; of a secret only whether it is set.
    pub value: serde_json::Value,
    /// Where it came from: `the default`, `mine.toml:3`, a variable.
    pub source: String,
}

/// The API key that the first of these variables gives: `TOLLGATE_ADMIN_KEY` to `tollgate up`, this or `TOLLGATE_KEY`
/// to the commands that call a service.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
pub fn key_from_environment(variables: &[&str]) -> Option<SecretString> {
    let keys = variables.iter().filter_map(|name| std::env::var(name).ok());
    keys.map(|key| key.trim().to_owned()).find(|key| !key.is_empty()).map(SecretString::from)
}

#[allow(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
fn process_environment() -> Result<Vec<(String, String)>, SettingsError> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(ENVIRONMENT_PREFIX)) else { continue };
        let value = value.into_string().map_err(|_bytes| SettingsError::not_text(name))?;
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

/// Names separated by commas.
fn listed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

/// Networks separated by commas; an address is a network of one.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| network(name).map_err(D::Error::custom)).collect()
}

fn network(name: &str) -> Result<IpNet, String> {
    let address = || name.parse::<IpAddr>().map(IpNet::from);
    let network: IpNet = name
        .parse()
        .or_else(|_| address())
        .map_err(|_| format!("{name} is not a network: write it such as 10.0.0.0/8 or fd00::/8"))?;
    if network.trunc() != network {
        return Err(format!("{name} names an address inside a network: did you mean {}?", network.trunc()));
    }
    if network.prefix_len() == 0 {
        return Err(format!("{name} is every address: name the networks that are meant"));
    }
    Ok(network)
}

impl From<String> for UnknownTenant {
    fn from(text: String) -> Self {
        if text == "refuse" { Self::Refuse } else { Self::Plan(text) }
    }
}

#[cfg(test)]
mod tests;
