//! Expire: due reservations give their units back.

use std::collections::HashMap;

use super::{Answer, Operations};
use crate::domain::ids::Partition;
use crate::gate::{DueList, ExpireReport, GateError};
use crate::telemetry::labels::{Alarm, Script};

/// How many reservations one script call expires: short enough that nobody notices it.
const BATCH: u32 = 100;

impl Operations {
    /// Expires what is due in one partition now, one bounded batch; the report says whether more is due. Nothing is while
    /// Redis's clock is not trusted: a step forwards would end holds that have time left.
    pub async fn expire_due(&self, partition: Partition) -> Answer<ExpireReport> {
        if !self.gate.trusts_time() {
            return Ok(ExpireReport::default());
        }
        let report =
            match self.timed(Script::Expire, self.gate.expire(partition, self.script_now(), BATCH)).await {
                Ok(report) => report,
                Err(GateError::Alarm { partition, reason }) => {
                    self.after_alarm(partition, &reason).await?;
                    return Ok(ExpireReport::default());
                }
                Err(error) => return Err(error.into()),
            };
        self.tell_expired(partition, &report);
        Ok(report)
    }

    /// Expires what leaps of the sweep have left behind; each leap is its partition and the bucket it leapt to.
    pub async fn expire_behind(&self, leaps: &[DueList]) -> Answer<()> {
        if leaps.is_empty() || !self.gate.trusts_time() {
            return Ok(());
        }
        let mut lists: HashMap<Partition, Vec<i64>> = HashMap::new();
        for (partition, bucket) in self.gate.due_lists().await? {
            lists.entry(partition).or_default().push(bucket);
        }
        for (partition, leap) in leaps {
            let found = lists.remove(partition).unwrap_or_default();
            let sweeping = self.gate.expire_behind(*partition, self.script_now(), *leap, &found);
            self.tell_expired(*partition, &self.timed(Script::Expire, sweeping).await?);
        }
        Ok(())
    }

    fn tell_expired(&self, partition: Partition, report: &ExpireReport) {
        self.metrics.holds_expired(report.expired.into());
        if report.missing > 0 {
            self.metrics.alarm(Alarm::MissingRecord);
            tracing::warn!(%partition, missing = report.missing, "due reservations without a record at the gate");
        }
        if report.inconsistent > 0 {
            self.metrics.alarm(Alarm::Memory);
            tracing::error!(%partition, holds = report.inconsistent, "counters hold less than their reservations do; run tollgate verify");
        }
    }

    /// How many partitions the installation has.
    pub fn partitions(&self) -> u16 {
        self.policy.partitions()
    }
}
