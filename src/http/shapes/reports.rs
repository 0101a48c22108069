//! The shapes of reads: usage, entries, and comparisons of the gate with the books.

use serde::Serialize;
use utoipa::ToSchema;

use super::SubjectAnswer;
use crate::domain::amount::{Decimals, signed_amount};
use crate::domain::checkpoint::{Difference, Figures};
use crate::domain::ids::MeterId;
use crate::domain::instant::rfc3339;
use crate::domain::movements::{Account, EntryFlags};
use crate::operations::answers::{
    BalanceAsOf, ClosedPeriod, Ranked, Reconciliation, Revenue, StoredEntry, UsageFigures,
};

/// A row of usage.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct UsageRow {
    /// Start of the hour, day or month; absent without granularity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) start: Option<String>,
    /// Whose, if grouped by tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) tenant: Option<String>,
    /// The plan that the tenants were on when they used it, if grouped by plan; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) plan: Option<String>,
    /// The meter.
    pub(in crate::http) meter: String,
    /// The operation, if grouped by operation; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) operation: Option<String>,
    /// The subject, if grouped by subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) subject: Option<SubjectAnswer>,
    /// Used up.
    pub(in crate::http) consumed: String,
    /// How many operations consumed it.
    pub(in crate::http) count: i64,
    /// What of it was above holds.
    pub(in crate::http) excess: String,
    /// What of it came after expiry.
    pub(in crate::http) late: String,
    /// Corrections of closed periods.
    pub(in crate::http) corrections: String,
}

/// Who used how much of a meter.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct TopRow {
    /// From 1, the largest.
    pub(in crate::http) rank: i64,
    /// The tenant, if tenants or subjects are ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) tenant: Option<String>,
    /// The plan that the tenants were on when they used it, if plans are ranked; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) plan: Option<String>,
    /// The operation, if operations are ranked; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) operation: Option<String>,
    /// The subject, if subjects are ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) subject: Option<SubjectAnswer>,
    /// The meter.
    pub(in crate::http) meter: String,
    /// Used up. Consumers are ranked by it.
    pub(in crate::http) consumed: String,
    /// How many operations consumed it.
    pub(in crate::http) count: i64,
    /// Corrections of closed periods; not in `consumed`.
    pub(in crate::http) corrections: String,
}

/// A closed period of a tenant's meter. Unless something was booked in it after its close, what was granted, rolled in,
/// carried in, overage and adjusted is in sum what was consumed, lapsed, voided, rolled out, carried out and repaid.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct RolloverRow {
    /// Whose.
    pub(in crate::http) tenant: String,
    /// The meter.
    pub(in crate::http) meter: String,
    /// The period, from this instant.
    pub(in crate::http) period_start: String,
    /// To this instant, exclusive.
    pub(in crate::http) period_end: String,
    /// From when on it counts as closed.
    pub(in crate::http) closed_at: String,
    /// What was granted, the included amount among it.
    pub(in crate::http) granted: String,
    /// Rolled in from the period before.
    pub(in crate::http) rolled_in: String,
    /// Of holds that the period before left open.
    pub(in crate::http) carried_in: String,
    /// Used beyond the allowance.
    pub(in crate::http) overage: String,
    /// Corrections of earlier periods.
    pub(in crate::http) adjusted: String,
    /// Used up.
    pub(in crate::http) consumed: String,
    /// Unused and gone.
    pub(in crate::http) lapsed: String,
    /// Of grants that were taken back.
    pub(in crate::http) voided: String,
    /// Unused and rolled into the next period.
    pub(in crate::http) rolled_out: String,
    /// Of holds that were still open, carried into the next period.
    pub(in crate::http) carried_out: String,
    /// Overage of the period before, taken from this one.
    pub(in crate::http) repaid: String,
}

/// What stood in the accounts of a tenant's meter in one period, or of its money in one currency, over all periods. Of
/// a meter what was granted, rolled in, carried in, overage and adjusted is in sum the other accounts; of money what is
/// receivable is the sum of the others.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct BalanceRow {
    /// Whose.
    pub(in crate::http) tenant: String,
    /// The meter; `money:` and the currency for money.
    #[schema(example = "money:EUR")]
    pub(in crate::http) meter: String,
    /// The period, from this instant; absent for money, as are the accounts of units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) period_start: Option<String>,
    /// To this instant, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) period_end: Option<String>,
    /// What was granted, the included amount among it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) granted: Option<String>,
    /// Rolled in from the period before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) rolled_in: Option<String>,
    /// Of holds that the period before left open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) carried_in: Option<String>,
    /// Used beyond the quota, settled at the close.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) overage: Option<String>,
    /// Corrections of closed periods, below zero where less was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) adjusted: Option<String>,
    /// May be reserved; below zero it is the overage so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) available: Option<String>,
    /// Held by open reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) reserved: Option<String>,
    /// Used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) consumed: Option<String>,
    /// Unused and gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) lapsed: Option<String>,
    /// Of grants that were taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) voided: Option<String>,
    /// Unused and rolled into the next period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) rolled_out: Option<String>,
    /// Of holds that were still open, carried into the next period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) carried_out: Option<String>,
    /// Overage of the period before, taken from this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) repaid: Option<String>,
    /// What the tenant owes by all that was billed, corrected and sold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) receivable: Option<String>,
    /// What of it is earned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) revenue: Option<String>,
    /// What of it was sold in grants and is not earned yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) deferred: Option<String>,
    /// What of it was forfeited of sold grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) breakage: Option<String>,
    /// What of it are taxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) tax: Option<String>,
}

/// What issued statements and credit notes say is owed, by currency and the groups asked for.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct RevenueRow {
    /// The day on which the billing period starts in whose bill it is, in the tenant's zone, if grouped by period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) period: Option<String>,
    /// Who pays, if grouped by tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) tenant: Option<String>,
    /// The plan at the end of the period, if grouped by plan; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) plan: Option<String>,
    /// The meter, if grouped by meter; absent where a line is about no meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) meter: Option<String>,
    /// The currency of the amounts.
    pub(in crate::http) currency: &'static str,
    /// By statements.
    pub(in crate::http) billed: String,
    /// By credit notes, below zero where it is owed back.
    pub(in crate::http) corrected: String,
    /// What of both is earned: `billed` and `corrected` less `deferred` and `breakage`.
    pub(in crate::http) revenue: String,
    /// How many statements and credit notes have lines in it.
    pub(in crate::http) documents: i64,
    /// What was sold in grants less what of such was earned, forfeited or given back: below zero where that is more.
    pub(in crate::http) deferred: String,
    /// What was forfeited of sold grants that lapsed before they were used.
    pub(in crate::http) breakage: String,
}

/// A comparison of the gate with the ledger.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct ReconciliationRow {
    /// The checkpoint that was compared.
    pub(in crate::http) id: String,
    /// Whose counters.
    pub(in crate::http) tenant: String,
    /// When the checkpoint was taken (gate time).
    pub(in crate::http) taken_at: String,
    /// When the ledger compared them.
    pub(in crate::http) judged_at: String,
    /// `clean`, `drift` (waits for repair), `repaired` or `refused` (not decided, or not to be repaired: see `detail`).
    pub(in crate::http) state: String,
    /// How many counters were compared.
    pub(in crate::http) counters: i64,
    /// Those that differ.
    pub(in crate::http) differences: Vec<DifferenceAnswer>,
    /// Events of the tenant in quarantine then: they may explain a difference.
    pub(in crate::http) quarantined: i64,
    /// Calls of the tenant that were accepted while the gate was away and waited for it then.
    pub(in crate::http) parked: i64,
    /// Gaps in the tenant's outbox in that epoch: lost events may explain a difference.
    pub(in crate::http) gaps: i64,
    /// Further facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) detail: Option<String>,
}

/// A counter that differs between gate and ledger.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct DifferenceAnswer {
    /// The limit, or `quota:` and the meter.
    pub(in crate::http) limit: String,
    /// Whose use it counts, if it is one subject's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) subject: Option<SubjectAnswer>,
    /// The meter; of a budget, the first of its meters.
    pub(in crate::http) meter: String,
    /// Start of its window.
    pub(in crate::http) window_start: String,
    /// End of its window.
    pub(in crate::http) window_end: String,
    /// What the gate counted.
    pub(in crate::http) gate: FiguresAnswer,
    /// What the books said as of the same event.
    pub(in crate::http) ledger: FiguresAnswer,
}

/// Two figures of a counter.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct FiguresAnswer {
    /// Used up.
    pub(in crate::http) consumed: String,
    /// Held.
    pub(in crate::http) reserved: String,
}

/// An entry of the books.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct EntryRow {
    /// Whose.
    pub(in crate::http) tenant: String,
    /// The reservation or other operation that made it.
    pub(in crate::http) operation_id: String,
    /// The ordinal of that operation's change.
    pub(in crate::http) step: i64,
    /// The meter.
    pub(in crate::http) meter: String,
    /// Start of the period it belongs to.
    pub(in crate::http) period_start: String,
    /// The account credited.
    pub(in crate::http) credit: String,
    /// The account debited.
    pub(in crate::http) debit: String,
    /// How much moved.
    pub(in crate::http) amount: String,
    /// `usage`, `grant`, `period` or `correction`.
    pub(in crate::http) class: String,
    /// `excess`, `late`, `carried`, `degraded`, `corrected`.
    pub(in crate::http) flags: Vec<String>,
    /// When it happened.
    pub(in crate::http) happened_at: String,
    /// When it was booked.
    pub(in crate::http) booked_at: String,
    /// The operation that it was done for, if one was named. Whom it was done for is in the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) operation: Option<String>,
    /// The hash chain that it is in, as `books` of statements names it.
    pub(in crate::http) chain: i16,
    /// Its batch in the chain.
    pub(in crate::http) batch: u64,
}

impl From<UsageFigures> for UsageRow {
    fn from(row: UsageFigures) -> Self {
        Self {
            start: row.start_ms.map(rfc3339),
            tenant: row.tenant.map(|tenant| tenant.to_string()),
            plan: row.plan,
            meter: row.meter.to_string(),
            operation: row.operation,
            subject: row.subject.as_ref().map(SubjectAnswer::from),
            consumed: row.consumed.normalize().to_string(),
            count: number(row.count),
            excess: row.excess.normalize().to_string(),
            late: row.late.normalize().to_string(),
            corrections: row.corrections.normalize().to_string(),
        }
    }
}

impl TopRow {
    /// A rank among the consumers of this meter.
    pub(in crate::http) fn of(meter: &MeterId, row: &Ranked) -> Self {
        Self {
            rank: number(row.rank),
            tenant: row.tenant.as_ref().map(ToString::to_string),
            plan: row.plan.clone(),
            operation: row.operation.clone(),
            subject: row.subject.as_ref().map(SubjectAnswer::from),
            meter: meter.to_string(),
            consumed: row.consumed.normalize().to_string(),
            count: number(row.count),
            corrections: row.corrections.normalize().to_string(),
        }
    }
}

impl From<ClosedPeriod> for RolloverRow {
    fn from(closed: ClosedPeriod) -> Self {
        let balance = &closed.balance;
        let of = |account| balance.of(account).normalize().to_string();
        Self {
            tenant: closed.tenant.to_string(),
            meter: balance.meter.to_string(),
            period_start: rfc3339(balance.period_ms.0),
            period_end: rfc3339(balance.period_ms.1),
            closed_at: rfc3339(closed.closed_at_ms),
            granted: of(Account::Granted),
            rolled_in: of(Account::RolledIn),
            carried_in: of(Account::CarriedIn),
            overage: of(Account::Overage),
            adjusted: of(Account::Adjusted),
            consumed: of(Account::Consumed),
            lapsed: of(Account::Lapsed),
            voided: of(Account::Voided),
            rolled_out: of(Account::RolledOut),
            carried_out: of(Account::CarriedOut),
            repaid: of(Account::Repaid),
        }
    }
}

impl From<BalanceAsOf> for BalanceRow {
    fn from(balance: BalanceAsOf) -> Self {
        let of = |account: Account| balance.accounts.get(&account).map(ToString::to_string);
        Self {
            tenant: balance.tenant.to_string(),
            meter: balance.meter.to_string(),
            period_start: balance.period_ms.map(|(start_ms, _)| rfc3339(start_ms)),
            period_end: balance.period_ms.map(|(_, end_ms)| rfc3339(end_ms)),
            granted: of(Account::Granted),
            rolled_in: of(Account::RolledIn),
            carried_in: of(Account::CarriedIn),
            overage: of(Account::Overage),
            adjusted: of(Account::Adjusted),
            available: of(Account::Available),
            reserved: of(Account::Reserved),
            consumed: of(Account::Consumed),
            lapsed: of(Account::Lapsed),
            voided: of(Account::Voided),
            rolled_out: of(Account::RolledOut),
            carried_out: of(Account::CarriedOut),
            repaid: of(Account::Repaid),
            receivable: of(Account::Receivable),
            revenue: of(Account::Revenue),
            deferred: of(Account::Deferred),
            breakage: of(Account::Breakage),
            tax: of(Account::Tax),
        }
    }
}

impl From<Revenue> for RevenueRow {
    fn from(row: Revenue) -> Self {
        Self {
            period: row.period,
            tenant: row.tenant.map(|tenant| tenant.to_string()),
            plan: row.plan,
            meter: row.meter.map(|meter| meter.to_string()),
            currency: row.currency.code(),
            billed: row.billed.to_string(),
            corrected: row.corrected.to_string(),
            revenue: row.revenue.to_string(),
            documents: number(row.documents),
            deferred: row.deferred.to_string(),
            breakage: row.breakage.to_string(),
        }
    }
}

impl From<StoredEntry> for EntryRow {
    fn from(stored: StoredEntry) -> Self {
        let entry = &stored.entry;
        Self {
            tenant: entry.tenant.to_string(),
            operation_id: entry.operation_id.to_string(),
            step: entry.step.into(),
            meter: entry.meter.to_string(),
            period_start: rfc3339(entry.period_start_ms),
            credit: entry.credit.as_str().into(),
            debit: entry.debit.as_str().into(),
            amount: entry.amount.to_string(),
            class: entry.class.as_str().into(),
            flags: flag_words(entry.flags),
            happened_at: rfc3339(entry.happened_at_ms),
            booked_at: rfc3339(stored.booked_at_ms),
            operation: Some(entry.operation.clone()).filter(|operation| !operation.is_empty()),
            chain: stored.batch.0,
            batch: stored.batch.1,
        }
    }
}

fn flag_words(flags: EntryFlags) -> Vec<String> {
    let words = [
        (flags.excess, "excess"),
        (flags.late, "late"),
        (flags.carried, "carried"),
        (flags.degraded, "degraded"),
        (flags.corrected, "corrected"),
    ];
    words.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()).collect()
}

impl From<Reconciliation> for ReconciliationRow {
    fn from(judged: Reconciliation) -> Self {
        Self {
            id: judged.checkpoint.to_string(),
            tenant: judged.tenant.to_string(),
            taken_at: rfc3339(judged.taken_at_ms),
            judged_at: rfc3339(judged.judged_at_us.div_euclid(1000)),
            state: judged.state.as_str().into(),
            counters: number(judged.counters),
            differences: judged.differences.iter().map(difference).collect(),
            quarantined: number(judged.quarantined),
            parked: number(judged.parked),
            gaps: number(judged.gaps),
            detail: Some(judged.detail).filter(|detail| !detail.is_empty()),
        }
    }
}

fn difference(found: &Difference) -> DifferenceAnswer {
    let counter = &found.counter;
    DifferenceAnswer {
        limit: counter.name.clone(),
        subject: counter.subject.as_ref().map(SubjectAnswer::from),
        meter: counter.meter.to_string(),
        window_start: rfc3339(counter.window_ms.0),
        window_end: rfc3339(counter.window_ms.1),
        gate: figures(found.gate, counter.decimals),
        ledger: figures(found.books, counter.decimals),
    }
}

fn figures(figures: Figures, decimals: Decimals) -> FiguresAnswer {
    let write = |units| signed_amount(units, decimals);
    FiguresAnswer { consumed: write(figures.consumed), reserved: write(figures.reserved) }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
