//! What of the gate's server is safe.

use super::{Finding, Verdict};
use crate::gate::NodeFacts;

const UNKNOWN: &str = "unknown";
/// How full its memory may be, in percent.
const FULL_PERCENT: u64 = 80;

pub(super) fn findings(node: &NodeFacts) -> Vec<Finding> {
    let mut findings = vec![version(node), role(node)];
    findings.extend(persistence(node));
    findings.extend(memory(node));
    findings
}

fn version(node: &NodeFacts) -> Finding {
    let version = node.text("redis_version").unwrap_or(UNKNOWN);
    let major: u32 = version.split('.').next().and_then(|part| part.parse().ok()).unwrap_or(0);
    Finding::sound("redis version", version).unless(
        major >= 7,
        Verdict::Danger,
        "install Redis 7.0 or later, or Valkey",
    )
}

fn role(node: &NodeFacts) -> Finding {
    let role = node.text("role").unwrap_or(UNKNOWN);
    let advice = "connect to the master: a replica takes no writes";
    Finding::sound("redis role", role).unless(role == "master", Verdict::Danger, advice)
}

fn persistence(node: &NodeFacts) -> Vec<Finding> {
    let is = |name: &str, wanted: &str| node.text(name) == Some(wanted);
    let appendonly = match node.text("aof_enabled") {
        Some("1") => "yes",
        Some(_) => "no",
        None => UNKNOWN,
    };
    let mut findings = vec![Finding::sound("redis appendonly", appendonly).unless(
        appendonly == "yes",
        Verdict::Danger,
        "set `appendonly yes`: without it a restart forgets what was acknowledged and is not booked",
    )];
    let fsync = node.text("appendfsync").unwrap_or(UNKNOWN);
    findings.push(Finding::sound("redis appendfsync", fsync).unless(
        fsync != "no",
        Verdict::Warning,
        "set `appendfsync everysec` or `always`: half a minute of calls may be lost with the host",
    ));
    let rewrite = node.text("no-appendfsync-on-rewrite").unwrap_or(UNKNOWN);
    findings.push(Finding::sound("redis no-appendfsync-on-rewrite", rewrite).unless(
        rewrite != "yes",
        Verdict::Warning,
        "set `no-appendfsync-on-rewrite no`: nothing reaches the disk while the file is rewritten",
    ));
    if appendonly == "yes" {
        let status = node.text("aof_last_write_status").unwrap_or(UNKNOWN);
        findings.push(Finding::sound("redis aof_last_write_status", status).unless(
            is("aof_last_write_status", "ok"),
            Verdict::Danger,
            "the append-only file cannot be written: look at the disk",
        ));
        let rewritten = node.text("aof_last_bgrewrite_status").unwrap_or(UNKNOWN);
        findings.push(Finding::sound("redis aof_last_bgrewrite_status", rewritten).unless(
            is("aof_last_bgrewrite_status", "ok"),
            Verdict::Warning,
            "the append-only file is not rewritten and only grows: look at Redis's log",
        ));
        let delayed = node.number("aof_delayed_fsync").unwrap_or(0);
        findings.push(Finding::sound("redis aof_delayed_fsync", delayed).unless(
            delayed == 0,
            Verdict::Warning,
            "the disk has stalled since Redis started: calls then wait, and more of them may be lost with the host",
        ));
    }
    findings
}

fn memory(node: &NodeFacts) -> Vec<Finding> {
    let policy = node.text("maxmemory_policy").unwrap_or(UNKNOWN);
    let mut findings = vec![Finding::sound("redis maxmemory-policy", policy).unless(
        policy == "noeviction",
        Verdict::Danger,
        "set `maxmemory-policy noeviction`: every other one drops counters, and tenants get their limits again",
    )];
    let most = node.number("maxmemory").unwrap_or(0);
    let used = node.number("used_memory").unwrap_or(0);
    findings.push(Finding::sound("redis maxmemory, bytes", most).unless(
        most > 0,
        Verdict::Warning,
        "set `maxmemory`: without it the system ends Redis when the host's memory is full",
    ));
    let room = u128::from(most) * u128::from(FULL_PERCENT) / 100;
    findings.push(Finding::sound("redis used_memory, bytes", used).unless(
        most == 0 || u128::from(used) <= room,
        Verdict::Warning,
        format!("more than {FULL_PERCENT} % of `maxmemory`: once it is full, reserves are refused"),
    ));
    findings
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SOUND: &str = "redis_version:7.2.4\nrole:master\naof_enabled:1\naof_last_write_status:ok\n\
        aof_last_bgrewrite_status:ok\naof_delayed_fsync:0\nmaxmemory_policy:noeviction\nmaxmemory:1000\nused_memory:800\n";
    const SETTINGS: [(&str, &str); 2] = [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "no")];

    #[test]
    fn a_node_as_recommended_is_sound() {
        let findings = findings(&NodeFacts::of(SOUND, SETTINGS));
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Sound), "{findings:?}");
        assert_eq!(findings.len(), 11);
    }

    #[rstest]
    #[case("redis_version:6.2.0", "redis version", Verdict::Danger)]
    #[case("role:slave", "redis role", Verdict::Danger)]
    #[case("aof_enabled:0", "redis appendonly", Verdict::Danger)]
    #[case("aof_last_write_status:err", "redis aof_last_write_status", Verdict::Danger)]
    #[case("aof_last_bgrewrite_status:err", "redis aof_last_bgrewrite_status", Verdict::Warning)]
    #[case("aof_delayed_fsync:3", "redis aof_delayed_fsync", Verdict::Warning)]
    #[case("maxmemory_policy:allkeys-lru", "redis maxmemory-policy", Verdict::Danger)]
    #[case("maxmemory:0", "redis maxmemory, bytes", Verdict::Warning)]
    #[case("used_memory:801", "redis used_memory, bytes", Verdict::Warning)]
    #[case("appendfsync:no", "redis appendfsync", Verdict::Warning)]
    #[case("no-appendfsync-on-rewrite:yes", "redis no-appendfsync-on-rewrite", Verdict::Warning)]
    fn what_may_lose_something_is_named_alone(
        #[case] other: &str,
        #[case] name: &str,
        #[case] verdict: Verdict,
    ) {
        let pairs = SETTINGS.into_iter().chain(other.split_once(':'));
        let findings = findings(&NodeFacts::of(SOUND, pairs));
        let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Sound).collect();
        assert_eq!(
            bad.iter().map(|one| (one.name.as_str(), one.verdict)).collect::<Vec<_>>(),
            [(name, verdict)]
        );
        assert!(!bad[0].advice.is_empty());
    }
}
