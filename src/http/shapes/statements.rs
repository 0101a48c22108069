//! The shapes of statements and credit notes: what a period costs, line by line.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use super::quota::PeriodAnswer;
use crate::domain::instant::rfc3339;
use crate::domain::money::{Currency, Money};
use crate::domain::period::Window;
use crate::domain::rating::{Line, LineKey, NoteLine, TierPart, UsageLine};
use crate::domain::statement::BookHead;
use crate::operations::answers::{ListedStatement, StatementDetails, StatementLine};

/// The units of a line that one tier prices.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct TierAnswer {
    /// The tier's last unit; absent where it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) up_to: Option<String>,
    /// How many units.
    pub(in crate::http) quantity: String,
    /// What one costs.
    pub(in crate::http) unit: String,
    /// What they cost, not rounded.
    pub(in crate::http) amount: String,
}

/// A line of a statement.
#[derive(Debug, Clone, Default, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct StatementLineAnswer {
    /// `usage`, `discount`, `minimum_commitment`, `grant`, `adjustment` or `tax`.
    pub(in crate::http) kind: &'static str,
    /// Usage, grants and adjustments: of which meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) meter: Option<String>,
    /// Usage: which of the meter's prices, where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) price: Option<String>,
    /// Usage: since which day this version of the price holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) effective_from: Option<String>,
    /// Usage: how units became money: `per_unit`, `package`, `graduated`, `volume` or `flat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) model: Option<&'static str>,
    /// Usage: which units, `consumed` or `overage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) charge_on: Option<&'static str>,
    /// Usage and grants: how many units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) quantity: Option<String>,
    /// Usage: how many units the price has free of charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) included: Option<String>,
    /// Usage: the units that are not free of charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) charged: Option<String>,
    /// Usage and grants: what a unit costs, or a package of them, where all cost the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) unit: Option<String>,
    /// Usage: how many units are in a package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) package_size: Option<String>,
    /// Usage: how many packages were begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) packages: Option<String>,
    /// Usage: what fell into which tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) tiers: Vec<TierAnswer>,
    /// Usage: the price's minimum, where the line was raised to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) minimum: Option<String>,
    /// Discounts, grants, adjustments and taxes: which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) id: Option<String>,
    /// Discounts and taxes: the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) percent: Option<String>,
    /// Discounts and taxes: what it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) base: Option<String>,
    /// Minimum commitment: the commitment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) commitment: Option<String>,
    /// Adjustments: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) reason: Option<String>,
    /// Adjustments: when it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) happened_at: Option<String>,
    /// Adjustments: the id of the operation that is corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = Uuid)]
    pub(in crate::http) corrects_operation: Option<String>,
    /// A credit note's: what was billed for it so far, by the statement and earlier notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) billed: Option<String>,
    /// A credit note's: what is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) corrected: Option<String>,
    /// What it costs, with all decimals of the currency; a credit note's: the difference.
    pub(in crate::http) amount: String,
}

/// A credit note that was issued with a statement.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct IssuedNote {
    /// Its number among the tenant's.
    pub(in crate::http) number: u64,
    /// The number of the statement that it corrects.
    pub(in crate::http) corrects: Option<u64>,
    /// Its total, below zero where it is owed back.
    pub(in crate::http) total: String,
}

impl From<&ListedStatement> for IssuedNote {
    fn from(note: &ListedStatement) -> Self {
        Self { number: note.number, corrects: note.corrects, total: note.total.to_string() }
    }
}

/// What a period costs in one currency.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct TotalAnswer {
    /// The currency.
    pub(in crate::http) currency: &'static str,
    /// The sum of its lines.
    pub(in crate::http) total: String,
}

/// The answer to `GET /v1/tenants/{t}/statements/draft` and `GET /v1/tenants/{t}/statements/{number}`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct StatementAnswer {
    /// Who pays.
    pub(in crate::http) tenant: String,
    /// `draft`: it changes with what is booked, until the period is closed. `issued`: it never changes.
    pub(in crate::http) status: &'static str,
    /// `statement` or `credit_note`.
    pub(in crate::http) document: &'static str,
    /// Issued: its number among the tenant's, from 1 without gaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) number: Option<u64>,
    /// Credit notes: the number of the statement that it corrects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) corrects: Option<u64>,
    /// Credit notes: the billing period with whose statement it was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) billed_in: Option<PeriodAnswer>,
    /// Issued statements: the credit notes to earlier ones that were issued with it, in its currency.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) credit_notes: Vec<IssuedNote>,
    /// The tenant's plan.
    pub(in crate::http) plan: Option<String>,
    /// Drafts: the version of the policy whose prices these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) policy_version: Option<u64>,
    /// The billing period.
    pub(in crate::http) period: PeriodAnswer,
    /// The currency of all amounts; null where nothing has a price.
    pub(in crate::http) currency: Option<&'static str>,
    /// The lines.
    pub(in crate::http) lines: Vec<StatementLineAnswer>,
    /// The meters that were used and have prices, of which none holds for this period: their use is in no line.
    pub(in crate::http) unpriced: Vec<String>,
    /// The sum of the lines.
    pub(in crate::http) total: String,
    /// Drafts: what the period costs in each other currency, in which grants were sold or money adjusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) other_totals: Vec<TotalAnswer>,
    /// Drafts: when the books were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) as_of: Option<String>,
    /// Drafts: the last event of the tenant's outbox that was booked then: epoch and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) as_of_event: Option<String>,
    /// Issued: from when on it holds, the end of a period and its grace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) issued_at: Option<String>,
    /// Issued: the hash of it and of all the tenant's statements before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) hash: Option<String>,
    /// Issued: the last batches of the books as it was written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) books: Vec<BookHeadAnswer>,
}

/// The last batch of a chain of the books.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct BookHeadAnswer {
    /// The number of the chain.
    pub(in crate::http) chain: i16,
    /// The batch's number in the chain.
    pub(in crate::http) number: u64,
    /// Its hash, which covers every batch before it.
    pub(in crate::http) hash: String,
}

impl From<&BookHead> for BookHeadAnswer {
    fn from(head: &BookHead) -> Self {
        Self { chain: head.chain, number: head.number, hash: head.hash.clone() }
    }
}

/// As people read it.
impl fmt::Display for BookHeadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain {}, batch {}: {}", self.chain, self.number, self.hash)
    }
}

/// An issued statement or credit note, as lists show it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct StatementRow {
    /// Its number among the tenant's, from 1 without gaps.
    number: u64,
    /// `statement` or `credit_note`.
    document: &'static str,
    /// Credit notes: the number of the statement that it corrects.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrects: Option<u64>,
    /// The start of its billing period.
    period_start: String,
    /// The end of its billing period.
    period_end: String,
    /// The currency of its total.
    currency: &'static str,
    /// Its total, below zero where it is owed back.
    total: String,
    /// From when on it holds.
    issued_at: String,
    /// The hash of it and of all the tenant's statements before.
    hash: String,
}

impl From<ListedStatement> for StatementRow {
    fn from(listed: ListedStatement) -> Self {
        Self {
            number: listed.number,
            document: document(listed.corrects.is_some()),
            corrects: listed.corrects,
            period_start: rfc3339(listed.period.start_ms),
            period_end: rfc3339(listed.period.end_ms),
            total: listed.total.to_string(),
            currency: listed.currency.code(),
            issued_at: rfc3339(listed.issued_at_ms),
            hash: hex(&listed.hash),
        }
    }
}

/// The word for a statement, or for a note that corrects one.
fn document(is_note: bool) -> &'static str {
    if is_note { "credit_note" } else { "statement" }
}

fn other_total((currency, total): &(Currency, Money)) -> TotalAnswer {
    TotalAnswer { currency: currency.code(), total: total.to_string() }
}

fn hex(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

impl From<&TierPart> for TierAnswer {
    fn from(part: &TierPart) -> Self {
        Self {
            up_to: part.up_to.map(|up_to| up_to.to_string()),
            quantity: part.quantity.to_string(),
            unit: part.unit.to_string(),
            amount: part.amount.clone(),
        }
    }
}

impl From<&UsageLine> for StatementLineAnswer {
    fn from(line: &UsageLine) -> Self {
        Self {
            kind: "usage",
            meter: Some(line.meter.to_string()),
            price: line.price.as_ref().map(ToString::to_string),
            effective_from: Some(line.effective_from.to_string()),
            model: Some(line.model.as_str()),
            charge_on: Some(line.charge_on.as_str()),
            quantity: Some(line.quantity.to_string()),
            included: Some(line.included.to_string()),
            charged: Some(line.charged.to_string()),
            unit: line.unit.map(|unit| unit.to_string()),
            package_size: line.package_size.map(|size| size.to_string()),
            packages: line.packages.map(|packages| packages.to_string()),
            tiers: line.tiers.iter().map(TierAnswer::from).collect(),
            minimum: line.minimum.map(|minimum| minimum.to_string()),
            amount: line.amount.to_string(),
            ..Self::default()
        }
    }
}

impl From<&Line> for StatementLineAnswer {
    fn from(line: &Line) -> Self {
        let amount = line.amount().to_string();
        match line {
            Line::Usage(usage) => usage.into(),
            Line::Discount { id, percent, base, .. } => Self {
                kind: "discount",
                id: Some(id.to_string()),
                percent: percent.map(|percent| percent.to_string()),
                base: Some(base.to_string()),
                amount,
                ..Self::default()
            },
            Line::MinimumCommitment { commitment, .. } => Self {
                kind: "minimum_commitment",
                commitment: Some(commitment.to_string()),
                amount,
                ..Self::default()
            },
            Line::Grant { grant, meter, quantity, unit, .. } => Self {
                kind: "grant",
                id: Some(grant.to_string()),
                meter: Some(meter.to_string()),
                quantity: Some(quantity.to_string()),
                unit: unit.map(|unit| unit.to_string()),
                amount,
                ..Self::default()
            },
            Line::Adjustment { id, meter, reason, happened_at_ms, corrects, .. } => Self {
                kind: "adjustment",
                id: Some(id.to_string()),
                meter: meter.as_ref().map(ToString::to_string),
                reason: Some(reason.clone()),
                happened_at: happened_at_ms.map(rfc3339),
                corrects_operation: corrects.map(|operation| operation.to_string()),
                amount,
                ..Self::default()
            },
            Line::Tax { code, percent, base, .. } => Self {
                kind: "tax",
                id: Some(code.to_string()),
                percent: Some(percent.to_string()),
                base: Some(base.to_string()),
                amount,
                ..Self::default()
            },
        }
    }
}

impl From<&NoteLine> for StatementLineAnswer {
    fn from(line: &NoteLine) -> Self {
        let changed = Self {
            billed: Some(line.billed.to_string()),
            corrected: Some(line.corrected.to_string()),
            amount: line.amount.to_string(),
            ..Self::default()
        };
        match &line.key {
            LineKey::Usage { meter, price } => Self {
                kind: "usage",
                meter: Some(meter.to_string()),
                price: price.as_ref().map(ToString::to_string),
                ..changed
            },
            LineKey::Discount { id } => Self { kind: "discount", id: Some(id.to_string()), ..changed },
            LineKey::MinimumCommitment => Self { kind: "minimum_commitment", ..changed },
            LineKey::Grant { grant, meter } => {
                Self { kind: "grant", id: Some(grant.to_string()), meter: Some(meter.to_string()), ..changed }
            }
            LineKey::Adjustment { id, meter } => Self {
                kind: "adjustment",
                id: Some(id.to_string()),
                meter: meter.as_ref().map(ToString::to_string),
                ..changed
            },
            LineKey::Tax { code } => Self { kind: "tax", id: Some(code.to_string()), ..changed },
        }
    }
}

impl From<&StatementDetails> for StatementAnswer {
    fn from(details: &StatementDetails) -> Self {
        let issued = details.issued.as_ref();
        let line = |line: &StatementLine| match line {
            StatementLine::Billed(line) => line.into(),
            StatementLine::Corrected(line) => line.into(),
        };
        let at = rfc3339(details.as_of_ms);
        let period = |period: Window| PeriodAnswer {
            start: rfc3339(period.start_ms),
            end: rfc3339(period.end_ms),
            time_zone: details.zone.clone(),
        };
        let note = issued.filter(|issued| issued.corrects.is_some());
        Self {
            tenant: details.tenant.to_string(),
            status: if issued.is_some() { "issued" } else { "draft" },
            document: document(issued.is_some_and(|issued| issued.corrects.is_some())),
            number: issued.map(|issued| issued.number),
            corrects: issued.and_then(|issued| issued.corrects),
            billed_in: note.map(|note| period(note.billed_in)),
            credit_notes: issued
                .map_or_else(Vec::new, |issued| issued.notes.iter().map(IssuedNote::from).collect()),
            plan: details.plan.as_ref().map(ToString::to_string),
            policy_version: details.policy_version,
            period: period(details.period),
            currency: details.currency.map(Currency::code),
            lines: details.lines.iter().map(line).collect(),
            unpriced: details.unpriced.iter().map(ToString::to_string).collect(),
            total: details.total.map_or_else(|| "0".to_owned(), |total| total.to_string()),
            other_totals: details.other_totals.iter().map(other_total).collect(),
            as_of: issued.is_none().then(|| at.clone()),
            as_of_event: details.as_of_event.map(|event| event.to_string()),
            issued_at: issued.map(|_| at),
            hash: issued.map(|issued| hex(&issued.hash)),
            books: issued
                .map_or_else(Vec::new, |issued| issued.books.iter().map(BookHeadAnswer::from).collect()),
        }
    }
}
