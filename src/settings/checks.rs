//! Rules for values beyond their types, alone and together.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret, SecretString};
use tracing_subscriber::EnvFilter;

use super::{
    Settings, SettingsError, UnknownTenant,
    sources::{Effective, Problem},
};

const SECRET_CHARACTERS_MIN: usize = 32;
/// Fewer different characters are a placeholder, not a random secret.
const SECRET_DISTINCT_MIN: usize = 8;
const HOUR_MS: u64 = 3_600_000;
/// More would not fit into any Redis.
const BACKLOG_EVENTS_MOST: u64 = 1_000_000_000;
const ANONYMOUS_SLOTS_MOST: u64 = 1 << 24;
const UNITS_MOST: u64 = 9_000_000_000_000_000;
const BYTES_MOST: u64 = 1 << 40;
const DAY_SECONDS: u64 = 86_400;

/// Checks the settings; gives every problem found.
pub(super) fn check(settings: &Settings, effective: &Effective) -> Result<(), SettingsError> {
    let mut found = Found { effective, problems: Vec::new() };
    found.check_ranges(settings);
    found.check_secrets(settings);
    found.check_between(settings);
    found.check_texts(settings);
    if found.problems.is_empty() { Ok(()) } else { Err(SettingsError { problems: found.problems }) }
}

struct Found<'a> {
    effective: &'a Effective,
    problems: Vec<Problem>,
}

impl Found<'_> {
    fn add(&mut self, key: &str, message: &str) {
        self.problems.push(self.effective.problem(key, message));
    }

    fn check_ranges(&mut self, settings: &Settings) {
        let Settings { http, redis, postgres, gate, writer, ledger, .. } = settings;
        let Settings { reconciliation, adjustments, policy, decisions, webhooks, admin, logs, .. } = settings;
        let destructive_calls = u64::from(admin.destructive_calls_per_minute);
        for (key, value, least, most) in [
            ("http.workers", wide(http.workers), 0, 1_024),
            ("http.request_timeout_ms", http.request_timeout_ms, 100, HOUR_MS),
            ("http.keep_alive_ms", http.keep_alive_ms, 1_000, HOUR_MS),
            ("http.shutdown_grace_ms", http.shutdown_grace_ms, 0, HOUR_MS),
            ("http.shutdown_timeout_ms", http.shutdown_timeout_ms, 0, HOUR_MS),
            ("http.max_connections", wide(http.max_connections), 1, 1_000_000),
            ("http.retry_jitter_percent", u64::from(http.retry_jitter_percent), 0, 100),
            ("redis.connections", wide(redis.connections), 1, 256),
            ("redis.response_timeout_ms", redis.response_timeout_ms, 10, 60_000),
            ("redis.connect_timeout_ms", redis.connect_timeout_ms, 10, 60_000),
            ("redis.concurrent_calls_max", wide(redis.concurrent_calls_max), 1, 1_000_000),
            ("postgres.pool_size", wide(postgres.pool_size), 2, 1_000),
            ("postgres.writer_pool_size", wide(postgres.writer_pool_size), 1, 100),
            ("postgres.checkout_timeout_ms", postgres.checkout_timeout_ms, 10, 60_000),
            ("postgres.statement_timeout_ms", postgres.statement_timeout_ms, 100, HOUR_MS),
            ("gate.partitions", u64::from(gate.partitions), 1, 256),
            ("gate.tombstone_keyed_seconds", gate.tombstone_keyed_seconds, DAY_SECONDS, 30 * DAY_SECONDS),
            ("gate.tombstone_unkeyed_seconds", gate.tombstone_unkeyed_seconds, 1, 30 * DAY_SECONDS),
            ("gate.anonymous_slots", u64::from(gate.anonymous_slots), 1, ANONYMOUS_SLOTS_MOST),
            ("gate.backlog_events_max", gate.backlog_events_max, 1, BACKLOG_EVENTS_MOST),
            ("gate.backlog_events_hard_max", gate.backlog_events_hard_max, 1, BACKLOG_EVENTS_MOST),
            ("gate.backlog_bytes_max", gate.backlog_bytes_max, 1, BYTES_MOST),
            ("gate.backlog_bytes_hard_max", gate.backlog_bytes_hard_max, 1, BYTES_MOST),
            ("writer.batch_events", wide(writer.batch_events), 1, 100_000),
            ("writer.idle_poll_ms", writer.idle_poll_ms, 1, 60_000),
            ("writer.gather_ms", writer.gather_ms, 0, 1_000),
            ("writer.gather_busy_ms", writer.gather_busy_ms, 0, 1_000),
            ("writer.safety_tail_seconds", writer.safety_tail_seconds, 0, 7 * DAY_SECONDS),
            ("writer.safety_tail_bytes", writer.safety_tail_bytes, 0, BYTES_MOST),
            ("writer.flush_timeout_ms", writer.flush_timeout_ms, 0, HOUR_MS),
            ("ledger.ack_timeout_ms", ledger.ack_timeout_ms, 1, HOUR_MS),
            ("ledger.restore_wait_ms", ledger.restore_wait_ms, 1, HOUR_MS),
            ("ledger.idempotency_horizon_days", ledger.idempotency_horizon_days, 31, 400),
            ("ledger.entries_kept_months", u64::from(ledger.entries_kept_months), 4, 1_200),
            ("ledger.parked_calls_max", ledger.parked_calls_max, 0, 100_000_000),
            ("ledger.close_grace_seconds", ledger.close_grace_seconds, 60, 7 * DAY_SECONDS),
            ("reconciliation.interval_seconds", reconciliation.interval_seconds, 0, 7 * DAY_SECONDS),
            ("reconciliation.checkpoints_per_second", reconciliation.checkpoints_per_second, 1, 10_000),
            ("adjustments.approval_above_units", adjustments.approval_above_units, 0, UNITS_MOST),
            ("policy.poll_ms", policy.poll_ms, 10, 60_000),
            ("decisions.sample_percent", u64::from(decisions.sample_percent), 0, 100),
            ("decisions.refusals_max", wide(decisions.refusals_max), 0, 1_000_000),
            ("webhooks.timeout_ms", webhooks.timeout_ms, 100, 60_000),
            ("admin.destructive_calls_per_minute", destructive_calls, 1, 1_000_000),
            ("logs.admitted_percent", u64::from(logs.admitted_percent), 0, 100),
            ("logs.refusals_per_second", u64::from(logs.refusals_per_second), 0, 100_000),
        ] {
            if !(least..=most).contains(&value) {
                self.add(key, &format!("{value} is out of range: give {least} to {most}"));
            }
        }
    }

    fn check_secrets(&mut self, settings: &Settings) {
        self.check_url("redis.url", &settings.redis.url, &["redis://", "redis+unix://", "unix://"]);
        self.check_url("postgres.url", &settings.postgres.url, &["postgresql://", "postgres://"]);
        let secret = settings.installation.secret.expose_secret();
        if self.check_set("installation.secret", &settings.installation.secret)
            && (secret.chars().count() < SECRET_CHARACTERS_MIN
                || secret.chars().collect::<BTreeSet<_>>().len() < SECRET_DISTINCT_MIN)
        {
            self.add(
                "installation.secret",
                "too weak: give at least 32 random characters; `openssl rand -hex 32` makes them",
            );
        }
    }

    fn check_url(&mut self, key: &str, url: &SecretString, schemes: &[&str]) {
        let known = |scheme: &&str| url.expose_secret().starts_with(*scheme);
        if self.check_set(key, url) && !schemes.iter().any(known) {
            self.add(key, &format!("the URL must begin with one of {}", schemes.join(", ")));
        }
    }

    fn check_set(&mut self, key: &str, secret: &SecretString) -> bool {
        let set = !secret.expose_secret().is_empty();
        if !set {
            let variable = key.to_uppercase().replace('.', "__");
            let message = format!("not set: give TOLLGATE__{variable}, or name a file in {key}_file");
            self.problems.push(Problem::new(key, message));
        }
        set
    }

    fn check_between(&mut self, settings: &Settings) {
        let Settings { http, redis, gate, ledger, .. } = settings;
        for (counted, hard, soft) in [
            ("events", gate.backlog_events_hard_max, gate.backlog_events_max),
            ("bytes", gate.backlog_bytes_hard_max, gate.backlog_bytes_max),
        ] {
            if hard < soft {
                self.add(
                    &format!("gate.backlog_{counted}_hard_max"),
                    &format!("{hard} must not be below gate.backlog_{counted}_max, which is {soft}"),
                );
            }
        }
        for (key, value) in [
            ("redis.response_timeout_ms", redis.response_timeout_ms),
            ("ledger.ack_timeout_ms", ledger.ack_timeout_ms),
            ("ledger.restore_wait_ms", ledger.restore_wait_ms),
        ] {
            if value >= http.request_timeout_ms {
                let most = http.request_timeout_ms;
                self.add(key, &format!("{value} must be below http.request_timeout_ms, which is {most}"));
            }
        }
        if http.listen == http.ops_listen && http.listen.port() != 0 {
            self.add("http.ops_listen", "the same address as http.listen: give metrics a port of their own");
        }
    }

    fn check_texts(&mut self, settings: &Settings) {
        if let Err(error) = EnvFilter::builder().parse(&settings.logs.level) {
            self.add(
                "logs.level",
                &format!("{error}: give a level such as info, or info,tollgate::gate=debug"),
            );
        }
        if matches!(&settings.policy.unknown_tenant, UnknownTenant::Plan(id) if !is_id(id)) {
            self.add("policy.unknown_tenant", "give \"refuse\" or the id of a plan");
        }
        for tenant in settings.decisions.tenants.iter().filter(|tenant| !is_id(tenant)) {
            self.add("decisions.tenants", &format!("{tenant:?} is not the id of a tenant"));
        }
    }
}

fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=64).contains(&text.len())
        && text.bytes().all(plain)
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
