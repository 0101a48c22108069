//! Movements: what events and jobs do to the books of one meter. `A → B` credits A and debits B.
//!
//! Each line of this table is a function of its arguments; functions for jobs get the balances that they need as
//! arguments. P is the period that ends or has ended, Q the next.
//!
//! | what happens | movements | by |
//! |---|---|---|
//! | refused reserve, dry run, extend, checkpoint, repair | none | |
//! | reserve | available → reserved | [`gate::reserve`] |
//! | consume, release, expiry | reserved → consumed; available → consumed (`excess`); reserved → available | [`gate::change`] |
//! | late consume | available → consumed (`late`) | [`gate::late_consume`] |
//! | usage | available → consumed | [`gate::usage`] |
//! | any of them taken while the gate was away | the same (`degraded`) | [`gate::degraded`] |
//! | a change of a hold that was carried to Q | the same in Q (`carried`), but for what returns | [`gate::carried`] |
//! | a fact for a closed P | the same in the open period, a correction | [`gate::corrected`] |
//! | period opens, grant, recurring refill | granted → available | [`grants::grant`] |
//! | P opened ahead with more than it includes as it begins | available → granted | [`grants::take_back`] |
//! | grant expires | available → lapsed | [`grants::expire`] |
//! | grant voided | available → voided | [`grants::void`] |
//! | use before its end taken back | the same, by what had not burnt after all | [`grants::expire`], [`grants::void`] |
//! | plan raised, lowered | granted → available; available → voided | [`grants::change_included`] |
//! | close, open holds | P: reserved → available, reserved → carried_out; Q: available → reserved, carried_in → reserved | [`close::carry_holds`] |
//! | close, unused | P: available → rolled_out, available → lapsed; Q: rolled_in → available, granted → available | [`close::go_on`] |
//! | close, nothing rolls over and no hold is open | P: available → lapsed; overage → available | [`close::settle`] |
//! | close, negative available | P: overage → available | [`close::settle_overage`] |
//! | … preserved | Q: available → repaid | [`close::repay_overage`] |
//! | carried hold returned | Q: reserved → available, reserved → lapsed | [`close::return_carried`] |
//! | usage was wrong, P open | consumed → available; available → consumed | [`corrections::in_open_period`] |
//! | usage was wrong, P closed | Q: consumed → adjusted, adjusted → consumed | [`corrections::in_closed_period`] |
//! | … of a hold that was carried to Q | the same (`carried`) | [`corrections::of_carried_hold`] |
//! | a line of a statement | revenue → receivable, tax → receivable for a tax; the reverse for one below zero | [`money::statement_line`] |
//! | a line of a credit note | the same, a correction | [`money::note_line`] |
//! | money adjusted | revenue → receivable, the reverse for one below zero, a correction | [`money::adjust`] |
//! | paid grant sold | deferred → receivable | [`money::sell`] |
//! | … burnt | revenue → deferred | [`money::recognise`] |
//! | … not burnt after all | deferred → revenue | [`money::unearn`] |
//! | … lapsed | breakage → deferred | [`money::forfeit`] |
//! | … voided | receivable → deferred | [`money::refund`] |

pub mod close;
pub mod corrections;
pub mod gate;
pub mod grants;
pub mod money;

use rust_decimal::Decimal;

use super::amount::Amount;
use super::period::Window;

/// An account of a tenant's books: for one meter and period, or for a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// Source: included amounts and grants.
    Granted,
    /// Source: unused quota of the period before.
    RolledIn,
    /// Source: holds carried over from the period before.
    CarriedIn,
    /// Source: what was used beyond the quota, settled at the close.
    Overage,
    /// Source: corrections.
    Adjusted,
    /// Place: what may be reserved; its negative part is the overage so far.
    Available,
    /// Place: held by open reservations.
    Reserved,
    /// Place: used up.
    Consumed,
    /// Place: unused at expiry or close.
    Lapsed,
    /// Place: taken back.
    Voided,
    /// Place: unused quota that went to the next period.
    RolledOut,
    /// Place: open holds that went to the next period.
    CarriedOut,
    /// Place: overage of the period before, paid from this one.
    Repaid,
    /// Money: what the tenant owes.
    Receivable,
    /// Money: what was earned.
    Revenue,
    /// Money: what was sold and is not earned yet.
    Deferred,
    /// Money: what was sold and lapsed before it was used.
    Breakage,
    /// Money: taxes that are owed on.
    Tax,
}

impl Account {
    /// The accounts of money.
    pub const OF_MONEY: [Self; 5] =
        [Self::Receivable, Self::Revenue, Self::Deferred, Self::Breakage, Self::Tax];
    /// The accounts of units: sources first, then places.
    pub const OF_UNITS: [Self; 13] = [
        Self::Granted,
        Self::RolledIn,
        Self::CarriedIn,
        Self::Overage,
        Self::Adjusted,
        Self::Available,
        Self::Reserved,
        Self::Consumed,
        Self::Lapsed,
        Self::Voided,
        Self::RolledOut,
        Self::CarriedOut,
        Self::Repaid,
    ];

    /// Whether a credit raises it; a debit raises the others.
    pub fn is_source(self) -> bool {
        matches!(
            self,
            Self::Granted
                | Self::RolledIn
                | Self::CarriedIn
                | Self::Overage
                | Self::Adjusted
                | Self::Revenue
                | Self::Deferred
                | Self::Breakage
                | Self::Tax
        )
    }

    /// The place of an account of units in [`Self::OF_UNITS`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word of the books.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::RolledIn => "rolled_in",
            Self::CarriedIn => "carried_in",
            Self::Overage => "overage",
            Self::Adjusted => "adjusted",
            Self::Available => "available",
            Self::Reserved => "reserved",
            Self::Consumed => "consumed",
            Self::Lapsed => "lapsed",
            Self::Voided => "voided",
            Self::RolledOut => "rolled_out",
            Self::CarriedOut => "carried_out",
            Self::Repaid => "repaid",
            Self::Receivable => "receivable",
            Self::Revenue => "revenue",
            Self::Deferred => "deferred",
            Self::Breakage => "breakage",
            Self::Tax => "tax",
        }
    }

    /// The account with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::OF_UNITS.into_iter().chain(Self::OF_MONEY).find(|account| account.as_str() == word)
    }
}

/// The reason of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryClass {
    /// The gate did it.
    Usage,
    /// A quota's amount changed: granted, expired or taken back.
    Grant,
    /// A period closed, or a hold that it carried over returned.
    Period,
    /// A fact for a closed period, or a corrected one.
    Correction,
}

impl EntryClass {
    /// The word of the books.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Grant => "grant",
            Self::Period => "period",
            Self::Correction => "correction",
        }
    }

    /// The class with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Usage, Self::Grant, Self::Period, Self::Correction]
            .into_iter()
            .find(|class| class.as_str() == word)
    }
}

/// Remarkable facts about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryFlags {
    /// Consumed above the hold.
    pub excess: bool,
    /// Consumed after expiry.
    pub late: bool,
    /// The hold came from an earlier period.
    pub carried: bool,
    /// Of a reservation that a call changed while the gate was away.
    pub degraded: bool,
    /// Finance has corrected what was used.
    pub corrected: bool,
}

/// The amounts of a meter's accounts in one period, by [`Account::index`]: units, never money.
pub type Accounts = [Decimal; 13];

/// Units of one meter and period that leave one account and enter another.
///
/// Its amount is above zero: only the functions of the modules below make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Movement {
    pub(super) period: Window,
    pub(super) credit: Account,
    pub(super) debit: Account,
    pub(super) amount: Amount,
    pub(super) class: EntryClass,
    pub(super) flags: EntryFlags,
}

impl Movement {
    /// None where nothing moves.
    fn new(
        class: EntryClass,
        period: Window,
        credit: Account,
        debit: Account,
        amount: Amount,
    ) -> Option<Self> {
        let flags = EntryFlags::default();
        (!amount.is_zero()).then_some(Self { period, credit, debit, amount, class, flags })
    }

    /// The period whose accounts it moves.
    pub fn period(&self) -> Window {
        self.period
    }

    /// Remarkable facts about it.
    pub fn flags(&self) -> EntryFlags {
        self.flags
    }

    /// Whether a counter of the gate moved with it in this period: not if the ledger alone booked it, nor if the units
    /// were carried into the period.
    pub fn is_by_gate(&self) -> bool {
        self.class == EntryClass::Usage && !self.flags.carried
    }

    /// Whether it changes what may be reserved in its period, and no counter of the gate moved with it: the gate needs
    /// a new capacity then.
    pub fn changes_capacity(&self) -> bool {
        !self.is_by_gate() && (self.credit == Account::Available || self.debit == Account::Available)
    }

    /// How much of a carried hold it consumes.
    pub fn consumed_of_carried(&self) -> Decimal {
        let of_hold = (self.credit, self.debit) == (Account::Reserved, Account::Consumed);
        if of_hold && self.flags.carried { self.amount.decimal() } else { Decimal::ZERO }
    }

    /// Whether it corrects what was consumed in a closed period, apart from the allowance of its own.
    pub fn adjusts(&self) -> bool {
        [self.credit, self.debit].contains(&Account::Adjusted)
    }

    /// Whether it moves units, not money.
    pub fn is_of_units(&self) -> bool {
        !Account::OF_MONEY.contains(&self.credit)
    }

    /// Moves its period's accounts: a credit raises a source and lowers a place, a debit the reverse. So the sum of
    /// the sources stays equal to the sum of the places. Money moves none of them.
    pub fn apply(&self, accounts: &mut Accounts) {
        for (account, amount) in move_amount(self.credit, self.debit, self.amount.decimal()) {
            if let Some(stands) = accounts.get_mut(account.index()) {
                *stands += amount;
            }
        }
    }

    /// By how much it raises what is consumed, negative where it lowers it; none where it does neither.
    pub fn consumed(&self) -> Option<Decimal> {
        match (self.credit, self.debit) {
            (_, Account::Consumed) => Some(self.amount.decimal()),
            (Account::Consumed, _) => Some(-self.amount.decimal()),
            _ => None,
        }
    }
}

/// What an amount that is credited to one account and debited to another adds to each.
pub fn move_amount(credit: Account, debit: Account, amount: Decimal) -> [(Account, Decimal); 2] {
    let signed = |raises: bool| if raises { amount } else { -amount };
    [(credit, signed(credit.is_source())), (debit, signed(!debit.is_source()))]
}

/// The movements that move something.
fn list<const N: usize>(movements: [Option<Movement>; N]) -> Vec<Movement> {
    movements.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
