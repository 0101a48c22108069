//! An instance's share of a counter: what it may admit of it by itself while the gate does not answer.
//!
//! The gate holds the share in the counter, so no other work has it. Amounts are totals of the counter's window: what
//! the gate has granted since it began, what was used of that, and how much of the use the gate knows. So a call whose
//! answer is lost can be repeated, and an instance never counts on more than the gate holds: it lowers its own figure
//! first and reports it then, and raises it only once it has the answer. A share whose use nothing but its own reports
//! counts is held after its end too, until its instance has reported it: it may have been used.

use super::ids::Epoch;

/// For how long a share is good that is not renewed, in ms. Others may have it then, unless its instance is to say yet
/// how much it used.
pub const SHARE_LASTS_MS: i64 = 60_000;
/// By how much earlier its instance gives it up, in ms: more than the clocks of two servers that are trusted differ.
const GIVEN_UP_BEFORE_MS: i64 = 5_000;

/// A share as its instance knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    epoch: Epoch,
    /// The counter's window that it is of.
    mark_ms: i64,
    window_ends_at_ms: i64,
    granted: i64,
    used: i64,
    /// How much of that is of calls that are not parked yet.
    unparked: i64,
    /// How much of that was reported to the gate, which may know it.
    told: i64,
    /// How much of that it has said that it knows.
    settled: i64,
    ends_at_ms: i64,
}

/// What the gate says of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The mark of the counter's window.
    pub mark_ms: i64,
    /// When that ends (unix ms).
    pub window_ends_at_ms: i64,
    /// What was granted in it so far, and is held as far as it is not settled.
    pub granted: i64,
    /// How much of what was used the gate knows.
    pub settled: i64,
    /// To how much of what was granted the instance should come down.
    pub may_keep: i64,
    /// When the gate gives up holding it (unix ms).
    pub ends_at_ms: i64,
}

/// What an instance says of its share to the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareTotals {
    /// The mark of the window that all this is of.
    pub mark_ms: i64,
    /// How much of what was granted it counts on.
    pub kept: i64,
    /// How much was used.
    pub used: i64,
    /// How much of that the gate knows.
    pub settled: i64,
}

impl Share {
    /// How much it has left for work in the window around `now_ms`; the gate is in this epoch. `began_ms` is when the
    /// work's window began, where a calendar says so, and `capacity` the counter's now: it may have been lowered.
    pub fn left(&self, epoch: Option<Epoch>, began_ms: Option<i64>, capacity: i64, now_ms: i64) -> i64 {
        let is_current = epoch == Some(self.epoch)
            && began_ms.is_none_or(|began_ms| began_ms == self.mark_ms)
            && now_ms < self.window_ends_at_ms
            && !self.is_given_up(now_ms);
        if is_current { (self.granted.min(capacity) - self.used).max(0) } else { 0 }
    }

    /// Uses so much of what is left. Returns the window of which it is used.
    pub fn take(&mut self, units: i64) -> i64 {
        self.used = self.used.saturating_add(units);
        self.mark_ms
    }

    /// Notes that so much was used by a call that is to be parked: what is parked is counted later, so it is not
    /// reported before.
    pub fn await_parking(&mut self, units: i64) {
        self.unparked = self.unparked.saturating_add(units);
    }

    /// Notes that such a call is parked, or has failed.
    pub fn parked(&mut self, units: i64, mark_ms: i64) {
        if self.mark_ms == mark_ms {
            self.unparked = (self.unparked - units).max(0);
        }
    }

    /// Puts back what came to nothing, unless the gate may know it as used.
    pub fn put_back(&mut self, units: i64, mark_ms: i64) {
        if self.mark_ms == mark_ms && self.used - units >= self.told {
            self.used -= units;
        }
    }

    /// Gives up what is left. Returns whether there was any.
    pub fn give_up(&mut self) -> bool {
        let had_some = self.granted > self.used;
        self.granted = self.granted.min(self.used);
        had_some
    }

    /// What is reported to the gate at `now_ms`. What was used is, once nothing else will count it: `settles`.
    pub fn totals(&mut self, settles: bool, now_ms: i64) -> ShareTotals {
        if self.is_given_up(now_ms) {
            self.give_up();
        }
        if settles {
            self.told = self.told.max(self.used - self.unparked);
        }
        ShareTotals { mark_ms: self.mark_ms, kept: self.granted, used: self.told, settled: self.settled }
    }

    /// Takes what the gate has said in this epoch.
    pub fn renew(&mut self, epoch: Epoch, lease: Lease) {
        let is_same = (self.epoch, self.mark_ms) == (epoch, lease.mark_ms);
        let (used, unparked, told) =
            if is_same { (self.used, self.unparked, self.told) } else { (lease.settled, 0, lease.settled) };
        *self = Self {
            epoch,
            mark_ms: lease.mark_ms,
            window_ends_at_ms: lease.window_ends_at_ms,
            granted: lease.may_keep.min(lease.granted).max(used),
            used,
            unparked,
            told,
            settled: lease.settled,
            ends_at_ms: lease.ends_at_ms,
        };
    }

    /// Whether some of it was used that was not reported to the gate.
    pub fn is_used(&self) -> bool {
        self.used > self.told
    }

    /// Whether nothing of it is left, or was used that the gate does not know.
    pub fn is_done(&self) -> bool {
        self.granted <= self.used && self.used <= self.settled
    }

    fn is_given_up(&self, now_ms: i64) -> bool {
        now_ms >= self.ends_at_ms - GIVEN_UP_BEFORE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease {
        mark_ms: 0,
        window_ends_at_ms: 1_000_000,
        granted: 10,
        settled: 0,
        may_keep: 10,
        ends_at_ms: SHARE_LASTS_MS,
    };

    fn shared() -> Share {
        let mut share = Share::default();
        share.renew(Epoch(1), LEASE);
        share
    }

    #[test]
    fn a_share_is_of_one_window_and_one_memory_of_the_gate_and_is_given_up_before_its_end() {
        let share = shared();
        let end_ms = SHARE_LASTS_MS - GIVEN_UP_BEFORE_MS;
        assert_eq!(share.left(Some(Epoch(1)), None, 100, end_ms - 1), 10);
        assert_eq!(share.left(Some(Epoch(1)), Some(0), 100, end_ms - 1), 10);
        for (epoch, began_ms, now_ms) in [
            (Some(Epoch(2)), None, 0),
            (None, None, 0),
            (Some(Epoch(1)), Some(1), 0),
            (Some(Epoch(1)), None, end_ms),
            (Some(Epoch(1)), None, 1_000_000),
        ] {
            assert_eq!(share.left(epoch, began_ms, 100, now_ms), 0, "{epoch:?} {began_ms:?} {now_ms}");
        }
        assert_eq!(Share::default().left(None, None, 100, 0), 0);
    }

    #[test]
    fn a_capacity_that_was_lowered_holds_for_a_share_too() {
        let mut share = shared();
        share.take(3);
        for (capacity, left) in [(100, 7), (10, 7), (5, 2), (3, 0), (0, 0)] {
            assert_eq!(share.left(Some(Epoch(1)), None, capacity, 0), left, "{capacity}");
        }
    }

    #[test]
    fn what_a_call_used_that_is_not_parked_yet_is_held_and_not_told() {
        let mut share = shared();
        share.take(2);
        let mark_ms = share.take(3);
        share.await_parking(3);
        let told = |share: &mut Share| share.totals(true, 0).used;
        assert_eq!((told(&mut share), share.is_used()), (2, true));
        share.parked(3, mark_ms + 1);
        assert_eq!(told(&mut share), 2, "of another window");
        share.renew(Epoch(1), LEASE);
        assert_eq!(told(&mut share), 2);
        share.parked(3, mark_ms);
        assert_eq!(told(&mut share), 5);
        share.take(4);
        share.await_parking(4);
        share.put_back(4, mark_ms);
        assert_eq!((told(&mut share), share.left(Some(Epoch(1)), None, 100, 0)), (5, 5));
        share.parked(4, mark_ms);
        assert_eq!((told(&mut share), share.is_used()), (5, false));
    }

    #[test]
    fn it_counts_on_less_before_it_says_so_and_on_more_once_it_is_told() {
        let mut share = shared();
        share.take(4);
        assert_eq!(share.totals(true, 0), ShareTotals { mark_ms: 0, kept: 10, used: 4, settled: 0 });
        let left = |share: &Share| share.left(Some(Epoch(1)), None, 100, 0);
        share.renew(Epoch(1), Lease { granted: 10, settled: 4, may_keep: 6, ..LEASE });
        assert_eq!(left(&share), 2);
        assert_eq!(share.totals(true, 0), ShareTotals { mark_ms: 0, kept: 6, used: 4, settled: 4 });
        share.renew(Epoch(1), Lease { granted: 12, settled: 4, may_keep: 12, ..LEASE });
        assert_eq!(left(&share), 8);
        share.take(8);
        share.renew(Epoch(1), Lease { granted: 12, settled: 4, may_keep: 5, ..LEASE });
        assert_eq!((left(&share), share.totals(false, 0).kept), (0, 12), "what is used stays granted");
    }

    #[test]
    fn what_was_told_as_used_is_not_put_back_and_another_window_begins_anew() {
        let mut share = shared();
        let mark_ms = share.take(3);
        share.put_back(3, mark_ms);
        assert_eq!(share.left(Some(Epoch(1)), None, 100, 0), 10);
        share.take(3);
        share.totals(true, 0);
        share.put_back(3, mark_ms);
        assert_eq!(share.left(Some(Epoch(1)), None, 100, 0), 7);
        share.renew(Epoch(1), Lease { mark_ms: 1, granted: 5, may_keep: 5, ..LEASE });
        share.put_back(3, mark_ms);
        assert_eq!(share.left(Some(Epoch(1)), None, 100, 0), 5);
    }

    #[test]
    fn a_share_that_is_over_is_not_kept_and_is_done_once_its_use_is_settled() {
        let mut share = shared();
        share.take(2);
        assert_eq!(share.totals(false, SHARE_LASTS_MS).kept, 2);
        assert!(!share.is_done());
        share.totals(true, SHARE_LASTS_MS);
        share.renew(Epoch(1), Lease { granted: 2, settled: 2, may_keep: 2, ..LEASE });
        assert!(share.is_done() && !share.give_up());
    }
}
