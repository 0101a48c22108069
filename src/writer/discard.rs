//! Discards an event in quarantine, and says which work of its reservation stays unbilled.

use crate::domain::amount::Units;
use crate::domain::event::{Change, Event};
use crate::domain::ids::{OutboxId, Partition};
use crate::domain::reservation::{LineRule, LineUnits};
use crate::ledger::{Ledger, LedgerError, Quarantined};

/// Discards the open event at this place, and returns in words what stays unbilled. The audit log gets both.
///
/// Errors: [`crate::ledger::Conflict::Missing`] when no such event waits.
pub async fn discard(
    ledger: &Ledger,
    partition: Partition,
    id: OutboxId,
    actor: &str,
    reason: &str,
) -> Result<String, LedgerError> {
    let unbilled = unbilled(ledger, partition, id).await?;
    ledger.discard_quarantined(partition, id, actor, reason, &unbilled).await?;
    Ok(unbilled)
}

/// What stays unbilled if the open event at this place is discarded, in words.
///
/// Errors: [`crate::ledger::Conflict::Missing`] when no such event waits.
pub async fn unbilled(ledger: &Ledger, partition: Partition, id: OutboxId) -> Result<String, LedgerError> {
    let waiting = ledger.quarantined_at(partition, id).await?;
    let booked = match waiting.reservation {
        Some(reservation) => ledger.reservation(reservation).await?.map(|row| row.record),
        None => None,
    };
    let Ok(event) = Event::decode(id, &waiting.event) else {
        return Ok(format!("what {} consumed cannot be read", named(&waiting)));
    };
    let begun = match &event.change {
        Change::Reserve(record) | Change::Usage(record) => Some(record),
        _ => None,
    };
    let Some(rules) = begun.or(booked.as_ref()).map(|record| record.body.lines.as_slice()) else {
        return Ok(format!(
            "{} is not in the books, so what it consumed is not known by meter",
            named(&waiting)
        ));
    };
    if matches!(event.change, Change::Reserve(_)) && booked.is_none() {
        return Ok(format!("{} is then never booked, nor anything that follows it", named(&waiting)));
    }
    let corrects = begun.is_some_and(|record| record.head.correction.is_some());
    let before: &[LineUnits] = booked.as_ref().map_or(&[], |record| record.units.as_slice());
    let lines = lines(rules, event.units(), before);
    Ok(match lines.is_empty() {
        true => format!("nothing of {} stays unbilled", named(&waiting)),
        false if corrects => {
            format!(
                "{} of {} are not corrected, and the adjustment is declined",
                lines.join(", "),
                named(&waiting)
            )
        }
        false => format!(
            "{} of {} stay unbilled, unless a later event says as much",
            lines.join(", "),
            named(&waiting)
        ),
    })
}

fn named(waiting: &Quarantined) -> String {
    waiting.reservation.map_or_else(|| "the event".to_owned(), |id| format!("reservation {id}"))
}

/// Per line what is consumed beyond what is booked.
fn lines(rules: &[LineRule], now: &[LineUnits], before: &[LineUnits]) -> Vec<String> {
    let lines = rules.iter().zip(now).enumerate().filter_map(|(line, (rule, now))| {
        let booked = before.get(line).map_or(Units::ZERO, |units| units.consumed);
        let rest = now.consumed.saturating_sub(booked);
        (rule.booked && rest > Units::ZERO)
            .then(|| format!("{} {}", rest.to_amount(rule.decimals), rule.meter))
    });
    lines.collect()
}
