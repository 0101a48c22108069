//! What jobs would do: nothing is changed. What is due may still wait for something when it is done.

use crate::ledger::{Closed, ClosedUnits};
use crate::operations::{Answer, FollowedGrants, NextPeriods, Operations};
use crate::telemetry::labels::Job;

/// How many meters are named.
const METERS: usize = 20;

/// What a close would do, in words. Later periods of the same quotas are closed after those before them: what becomes
/// of their units depends on these.
pub(super) fn of_close(would: &Closed) -> String {
    let Closed { closed, waiting, later, .. } = would;
    let then = match later {
        0 => String::new(),
        _ => format!(", then up to {later} later ones of the same quotas"),
    };
    let mut said = vec![format!("would close {closed} periods{then}; {waiting} wait")];
    for (meter, ClosedUnits { rolled, lapsed, overage }) in would.units.iter().take(METERS) {
        let [rolled, lapsed, overage] = [rolled, lapsed, overage].map(|units| units.normalize());
        said.push(format!("{meter}: {rolled} go on, {lapsed} lapse, {overage} are overage"));
    }
    said.join("; ")
}

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
