//! Expiry: gives back the units of reservations that are due.

use std::collections::HashMap;

use super::Calls;
use crate::domain::ids::Partition;
use crate::gate::{DueList, ExpireReport, GateError};
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::labels::{Alarm, Script};

/// How many reservations one script call expires: few enough that other calls do not notice.
const BATCH: u32 = 100;

impl Calls {
    /// Expires what is due in one partition now, one bounded batch; the report has whether more is due. Nothing is due
    /// while Redis's clock is not trusted: a clock set forwards would end holds that still have time left.
    pub async fn expire_due(&self, partition: Partition) -> Answer<ExpireReport> {
        if !self.core.gate.trusts_time() {
            return Ok(ExpireReport::default());
        }
        let (gate, now_ms) = (&self.core.gate, self.core.script_now());
        let (swept, swept_light) = tokio::join!(
            self.core.timed(Script::Expire, gate.expire(partition, now_ms, BATCH)),
            self.core.timed(Script::ExpireHeld, gate.expire_held(partition, now_ms, BATCH)),
        );
        let (swept, swept_light) =
            (self.report_of(partition, swept).await, self.report_of(partition, swept_light).await);
        Ok(swept?.with_light(swept_light?))
    }

    /// Expires what leaps of the sweep have left out; each leap is its partition and the bucket to which the sweep
    /// leapt. A partition that fails does not stop the others.
    pub async fn expire_behind(&self, leaps: &[DueList]) -> Answer<()> {
        if leaps.is_empty() {
            return Ok(());
        }
        let mut lists: HashMap<Partition, Vec<i64>> = HashMap::new();
        for (partition, bucket) in self.core.gate.due_lists().await? {
            lists.entry(partition).or_default().push(bucket);
        }
        let mut failed = None;
        for (partition, leap) in leaps {
            let found = lists.remove(partition).unwrap_or_default();
            let sweeping = self.core.gate.expire_behind(*partition, self.core.script_now(), *leap, &found);
            let swept = self.core.timed(Script::Expire, sweeping).await;
            failed = self.report_of(*partition, swept).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    async fn report_of(
        &self,
        partition: Partition,
        swept: Result<ExpireReport, GateError>,
    ) -> Answer<ExpireReport> {
        match swept {
            Ok(report) => {
                self.tell_expired(partition, &report).await;
                Ok(report)
            }
            Err(GateError::Alarm { partition, reason }) => {
                self.memory.check.after_alarm(partition, &reason).await?;
                Ok(ExpireReport::default())
            }
            Err(error) => {
                let error = OperationError::from(error);
                if !error.is_server_away() {
                    self.core.damage.pass_over(Work::Expiry, &format!("partition {partition}"), &error).await;
                }
                Err(error)
            }
        }
    }

    async fn tell_expired(&self, partition: Partition, report: &ExpireReport) {
        self.core.metrics.holds_expired(report.expired.into());
        if report.missing > 0 {
            self.core.metrics.alarm(Alarm::MissingRecord);
            tracing::warn!(%partition, missing = report.missing, "due reservations without a record at the gate");
        }
        if report.inconsistent > 0 {
            self.core.metrics.alarm(Alarm::Memory);
            tracing::error!(%partition, holds = report.inconsistent, "counters hold less than their reservations do; run tollgate verify");
        }
        for unreadable in &report.unreadable {
            self.core.damage.pass_over(Work::Expiry, &unreadable.item, &unreadable.reason).await;
        }
        let unnamed =
            usize::try_from(report.damaged).unwrap_or(usize::MAX).saturating_sub(report.unreadable.len());
        if unnamed > 0 {
            self.core
                .damage
                .pass_over(
                    Work::Expiry,
                    &format!("partition {partition}"),
                    &format!("{unnamed} more holds cannot be decoded"),
                )
                .await;
        }
    }
}
