//! `tollgate doctor`: the live settings of both servers against what is safe, and the memory that a load needs.

mod memory;
mod postgres;
mod redis;

use super::installation::Target;
use super::operator::opened;
use super::running::{AppError, gate_options, ledger_options};
use crate::clock::Clock;
use crate::gate::{Gate, GateOptions};
use crate::ledger::Ledger;
use crate::settings::{Environment, Settings};

/// How a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Sound,
    /// It works, and something may be lost, slow or unnoticed.
    Warning,
    /// What was counted or booked may be lost.
    Danger,
}

impl Verdict {
    /// Its name for display.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sound => "ok",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

/// What was found of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// What it is.
    pub found: String,
    /// How that is.
    pub verdict: Verdict,
    /// What to do, and why; empty where nothing is to be done.
    pub advice: String,
}

impl Finding {
    fn sound(name: &str, found: impl ToString) -> Self {
        Self { name: name.into(), found: found.to_string(), verdict: Verdict::Sound, advice: String::new() }
    }

    /// The verdict holds unless `is_sound`.
    fn unless(self, is_sound: bool, verdict: Verdict, advice: impl Into<String>) -> Self {
        if is_sound { self } else { Self { verdict, advice: advice.into(), ..self } }
    }
}

/// How far the clocks of Redis and of this host may be apart: windows turn by Redis's, keys and reports by the host's.
const APART_MAX_MS: i64 = 1_000;

/// Looks at the servers of an installation. `calls_per_second` are for how many reserves with an idempotency key, each
/// consumed, the memory is reckoned.
///
/// Errors: a server does not answer, or the configuration cannot be read.
pub async fn doctor(target: Target, calls_per_second: Option<u32>) -> anyhow::Result<Vec<Finding>> {
    let (settings, embedded) = opened(target).await?;
    let findings = findings(&settings, calls_per_second).await;
    if let Some(embedded) = embedded {
        tokio::task::spawn_blocking(move || embedded.stop()).await??;
    }
    findings
}

async fn findings(settings: &Settings, calls_per_second: Option<u32>) -> anyhow::Result<Vec<Finding>> {
    // An unsafe server is looked at, too: nothing is written.
    let options = GateOptions { allow_unsafe: true, ..gate_options(settings) };
    let of_gate = |source| AppError::gate(settings, source);
    let gate = Gate::connect(options).await.map_err(of_gate)?;
    let node = gate.node_facts().await.map_err(of_gate)?;
    // The look measures how far the clocks are apart.
    let host = Clock::system();
    gate.look(|| host.now_ms()).await.map_err(of_gate)?;
    let of_ledger = |source| AppError::ledger(settings, source);
    let ledger = Ledger::connect(ledger_options(settings)).await.map_err(of_ledger)?;
    let server = ledger.server_facts().await.map_err(of_ledger)?;
    let mut findings = redis::findings(&node);
    findings.push(clocks(gate.time_difference_ms()));
    findings.extend(postgres::findings(&server, postgres::connections(settings)));
    findings.push(of_configuration(settings));
    findings.extend(calls_per_second.map(|calls| memory::finding(settings, &node, calls)));
    Ok(findings)
}

fn clocks(ahead_ms: i64) -> Finding {
    let advice = "keep the clocks of all machines in step (NTP): keys expire and reports end by this host's, windows \
        turn by Redis's";
    Finding::sound("redis clock ahead of this host's, ms", ahead_ms).unless(
        ahead_ms.abs() <= APART_MAX_MS,
        Verdict::Warning,
        advice,
    )
}

fn of_configuration(settings: &Settings) -> Finding {
    let is_sound = !settings.redis.allow_unsafe || settings.environment == Environment::Sandbox;
    Finding::sound("redis.allow_unsafe", settings.redis.allow_unsafe).unless(
        is_sound,
        Verdict::Danger,
        "set it to false: a service then refuses to start on a Redis that forgets",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_be_a_second_apart() {
        let verdicts = [0, 1_000, -1_000, 1_001, -1_001].map(|ahead_ms| clocks(ahead_ms).verdict);
        use Verdict::{Sound, Warning};
        assert_eq!(verdicts, [Sound, Sound, Sound, Warning, Warning]);
    }
}
