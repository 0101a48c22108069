//! An operator's commands on parked calls that the gate will never take.

use super::installation::Target;
use super::operator::Reached;
use super::options::{ParkedAction, ParkedLine, ParkedReport};
use crate::domain::amount::Amount;
use crate::domain::ids::MeterId;
use crate::operations::ConflictView;

const LIST_MAX: usize = 1000;
const ACTOR: &str = "operator";

/// Lists the parked calls in conflict, or settles one.
pub async fn parked(target: Target, action: ParkedAction) -> anyhow::Result<ParkedReport> {
    let reached = Reached::reach(target).await?;
    let report = act(&reached, action).await;
    reached.leave().await?;
    report
}

async fn act(reached: &Reached, action: ParkedAction) -> anyhow::Result<ParkedReport> {
    let operations = &reached.app.operations;
    let booked = match action {
        ParkedAction::List => Vec::new(),
        ParkedAction::Resolve { number, choice, reason } => {
            let booked = operations.outage.resolve_conflict(number, choice, ACTOR, &reason).await?;
            booked.iter().map(|(meter, amount)| format!("{amount} of {meter}")).collect()
        }
    };
    let conflicts = operations.outage.parked_conflicts(LIST_MAX).await?;
    Ok(ParkedReport { conflicts: conflicts.iter().map(line).collect(), booked })
}

fn line(view: &ConflictView) -> ParkedLine {
    let conflict = &view.conflict;
    let taken_at = jiff::Timestamp::from_millisecond(conflict.taken_at_ms).unwrap_or(jiff::Timestamp::MAX);
    ParkedLine {
        number: conflict.number,
        tenant: conflict.tenant.to_string(),
        reservation: conflict.reservation.to_string(),
        call: conflict.call.clone(),
        taken_at: taken_at.to_string(),
        said: amounts(&view.said),
        missing: match view.undecided {
            Some(why) => format!("not known: {why}"),
            None => amounts(&view.missing),
        },
        reason: conflict.reason.clone(),
    }
}

fn amounts(amounts: &[(MeterId, Amount)]) -> String {
    amounts.iter().map(|(meter, amount)| format!("{amount} {meter}")).collect::<Vec<_>>().join(", ")
}
