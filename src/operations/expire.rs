//! Expire: due reservations give their units back.

use super::{Answer, Operations};
use crate::domain::ids::Partition;
use crate::gate::{ExpireReport, GateError};
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
        self.metrics.holds_expired(report.expired.into());
        if report.missing > 0 {
            self.metrics.alarm(Alarm::MissingRecord);
            tracing::warn!(%partition, missing = report.missing, "due reservations without a record at the gate");
        }
        if report.inconsistent > 0 {
            self.metrics.alarm(Alarm::Memory);
            tracing::error!(%partition, holds = report.inconsistent, "counters hold less than their reservations do; run tollgate verify");
        }
        Ok(report)
    }

    /// How many partitions the installation has.
    pub fn partitions(&self) -> u16 {
        self.policy.partitions()
    }
}
