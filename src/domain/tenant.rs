//! A tenant: the customer account, its plan, its calendar, and its own limits and overrides.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::ban::Ban;
use super::factor::Factor;
use super::ids::{LimitId, OverrideId, PlanId, Subject, SubjectId, SubjectKind, TenantId};
use super::instant::Instant;
use super::limit::{Kind, Limit};
use super::money::Currency;
use super::period::{AnchorDay, Calendar, Zone};
use super::price::Price;
use super::rating::{Commitment, Discount, Tax};
use super::upgrade::Effective;

/// A subject with a plan of its own, of which only the subject-scoped limits apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectPlan {
    /// What sort of subject.
    pub kind: SubjectKind,
    /// Its id.
    pub id: SubjectId,
    /// Its plan.
    pub plan: PlanId,
}

impl SubjectPlan {
    /// The subject without the plan.
    pub fn subject(&self) -> Subject {
        Subject { kind: self.kind.clone(), id: self.id.clone() }
    }
}

/// A subject named in an override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectName {
    /// What sort of subject.
    pub kind: SubjectKind,
    /// Its id.
    pub id: SubjectId,
}

impl SubjectName {
    /// The subject.
    pub fn subject(&self) -> Subject {
        Subject { kind: self.kind.clone(), id: self.id.clone() }
    }
}

/// The level of an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideLevel {
    /// Before everything else.
    Emergency,
    /// For one subject.
    Subject,
    /// For the whole tenant.
    Tenant,
}

/// Another capacity or kind for one limit of a tenant, or of one of its subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Its name, unique in the tenant.
    pub id: OverrideId,
    /// Its level.
    pub level: OverrideLevel,
    /// The limit that it changes.
    pub limit: LimitId,
    /// Its subject; present exactly when the level is `subject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectName>,
    /// The capacity instead; this or `factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// A factor of the capacity that would apply without it, rounded down; this or `capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Factor>,
    /// The kind instead: what the limit does when it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// When it ends, exclusive; absent: when it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
    /// The reason for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Override {
    /// Its subject, if it has one.
    pub fn for_subject(&self) -> Option<Subject> {
        self.subject.as_ref().map(SubjectName::subject)
    }
}

/// The largest number of overrides of one tenant.
pub const OVERRIDES_MAX: usize = 1_000;

/// The field of a shown tenant with its calendars, while a change of them is to come.
pub const CALENDARS: &str = "calendars";
/// The field of a shown tenant with its currencies, while a change of them is to come.
pub const CURRENCIES: &str = "currencies";

/// Takes off a shown tenant the fields that no definition has: what is still to come follows from the last definition.
pub fn leave_out_dates(shown: &mut serde_json::Map<String, serde_json::Value>) {
    for field in [CALENDARS, CURRENCIES] {
        shown.remove(field);
    }
}

/// A tenant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantDefinition {
    /// Its name.
    pub id: TenantId,
    /// Its plan; absent: only default limits and its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// From when on quotas follow a change to this plan; absent: at once where it includes more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_from: Option<Effective>,
    /// The zone of its days, as last asked for; its dated calendars say when it takes effect.
    #[serde(default)]
    pub time_zone: Zone,
    /// The day of the month on which its billing periods begin, likewise.
    #[serde(default)]
    pub anchor_day: AnchorDay,
    /// In which currency it pays, as it was asked for last; absent: the one that its prices are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
    /// Its own limits.
    #[serde(default)]
    pub limits: Vec<Arc<Limit>>,
    /// Subjects with a plan of their own.
    #[serde(default)]
    pub subjects: Vec<SubjectPlan>,
    /// Other capacities and kinds for its limits.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// Its bans. Left out where there are none, so that earlier versions read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bans: Vec<Ban>,
    /// Its own prices, which go before its plan's. Left out where there are none, as a plan's are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Price>,
    /// Its own discounts. These and the rest are left out where they say nothing: earlier versions read that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discounts: Vec<Discount>,
    /// The least that a period costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minimum_commitments: Vec<Commitment>,
    /// Its taxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taxes: Vec<Tax>,
    /// Whether everything works and no statement is issued.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sandbox: bool,
    /// Whether new work of it is refused while its books remain.
    #[serde(default)]
    pub archived: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A tenant in a file or a PUT. An absent list, zone, anchor day or currency is left as it is; an empty list removes
/// all items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantDocument {
    /// Its name.
    pub id: TenantId,
    /// Its plan; absent: only default limits and its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// From when on its quotas follow a change to this plan; limits do at once. `now`: in the open period the
    /// difference is granted, or voided as far as it is available and nobody has paid for it. `next_period`: the open
    /// period stays as it is. Absent: at once where the plan includes more, else with the next period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_from: Option<Effective>,
    /// The zone of its days; absent: unchanged, UTC for a new tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<Zone>,
    /// The day of the month on which its billing periods begin; absent: unchanged, the 1st for a new tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor_day: Option<AnchorDay>,
    /// In which currency it pays; absent: as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
    /// Its own limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<Arc<Limit>>>,
    /// Subjects with a plan of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<SubjectPlan>>,
    /// Other capacities and kinds for its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Vec<Override>>,
    /// Its bans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bans: Option<Vec<Ban>>,
    /// Its own prices, which go before its plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Vec<Price>>,
    /// Its own discounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discounts: Option<Vec<Discount>>,
    /// The least that a period costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_commitments: Option<Vec<Commitment>>,
    /// Its taxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taxes: Option<Vec<Tax>>,
    /// Whether everything works and no statement is issued.
    #[serde(default)]
    pub sandbox: bool,
    /// Whether new work of it is refused while its books remain.
    #[serde(default)]
    pub archived: bool,
}

impl TenantDocument {
    /// The tenant to store when this document is applied to `current`.
    pub fn merge(self, current: Option<&TenantDefinition>) -> TenantDefinition {
        TenantDefinition {
            id: self.id,
            plan: self.plan,
            plan_from: self.plan_from,
            time_zone: self
                .time_zone
                .or_else(|| current.map(|tenant| tenant.time_zone.clone()))
                .unwrap_or_default(),
            anchor_day: self.anchor_day.or(current.map(|tenant| tenant.anchor_day)).unwrap_or_default(),
            currency: self.currency.or(current.and_then(|tenant| tenant.currency)),
            limits: self.limits.or_else(|| current.map(|tenant| tenant.limits.clone())).unwrap_or_default(),
            subjects: self
                .subjects
                .or_else(|| current.map(|tenant| tenant.subjects.clone()))
                .unwrap_or_default(),
            overrides: self
                .overrides
                .or_else(|| current.map(|tenant| tenant.overrides.clone()))
                .unwrap_or_default(),
            bans: self.bans.or_else(|| current.map(|tenant| tenant.bans.clone())).unwrap_or_default(),
            prices: self.prices.or_else(|| current.map(|tenant| tenant.prices.clone())).unwrap_or_default(),
            discounts: self
                .discounts
                .or_else(|| current.map(|tenant| tenant.discounts.clone()))
                .unwrap_or_default(),
            minimum_commitments: self
                .minimum_commitments
                .or_else(|| current.map(|tenant| tenant.minimum_commitments.clone()))
                .unwrap_or_default(),
            taxes: self.taxes.or_else(|| current.map(|tenant| tenant.taxes.clone())).unwrap_or_default(),
            sandbox: self.sandbox,
            archived: self.archived,
        }
    }
}

impl From<TenantDefinition> for TenantDocument {
    /// The document that makes exactly this tenant.
    fn from(tenant: TenantDefinition) -> Self {
        Self {
            id: tenant.id,
            plan: tenant.plan,
            plan_from: tenant.plan_from,
            time_zone: Some(tenant.time_zone),
            anchor_day: Some(tenant.anchor_day),
            currency: tenant.currency,
            limits: Some(tenant.limits),
            subjects: Some(tenant.subjects),
            overrides: Some(tenant.overrides),
            bans: Some(tenant.bans),
            prices: Some(tenant.prices),
            discounts: Some(tenant.discounts),
            minimum_commitments: Some(tenant.minimum_commitments),
            taxes: Some(tenant.taxes),
            sandbox: tenant.sandbox,
            archived: tenant.archived,
        }
    }
}

impl TenantDefinition {
    /// The calendar that was last asked for.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.time_zone.clone(), self.anchor_day)
    }
}
