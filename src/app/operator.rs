//! An operator's commands on an installation, running or stopped: status, inspect, verify, quarantine.

use std::path::Path;

use super::installation::{Servers, Target, embedded_in, say_installation};
use super::options::{CheckLine, QuarantineAction, QuarantineLine, UpOptions, VerifyReport};
use super::running::App;
use super::serve::load;
use super::up::{SERVICE_FILE, settings_of};
use crate::clock::Clock;
use crate::domain::ids::{OutboxId, Partition};
use crate::embedded::Embedded;
use crate::jobs::overdue;
use crate::ledger::{Damage, Fault, Ledger, QuarantineStatus, Quarantined, Rebuilt, VerifyOptions};
use crate::settings::{Environment, Settings};

/// Whom the audit log names.
const OPERATOR: &str = "operator";

/// An installation reached for one command, with the servers that had to be started for it.
pub(super) struct Reached {
    pub(super) app: App,
    pub(super) settings: Settings,
    embedded: Option<Embedded>,
}

impl Reached {
    pub(super) async fn reach(target: Target) -> anyhow::Result<Self> {
        let (settings, embedded) = opened(target).await?;
        let app = App::connect(&settings, Clock::system()).await?;
        Ok(Self { app, settings, embedded })
    }

    /// The same, on the installation's test clock if it runs on one.
    pub(super) async fn by_its_clock(mut self) -> anyhow::Result<Self> {
        if let Some(clock) = self.test_clock().await? {
            let app = App::connect(&self.settings, clock).await?;
            std::mem::replace(&mut self.app, app).stop().await;
        }
        Ok(self)
    }

    async fn test_clock(&self) -> anyhow::Result<Option<Clock>> {
        let may_be_test = self.embedded.is_some() || self.settings.environment == Environment::Sandbox;
        if may_be_test { test_clock_of(&self.app).await } else { Ok(None) }
    }

    pub(super) async fn leave(self) -> anyhow::Result<()> {
        self.app.stop().await;
        if let Some(embedded) = self.embedded {
            tokio::task::spawn_blocking(move || embedded.stop()).await??;
        }
        Ok(())
    }
}

/// The settings of an installation, and its servers where they had to be started or attached to.
pub(super) async fn opened(target: Target) -> anyhow::Result<(Settings, Option<Embedded>)> {
    match target {
        Target::Config(config) => {
            let settings = load(config, None)?;
            say_installation(Servers::of(&settings));
            Ok((settings, None))
        }
        Target::Embedded { data_dir, config } => {
            say_installation(embedded_in(&data_dir));
            let options = UpOptions {
                data_dir: data_dir.clone(),
                listen: None,
                test_clock: None,
                config,
                no_demo: true,
            };
            let embedded =
                tokio::task::spawn_blocking(move || Embedded::attach_or_start(&data_dir)).await??;
            Ok((settings_of(&options, &embedded)?, Some(embedded)))
        }
    }
}

/// The sweep is this far from Redis's time only under a test clock.
const FAR_MS: u64 = 3_600_000;

/// The gate's test clock, if it runs on one: its time is that of the gate's last sweep.
async fn test_clock_of(app: &App) -> anyhow::Result<Option<Clock>> {
    let host = Clock::system();
    app.gate.look(|| host.now_ms()).await?;
    let redis_ms = app.gate.redis_time_ms();
    Ok(app.gate.swept_ms().await?.filter(|swept_ms| swept_ms.abs_diff(redis_ms) > FAR_MS).map(Clock::test))
}

/// The servers' addresses and state, as rows of name and value.
pub async fn status(target: Target) -> anyhow::Result<Vec<(String, String)>> {
    let mut rows = Vec::new();
    if let Target::Embedded { data_dir, .. } = &target {
        let path = data_dir.clone();
        let servers = tokio::task::spawn_blocking(move || Embedded::running(&path)).await??;
        let Some(servers) = servers else {
            say_installation(embedded_in(data_dir));
            return Ok(vec![(
                "state".into(),
                format!("stopped; start it with `tollgate up --data-dir {}`", data_dir.display()),
            )]);
        };
        rows.push(("state".into(), "running".into()));
        rows.extend(service_rows(data_dir));
        rows.push(("redis socket".into(), servers.redis_socket.display().to_string()));
        rows.push(("redis process".into(), servers.redis_id.to_string()));
        rows.push((
            "postgres socket directory".into(),
            servers.postgres_socket_directory.display().to_string(),
        ));
        rows.push(("postgres url".into(), servers.postgres_url.clone()));
        rows.push(("postgres process".into(), servers.postgres_id.to_string()));
        rows.push(("started by process".into(), servers.started_by.to_string()));
    }
    let reached = Reached::reach(target).await?;
    rows.extend(state_rows(&reached).await?);
    reached.leave().await?;
    Ok(rows)
}

/// What a key of the gate holds, as rows of name and value.
pub async fn inspect(target: Target, key: &str) -> anyhow::Result<Vec<(String, String)>> {
    let reached = Reached::reach(target).await?;
    let rows = reached.app.gate.inspect(key).await;
    reached.leave().await?;
    Ok(rows?)
}

fn service_rows(data_dir: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(data_dir.join(SERVICE_FILE)).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let row = |name: &str, field: &str| value[field].as_str().map(|text| (name.to_owned(), text.to_owned()));
    row("url", "url").into_iter().chain(row("metrics url", "ops_url")).collect()
}

async fn state_rows(reached: &Reached) -> anyhow::Result<Vec<(String, String)>> {
    let host = Clock::system();
    let standings = reached.app.gate.look(|| host.now_ms()).await?;
    let event_bytes = reached.app.gate.waiting(&standings).await?.event_bytes.unwrap_or_default();
    let ahead_ms = reached.app.gate.time_difference_ms();
    let mut behind = 0;
    let mut waiting = 0;
    let mut epochs = (u64::MAX, 0);
    let rows = reached.app.ledger.epochs().await?;
    for row in &rows {
        let last = reached.app.gate.last_readable_event(row.partition).await?.unwrap_or_default();
        if last > row.cursor {
            behind += 1;
            if last.epoch == row.cursor.epoch {
                waiting += last.sequence - row.cursor.sequence;
            }
        }
        epochs = (epochs.0.min(row.epoch.0), epochs.1.max(row.epoch.0));
    }
    let parked = reached.app.ledger.count_parked().await?;
    let mut rows = vec![
        ("durability".into(), reached.app.gate.durability().as_str().into()),
        ("redis clock ahead of this host's, ms".into(), ahead_ms.to_string()),
        ("partitions".into(), reached.settings.gate.partitions.to_string()),
        ("epochs".into(), format!("{} to {}", epochs.0, epochs.1)),
        ("partitions behind".into(), behind.to_string()),
        ("events not booked".into(), waiting.to_string()),
        ("bytes not booked, about".into(), event_bytes.saturating_mul(waiting).to_string()),
        ("events in quarantine".into(), reached.app.ledger.count_quarantined().await?.to_string()),
        ("parked calls waiting".into(), parked.waiting.to_string()),
        ("parked calls in conflict".into(), parked.conflicts.to_string()),
        ("policy version".into(), reached.app.ledger.policy_version().await?.to_string()),
    ];
    rows.extend(tails(&reached.app).await?);
    rows.extend(lost(&reached.app.ledger).await?.into_iter().map(|units| ("lost".into(), units)));
    let now_ms = reached.test_clock().await?.unwrap_or(host).now_ms();
    let late = overdue(&reached.app.ledger.jobs().await?, now_ms).into_iter();
    rows.extend(late.map(|late| ("overdue job".into(), late.to_string())));
    let damages = reached.app.ledger.damages().await?.into_iter();
    rows.extend(damages.map(|damage| {
        let Damage { work, item, reason, first_at_ms } = damage;
        let since = jiff::Timestamp::from_millisecond(first_at_ms).unwrap_or(jiff::Timestamp::MAX);
        ("damaged".into(), format!("{item} ({work}): {reason}, since {since}; it is skipped and retried"))
    }));
    Ok(rows)
}

/// How many seconds of booked events the outboxes still hold: a row for each partition with less than the others, then
/// one for the others.
async fn tails(app: &App) -> anyhow::Result<Vec<(String, String)>> {
    let tails = app.operations.calls.admission.tails().await?;
    let longest = tails.iter().map(|(_, covered)| *covered).max().unwrap_or_default();
    let shorter = tails.iter().filter(|(_, covered)| *covered < longest);
    let mut rows: Vec<_> = shorter
        .map(|(partition, covered)| {
            (format!("safety tail of {partition}, seconds"), covered.as_secs().to_string())
        })
        .collect();
    let name = if rows.is_empty() { "every partition" } else { "every other partition" };
    rows.push((format!("safety tail of {name}, seconds"), longest.as_secs().to_string()));
    Ok(rows)
}

/// What was acknowledged and lost, a sentence for each meter.
async fn lost(ledger: &Ledger) -> anyhow::Result<Vec<String>> {
    let units = ledger.lost_units().await?.into_iter().map(|lost| {
        let (held, consumed) = (lost.held.normalize(), lost.consumed.normalize());
        format!("{} acknowledged events of {}: {held} held, {consumed} consumed", lost.events, lost.meter)
    });
    Ok(units.collect())
}

/// Checks the books, and the gate against them. `rebuild` recomputes the derived tables and compares; with `write` what
/// differs is replaced first.
pub async fn verify(target: Target, rebuild: bool, write: bool) -> anyhow::Result<VerifyReport> {
    let reached = Reached::reach(target).await?.by_its_clock().await?;
    let options = VerifyOptions { rebuild, ..VerifyOptions::default() };
    let mended = if write { Some(mend(&reached.app, options).await?) } else { None };
    let books = crate::ledger::verify(&reached.app.ledger, options).await?;
    let warned = books.checks.iter().flat_map(|check| &check.warnings);
    let mut warnings: Vec<_> = warned.map(named).collect();
    let mut checks: Vec<_> = books
        .checks
        .into_iter()
        .map(|check| CheckLine {
            name: check.name.to_string(),
            checked: check.checked,
            faults: check.faults.iter().map(named).collect(),
            skipped: check.skipped,
        })
        .collect();
    let anchored = reached.app.operations.memory.check_anchors().await?;
    checks.push(CheckLine {
        name: "chains have their anchored heads".into(),
        checked: anchored.anchors,
        faults: anchored.faults,
        skipped: (anchored.anchors == 0).then(|| "the gate has no anchor".into()),
    });
    let lost = lost(&reached.app.ledger).await?;
    warnings.extend(lost.into_iter().map(|units| format!("lost: {units}")));
    let gate = reached.app.operations.reconcile.verify_gate().await?;
    checks.push(CheckLine {
        name: "gate equals ledger".into(),
        checked: gate.counters,
        faults: gate.faults,
        skipped: gate
            .skipped
            .or_else(|| (gate.counters == 0).then(|| "the gate has no counter to compare".into())),
    });
    let mut notes: Vec<String> = cold_note(gate.cold_tenants).into_iter().collect();
    warnings.extend(gate.undecided);
    if let Some(mended) = mended {
        notes.extend(mended.differences.iter().map(|fault| format!("mended: {}", named(fault))));
        checks.extend(mended_lines(&mended));
    }
    reached.leave().await?;
    Ok(VerifyReport { checks, warnings, notes })
}

/// Replaces what differs of the derived tables, and sends the gate the capacities that change with that.
async fn mend(app: &App, options: VerifyOptions) -> anyhow::Result<Rebuilt> {
    let mended = crate::ledger::rebuild(&app.ledger, options, app.operations.now_ms(), OPERATOR).await?;
    if mended.balances > 0 {
        app.operations.memory.send_untold_capacities().await?;
    }
    Ok(mended)
}

/// How many rows were replaced, and what could not be.
fn mended_lines(mended: &Rebuilt) -> [CheckLine; 2] {
    let line = |name: &str, checked: u64, failed: &[Fault]| CheckLine {
        name: name.into(),
        checked,
        faults: failed.iter().map(named).collect(),
        skipped: None,
    };
    [
        line("balances were rebuilt", mended.balances, &mended.failed),
        line("hourly usage was rebuilt", mended.usage, &[]),
    ]
}

pub(super) fn named(fault: &Fault) -> String {
    format!("{}: {}", fault.what, fault.detail)
}

fn cold_note(tenants: u64) -> Option<String> {
    match tenants {
        0 => None,
        1 => Some("1 tenant is cold: the ledger tells the gate of it at its next call".into()),
        many => Some(format!("{many} tenants are cold: the ledger tells the gate of each at its next call")),
    }
}

/// What stays unbilled if an event in quarantine is discarded, in words.
pub async fn unbilled(target: Target, partition: Partition, event: OutboxId) -> anyhow::Result<String> {
    let reached = Reached::reach(target).await?;
    let unbilled = crate::writer::unbilled(&reached.app.ledger, partition, event).await;
    reached.leave().await?;
    Ok(unbilled?)
}

/// Lists, retries or discards events that could not be booked.
pub async fn quarantine(target: Target, action: QuarantineAction) -> anyhow::Result<Vec<QuarantineLine>> {
    let reached = Reached::reach(target).await?;
    let lines = act(&reached.app.ledger, action).await?;
    reached.leave().await?;
    Ok(lines.iter().map(line).collect())
}

const QUARANTINE_LIST_MAX: usize = 1000;

async fn act(ledger: &Ledger, action: QuarantineAction) -> anyhow::Result<Vec<Quarantined>> {
    match action {
        QuarantineAction::List => {}
        QuarantineAction::Retry { partition, event } => {
            let retried = crate::writer::retry(ledger, partition, event, OPERATOR).await?;
            tracing::info!(resolved = retried.resolved, waiting = retried.waiting, "tried again");
        }
        QuarantineAction::Discard { partition, event, reason } => {
            let unbilled = crate::writer::discard(ledger, partition, event, OPERATOR, &reason).await?;
            tracing::warn!(%partition, %event, reason, unbilled, "discarded");
        }
    }
    Ok(ledger.quarantined(false, None, QUARANTINE_LIST_MAX).await?)
}

fn status_word(status: QuarantineStatus) -> &'static str {
    match status {
        QuarantineStatus::Open => "open",
        QuarantineStatus::Resolved => "resolved",
        QuarantineStatus::Discarded => "discarded",
    }
}

fn line(event: &Quarantined) -> QuarantineLine {
    QuarantineLine {
        partition: event.partition,
        event: event.outbox_id,
        reservation: event.reservation.map(|id| id.to_string()),
        reason: event.reason.clone(),
        status: status_word(event.status).to_owned(),
    }
}
