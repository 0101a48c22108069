//! `lease`: gives an instance a share of a counter, for work that it admits while the gate does not answer.

use crate::domain::amount::Units;
use crate::domain::codec::{Undecodable, Write};
use crate::domain::counter::Counter;
use crate::domain::ids::{Partition, TenantId};
use crate::domain::reservation::SubjectHash;
use crate::domain::share::{Lease, SHARE_LASTS_MS, ShareTotals};

use super::Gate;
use super::counters::{Count, pack_counters};
use super::error::GateError;
use super::scripts::Script;
use super::status::Status;

const LIGHT: u8 = 1;
const WANTS: u8 = 2;
const CHARGES: u8 = 4;
const RECALLS: u8 = 8;

/// A renewal of a share, and the first one.
#[derive(Debug, Clone, Copy)]
pub struct LeaseCall<'a> {
    /// The tenant's partition.
    pub partition: Partition,
    /// Whose counter it is.
    pub tenant: &'a TenantId,
    /// The subject that the counter counts; none for the tenant.
    pub subject: Option<SubjectHash>,
    /// The counter.
    pub counter: &'a Counter,
    /// Whether it is a light one.
    pub is_light: bool,
    /// Who asks.
    pub instance: [u8; 8],
    /// What the share was and is.
    pub totals: ShareTotals,
    /// Whether a share is wanted; otherwise it goes back.
    pub wants: bool,
    /// Whether what was used is to be counted; otherwise something else counts it.
    pub charges: bool,
    /// Whether all instances are to give back their shares.
    pub recalls: bool,
    /// When it is renewed next, at the latest, in ms.
    pub beat_ms: i64,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// This is the share.
    Leased(Lease),
    /// The counter's window is over, or has not begun.
    StaleWindow,
    /// The ledger must restore the tenant, or the subject, first.
    Cold,
}

impl Gate {
    /// Renews a share, or gives it back. One round trip.
    pub async fn lease(&self, call: &LeaseCall<'_>) -> Result<LeaseOutcome, GateError> {
        let partition = call.partition;
        let mut keys = vec![self.keys.meta(partition)];
        match call.is_light {
            true => keys.push(self.keys.light(partition, call.tenant, None)),
            false => keys.push(self.keys.tenant(partition, call.tenant)),
        }
        keys.extend(call.subject.map(|hash| match call.is_light {
            true => self.keys.light(partition, call.tenant, Some(hash)),
            false => self.keys.subject(partition, call.tenant, hash),
        }));
        let mut arguments = self.mutating(partition, call.now_ms)?;
        arguments.push(pack_call(call));
        let reply = self.run(partition, Script::Lease, &keys, &arguments).await?;
        Ok(match reply.status {
            Status::Done => LeaseOutcome::Leased(Lease {
                mark_ms: reply.integer(0)?,
                window_ends_at_ms: reply.integer(1)?,
                granted: reply.integer(2)?,
                settled: reply.integer(3)?,
                may_keep: reply.integer(4)?,
                ends_at_ms: reply.integer(5)?,
            }),
            Status::StaleWindow => LeaseOutcome::StaleWindow,
            Status::Cold => LeaseOutcome::Cold,
            _ => return Err(Undecodable("a status of lease").into()),
        })
    }
}

/// Layout: `B flags  c8 instance  i8 mark  i8 kept  i8 used  i8 settled  i8 lasts  i8 beat`, then the counter as
/// [`pack_counters`] has it; flags = light + 2 wants + 4 charges + 8 recalls.
fn pack_call(call: &LeaseCall<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let flags =
        [(call.is_light, LIGHT), (call.wants, WANTS), (call.charges, CHARGES), (call.recalls, RECALLS)];
    out.put_byte(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
    out.extend_from_slice(&call.instance);
    let ShareTotals { mark_ms, kept, used, settled } = call.totals;
    for number in [mark_ms, kept, used, settled, SHARE_LASTS_MS, call.beat_ms] {
        out.put_8(number);
    }
    let scope_index = u8::from(call.subject.is_some());
    pack_counters(&[Count::read(call.counter).in_scope(scope_index)], &[Units::ZERO], &mut out);
    out
}
