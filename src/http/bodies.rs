//! The bodies of the gate's calls, and their parsing into valid requests.

pub(super) mod check;
mod checks;
mod metadata;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use checks::*;
pub(super) use metadata::Metadata;

use super::json::{self, Object};
use super::problem::Problem;
use crate::domain::amount::Amount;
use crate::domain::ids::{IdempotencyKey, MeterId, OperationId, SubjectId, SubjectKind, TenantId};
use crate::domain::meter::HoldSeconds;
use crate::domain::resolution::Totals;
use crate::operations::FieldError;
use crate::operations::requests::{Ack, Mode, ReserveRequest, Used};

/// An amount of a meter.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Line)]
pub(super) struct LineBody {
    /// Which meter.
    #[schema(value_type = MeterId)]
    pub(super) meter: MeterId,
    /// How much, as a decimal string or an integer.
    #[schema(value_type = Amount)]
    pub(super) amount: Amount,
}

pub(super) type LineBodies = Option<Vec<Object<LineBody>>>;

/// How the caller named amounts. The verbs call them `lines`; errors name the field that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    AsLines,
    /// As totals of these meters.
    AsTotals(Vec<MeterId>),
    /// As one line, without the list.
    AsMeterAndAmount,
    /// In this field; empty if no field names any.
    As(&'static str),
}

impl Sent {
    /// The problem, with the names of the fields that were sent.
    pub(super) fn name(&self, problem: Problem) -> Problem {
        problem.map_pointers(|pointer| match self {
            Self::AsLines => None,
            Self::AsTotals(meters) => place_of_total(pointer, meters),
            Self::AsMeterAndAmount if pointer == "/lines" => Some("/meter".to_owned()),
            Self::AsMeterAndAmount => pointer.strip_prefix("/lines/0").map(str::to_owned),
            Self::As(field) => {
                let is_named = pointer == "/lines" || pointer.starts_with("/lines/");
                (is_named || matches!(pointer, "/amount" | "/operation")).then(|| (*field).to_owned())
            }
        })
    }
}

/// Where a field of a total stands among those that were sent; the list itself for one that was not.
fn place_of_total(pointer: &str, meters: &[MeterId]) -> Option<String> {
    let (named, field) = pointer.strip_prefix("/lines/")?.split_once('/')?;
    let place = meters.iter().position(|meter| meter.as_str() == named);
    Some(place.map_or_else(|| "/lines".to_owned(), |place| format!("/lines/{place}/{field}")))
}

/// The meters of totals, in their order.
fn meters_of(lines: &[Object<LineBody>]) -> Vec<MeterId> {
    lines.iter().map(|Object(line)| line.meter.clone()).collect()
}

/// What to hold, and for whom. The work is `operation` with `attributes`, or `lines`, or `meter` with `amount`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReserveBody)]
pub(super) struct ReserveBody {
    /// Whose units; a key bound to a tenant may leave it out.
    #[schema(value_type = Option<TenantId>)]
    pub(super) tenant: Option<TenantId>,
    /// Short for `subjects` with the kind `user`.
    #[schema(value_type = Option<SubjectId>)]
    pub(super) subject: Option<SubjectId>,
    /// Who acts, by kind: at most four.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub(super) subjects: Option<BTreeMap<SubjectKind, SubjectId>>,
    /// The operation to be costed, or the one the lines belong to.
    #[schema(value_type = Option<OperationId>)]
    pub(super) operation: Option<OperationId>,
    /// What the operation's cost rule needs: integers, decimal strings, booleans, texts.
    #[schema(value_type = Option<Object>)]
    pub(super) attributes: Option<Map<String, Value>>,
    /// One to eight amounts, each meter once.
    #[schema(value_type = Option<Vec<LineBody>>, min_items = 1, max_items = 8)]
    pub(super) lines: LineBodies,
    /// Short for one line, with `amount`.
    #[schema(value_type = Option<MeterId>)]
    pub(super) meter: Option<MeterId>,
    /// Short for one line, with `meter`.
    #[schema(value_type = Option<Amount>)]
    pub(super) amount: Option<Amount>,
    /// How long the hold lives, 1 to 86400.
    #[serde(default, deserialize_with = "ttl_seconds")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    pub(super) ttl_seconds: Option<u32>,
    /// How much must fit.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<Mode>)]
    pub(super) mode: Mode,
    /// Only say what would happen.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<bool>)]
    pub(super) dry_run: bool,
    /// The caller's own hash of the payload; part of the call's meaning. An operation may refuse the same one again.
    pub(super) payload_fingerprint: Option<String>,
    /// The caller's own notes: at most 50 keys and 8 KB; numbers that a double holds exactly as written.
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<Metadata>,
    /// Makes the call repeatable; may be sent as the `Idempotency-Key` header instead.
    #[schema(value_type = Option<IdempotencyKey>)]
    pub(super) idempotency_key: Option<IdempotencyKey>,
}

/// What was used, and by whom: a reserve and its consume in one, admitted or refused like a reserve.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UsageBody)]
pub(super) struct UsageBody {
    /// Whose units; a key bound to a tenant may leave it out.
    #[schema(value_type = Option<TenantId>)]
    tenant: Option<TenantId>,
    /// Short for `subjects` with the kind `user`.
    #[schema(value_type = Option<SubjectId>)]
    subject: Option<SubjectId>,
    /// Who acts, by kind: at most four.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    subjects: Option<BTreeMap<SubjectKind, SubjectId>>,
    /// The operation to be costed, or the one the lines belong to.
    #[schema(value_type = Option<OperationId>)]
    operation: Option<OperationId>,
    /// What the operation's cost rule needs: integers, decimal strings, booleans, texts.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Map<String, Value>>,
    /// One to eight amounts, each meter once.
    #[schema(value_type = Option<Vec<LineBody>>, min_items = 1, max_items = 8)]
    lines: LineBodies,
    /// Short for one line, with `amount`.
    #[schema(value_type = Option<MeterId>)]
    meter: Option<MeterId>,
    /// Short for one line, with `meter`.
    #[schema(value_type = Option<Amount>)]
    amount: Option<Amount>,
    /// Usage is recorded in full or refused: only `all_or_nothing`.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<Mode>)]
    mode: Mode,
    /// Only say what would happen: answered as the dry run of a reserve.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<bool>)]
    dry_run: bool,
    /// The caller's own hash of the payload; part of the call's meaning. An operation may refuse the same one again.
    payload_fingerprint: Option<String>,
    /// The caller's own notes: at most 50 keys and 8 KB; numbers that a double holds exactly as written.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Metadata>,
    /// Required, here or as the `Idempotency-Key` header.
    #[schema(value_type = Option<IdempotencyKey>)]
    idempotency_key: Option<IdempotencyKey>,
    /// When the call counts as acknowledged.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<Ack>)]
    ack: Ack,
}

impl UsageBody {
    /// Whose units, if they are named.
    pub(super) fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The key in the body.
    pub(super) fn idempotency_key(&self) -> Option<IdempotencyKey> {
        self.idempotency_key.clone()
    }

    /// The reserve of the same work, and when the call counts as acknowledged.
    pub(super) fn into_parts(self) -> (ReserveBody, Ack) {
        let reserve = ReserveBody {
            tenant: self.tenant,
            subject: self.subject,
            subjects: self.subjects,
            operation: self.operation,
            attributes: self.attributes,
            lines: self.lines,
            meter: self.meter,
            amount: self.amount,
            ttl_seconds: None,
            mode: self.mode,
            dry_run: self.dry_run,
            payload_fingerprint: self.payload_fingerprint,
            metadata: self.metadata,
            idempotency_key: self.idempotency_key,
        };
        (reserve, self.ack)
    }
}

/// Totals for the reservation so far, never increments. `{}` means what is held, or consumed so far if that is more.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ConsumeBody)]
pub(super) struct ConsumeBody {
    /// The total of the only line.
    #[schema(value_type = Option<Amount>)]
    amount: Option<Amount>,
    /// Totals by meter.
    #[schema(value_type = Option<Vec<LineBody>>, min_items = 1, max_items = 8)]
    lines: LineBodies,
    /// The operation costed again.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Map<String, Value>>,
    /// Whether this resolves the reservation; `true` if absent. After the expiry, a total that is not final leaves
    /// it expired and open to larger totals, as long as the meter takes late consumes.
    #[serde(rename = "final")]
    #[schema(default = true)]
    pub(super) is_final: Option<bool>,
    /// When the call counts as acknowledged.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<Ack>)]
    pub(super) ack: Ack,
}

impl ConsumeBody {
    /// How the totals were named.
    pub(super) fn sent(&self) -> Sent {
        match (&self.amount, &self.lines, &self.attributes) {
            (Some(_), ..) => Sent::As("/amount"),
            (_, Some(lines), _) => Sent::AsTotals(meters_of(lines)),
            (.., Some(_)) => Sent::As("/attributes"),
            _ => Sent::As(""),
        }
    }

    /// The totals, of which at most one form may be given.
    pub(super) fn used(self) -> Result<Used, Problem> {
        let given = [self.amount.is_some(), self.lines.is_some(), self.attributes.is_some()];
        if given.into_iter().filter(|given| *given).count() > 1 {
            return Err(wrong("", "name the totals once: `amount`, `lines` or `attributes`"));
        }
        let mut faults = Vec::new();
        let used = match (self.amount, self.lines, self.attributes) {
            (Some(amount), ..) => Used::Totals(Totals::Single(amount)),
            (_, Some(lines), _) => Used::Totals(checked_totals(lines, &mut faults)),
            (.., Some(attributes)) => {
                check_attributes(&attributes, &mut faults);
                Used::Attributes(attributes)
            }
            _ => Used::Totals(Totals::Default),
        };
        sound(used, faults)
    }
}

/// What was used before the work was given up; nothing if absent.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReleaseBody)]
pub(super) struct ReleaseBody {
    /// What the only line has used.
    #[schema(value_type = Option<Amount>)]
    incurred: Option<Amount>,
    /// What was used, by meter.
    #[schema(value_type = Option<Vec<LineBody>>, min_items = 1, max_items = 8)]
    lines: LineBodies,
    /// Why, for the log; at most 255 characters.
    #[schema(example = "cancelled by the user")]
    pub(super) reason: Option<String>,
}

impl ReleaseBody {
    /// How what was used was named.
    pub(super) fn sent(&self) -> Sent {
        self.lines.as_ref().map_or(Sent::As("/incurred"), |lines| Sent::AsTotals(meters_of(lines)))
    }

    /// What was used, and why the work was given up.
    pub(super) fn into_parts(self) -> Result<(Totals, Option<String>), Problem> {
        let mut faults = Vec::new();
        check_text(self.reason.as_deref(), "/reason", &mut faults);
        let incurred = match (self.incurred, self.lines) {
            (Some(_), Some(_)) => {
                faults.push(FieldError::new("/incurred", "name what was used once: `incurred` or `lines`"));
                Totals::Default
            }
            (Some(amount), None) => Totals::Single(amount),
            (None, Some(lines)) => checked_totals(lines, &mut faults),
            (None, None) => Totals::Default,
        };
        sound((incurred, self.reason), faults)
    }
}

/// How long the hold is to live from now.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExtendBody)]
pub(super) struct ExtendBody {
    /// 1 to 86400; 60 if absent.
    #[serde(default, deserialize_with = "ttl_seconds")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86_400, example = 60)]
    ttl_seconds: Option<u32>,
}

impl ExtendBody {
    /// The new life.
    pub(super) fn ttl(self) -> Result<Option<HoldSeconds>, Problem> {
        let mut faults = Vec::new();
        let ttl = checked_ttl(self.ttl_seconds, &mut faults);
        sound(ttl, faults)
    }
}

impl ReserveBody {
    /// How the work was named.
    pub(super) fn sent(&self) -> Sent {
        match (&self.lines, &self.meter) {
            (Some(_), _) => Sent::AsLines,
            (None, Some(_)) => Sent::AsMeterAndAmount,
            (None, None) => Sent::As("/operation"),
        }
    }

    /// The request for `tenant` under `key`; names every wrong field.
    pub(super) fn into_request(
        self,
        tenant: Option<TenantId>,
        key: Option<IdempotencyKey>,
    ) -> Result<ReserveRequest, Problem> {
        let mut faults = Vec::new();
        let ttl = checked_ttl(self.ttl_seconds, &mut faults);
        check_text(self.payload_fingerprint.as_deref(), "/payload_fingerprint", &mut faults);
        let metadata = self.metadata.map(|metadata| metadata.checked(&mut faults));
        let subjects = checked_subjects(self.subject, self.subjects, &mut faults);
        let forms = WorkForms {
            operation: self.operation,
            attributes: self.attributes,
            lines: self.lines,
            meter: self.meter,
            amount: self.amount,
        };
        let work = forms.work(&mut faults);
        if tenant.is_none() {
            faults.push(FieldError::new("/tenant", "is required, as the key is not bound to a tenant"));
        }
        match (tenant, work) {
            (Some(tenant), Some(work)) if faults.is_empty() => Ok(ReserveRequest {
                tenant,
                subjects,
                work,
                ttl,
                mode: self.mode,
                dry_run: self.dry_run,
                payload_fingerprint: self.payload_fingerprint,
                metadata,
                key,
                happened_at_ms: None,
                sees_all_tenants: false,
            }),
            _ => Err(Problem::fields(faults)),
        }
    }
}

#[cfg(test)]
mod tests;
