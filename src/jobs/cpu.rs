//! How busy the processors are, from Linux: those of the host, and the share that a control group allows this process.

use std::fs;
use std::time::Instant;

use crate::clock::Clock;
use crate::domain::load::LoadFactor;

const GROUPS: &str = "/sys/fs/cgroup";

/// What was read last.
#[derive(Default)]
pub(super) struct Processors {
    host: Option<HostTime>,
    group: Option<(u64, Instant)>,
}

/// Ticks of all processors since the start of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostTime {
    busy: u64,
    all: u64,
}

/// How much processor time a control group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quota {
    quota_us: u64,
    period_us: u64,
}

impl Processors {
    /// How busy they were since the last look: the host's, or those that this process may use, whichever is more. None
    /// on the first look, and where nothing tells.
    pub(super) fn load(&mut self) -> Option<LoadFactor> {
        self.of_host().max(self.of_group())
    }

    fn of_host(&mut self) -> Option<LoadFactor> {
        let now = host_time(&fs::read_to_string("/proc/stat").ok()?)?;
        let before = self.host.replace(now)?;
        Some(LoadFactor::of(now.busy.saturating_sub(before.busy), now.all.saturating_sub(before.all).max(1)))
    }

    fn of_group(&mut self) -> Option<LoadFactor> {
        let group = format!("{GROUPS}{}", group_path(&fs::read_to_string("/proc/self/cgroup").ok()?)?);
        let quota = quota(&fs::read_to_string(format!("{group}/cpu.max")).ok()?)?;
        let used_us = used_us(&fs::read_to_string(format!("{group}/cpu.stat")).ok()?)?;
        let now = Clock::monotonic();
        let (used_before_us, before) = self.group.replace((used_us, now))?;
        let elapsed_us = u64::try_from((now - before).as_micros()).unwrap_or(u64::MAX);
        let allowed_us = elapsed_us.saturating_mul(quota.quota_us) / quota.period_us.max(1);
        Some(LoadFactor::of(used_us.saturating_sub(used_before_us), allowed_us.max(1)))
    }
}

/// Reads `/proc/stat`: user, nice, system, idle, waiting for disks, interrupts twice, and stolen. Guests count in user.
fn host_time(text: &str) -> Option<HostTime> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = numbers.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
    let all = ticks.iter().fold(0, |all: u64, ticks| all.saturating_add(*ticks));
    Some(HostTime { busy: all.saturating_sub(idle), all })
}

/// The process's group of the second version, from `/proc/self/cgroup`.
fn group_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Reads `cpu.max`; none where the group may use all.
fn quota(text: &str) -> Option<Quota> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(Quota { quota_us: quota.parse().ok()?, period_us: period.parse().ok()? })
}

/// Reads what is used from `cpu.stat`, in µs.
fn used_us(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_time_is_busy_where_it_is_neither_idle_nor_waits_for_disks() {
        let text = "cpu  100 5 40 800 50 1 2 2 30 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(host_time(text), Some(HostTime { busy: 150, all: 1_000 }));
        assert_eq!([host_time("intr 5\n"), host_time("cpu  1 2 x 4 5\n"), host_time("")], [None; 3]);
    }

    #[test]
    fn a_groups_quota_is_read_where_it_has_one() {
        assert_eq!(group_path("12:cpu:/old\n0::/system.slice/tollgate\n"), Some("/system.slice/tollgate"));
        assert_eq!(group_path("4:memory:/x\n"), None);
        assert_eq!(quota("150000 100000\n"), Some(Quota { quota_us: 150_000, period_us: 100_000 }));
        assert_eq!([quota("max 100000\n"), quota("")], [None; 2]);
        assert_eq!(used_us("usage_usec 7300\nuser_usec 5000\n"), Some(7_300));
    }

    #[test]
    fn the_first_look_only_begins() {
        let mut processors = Processors::default();
        assert_eq!(processors.load(), None);
    }
}
