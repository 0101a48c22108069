//! What jobs would do: nothing is changed. What is due may still wait for something when it is done.

use crate::operations::{Answer, FollowedGrants, NextPeriods, Operations};
use crate::telemetry::labels::Job;

/// What a run of this job would do now, in words; none for a job that knows by itself how to run dry.
pub(super) async fn said(job: Job, operations: &Operations) -> Answer<Option<String>> {
    Ok(match job {
        Job::Periods => {
            let NextPeriods { opened, delivered, followed } = operations.memory.next_periods_due().await?;
            Some(format!(
                "would open {opened} periods and deliver {delivered}; {followed} would be looked at for changes of policy"
            ))
        }
        Job::Grants => {
            let adjusted = operations.adjustments.due().await?;
            let FollowedGrants { begun, settled, advanced, told } = operations.memory.grants_due().await?;
            Some(format!(
                "would carry out {adjusted} adjustments, book {begun} grants that began and {settled} that ended, advance \
                 those of {advanced} quotas that go on, and send {told} capacities"
            ))
        }
        Job::Upgrades => {
            let (applied, followed) =
                (operations.upgrades.due().await?, operations.plan_changes.due().await?);
            Some(format!(
                "would put {applied} tenants on approved plans; the quotas of {followed} changes of plan would follow"
            ))
        }
        _ => None,
    })
}
