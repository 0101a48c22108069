//! Holds that the books have open long after their end and that the gate does not know: nobody else would ever end them.

use std::collections::HashSet;

use super::{Answer, Operations, Work};
use crate::domain::ids::ReservationId;

/// The sweep ends holds within seconds; what is open for so long after its end was forgotten, or waits behind a sweep that is late.
const OVERDUE_MS: i64 = 60_000;
const PAGE: usize = 500;
/// The most that one run looks at.
const LOOKED_AT_MAX: usize = 20_000;

impl Operations {
    /// Tells the gate of holds that it forgot, so that the sweep ends them. Answers how many. A partition that cannot take them now
    /// keeps the others waiting for nothing.
    ///
    /// Errors: the last one of a partition that was passed over; the holds of the others are told.
    pub async fn tell_forgotten_holds(&self) -> Answer<u64> {
        let before_ms = self.gate_now_ms().saturating_sub(OVERDUE_MS).max(0);
        let (mut told, mut looked_at, mut after) = (0, 0, None);
        let (mut stuck, mut failed) = (HashSet::new(), None);
        while looked_at < LOOKED_AT_MAX && self.gate.trusts_time() {
            let page = self.ledger.overdue_holds(before_ms, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            looked_at += page.len();
            for hold in &page {
                if stuck.contains(&hold.id.partition()) {
                    continue;
                }
                match self.tell_if_forgotten(hold.id).await {
                    Ok(was_forgotten) => told += u64::from(was_forgotten),
                    Err(error) if error.is_server_away() => {
                        stuck.insert(hold.id.partition());
                        failed = Some(error);
                    }
                    Err(error) => {
                        self.pass_over(Work::Restore, &format!("reservation {}", hold.id), &error).await;
                    }
                }
            }
        }
        failed.map_or(Ok(told), Err)
    }

    async fn tell_if_forgotten(&self, id: ReservationId) -> Answer<bool> {
        if self.gate.peek_record(id, None, self.script_now()).await?.record.is_some() {
            return Ok(false);
        }
        let Some(row) = self.ledger.reservation(id).await?.filter(|row| !row.quarantined) else {
            return Ok(false);
        };
        self.bring_back(row).await?;
        Ok(true)
    }
}
