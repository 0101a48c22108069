//! Turns the work that a caller names into lines: meters and whole units, with the rules that a reservation keeps of
//! each meter.

use std::sync::Arc;

use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::estimate::Estimate;
use crate::domain::field_error::child;
use crate::domain::ids::{MeterId, OperationId, TenantId};
use crate::domain::lines::WorkLines;
use crate::domain::meter::Meter;
use crate::domain::operation::{Cost, Operation};
use crate::domain::policy::Policy;
use crate::domain::reservation::LineRule;
use crate::operations::answers::AskedLine;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::estimates::Estimates;
use crate::operations::requests::{CheckRequest, Work};

/// One line of a request: a meter and how much of it.
pub(in crate::operations) struct Line {
    /// The meter.
    pub(in crate::operations) meter: Arc<Meter>,
    /// How many units, above zero.
    pub(in crate::operations) units: Units,
    /// Where that is an estimate, what it is made of.
    pub(in crate::operations) estimate: Option<Box<Estimate>>,
}

impl Line {
    /// The exact amount.
    pub(in crate::operations) fn amount(&self) -> Amount {
        self.units.to_amount(self.meter.decimals)
    }

    /// The line as it was asked for.
    pub(in crate::operations) fn asked(&self) -> AskedLine {
        AskedLine {
            meter: self.meter.id.clone(),
            units: self.units,
            decimals: self.meter.decimals,
            estimated: self.estimate.is_some(),
        }
    }

    /// What the reservation keeps of the meter.
    pub(in crate::operations) fn rule(&self) -> LineRule {
        LineRule {
            meter: self.meter.id.clone(),
            decimals: self.meter.decimals,
            on_excess: self.meter.on_excess,
            on_late: self.meter.on_late,
            late_within_seconds: self.meter.late_within_seconds,
            estimated: self.estimate.is_some(),
            booked: self.meter.booked,
        }
    }
}

/// The estimates of work of one tenant.
pub(in crate::operations) struct Estimating<'a> {
    /// What all tenants' work used.
    pub(in crate::operations) estimates: &'a Estimates,
    /// Whose work it is.
    pub(in crate::operations) tenant: &'a TenantId,
}

/// The lines of the work, and the operation that it names. `estimating` is for work that may hold an estimate; none for
/// work that is done.
///
/// Errors name the field by pointer: an unknown meter or operation, a wrong attribute, an amount that is too precise or
/// too large.
pub(in crate::operations) fn lines_of(
    policy: &Policy,
    work: &Work,
    estimating: Option<Estimating<'_>>,
) -> Answer<(Vec<Line>, Option<Arc<Operation>>)> {
    match work {
        Work::Operation { operation, attributes } => {
            let rule = known_operation(policy, operation)?;
            let lines = costed_by(policy, &rule, attributes, estimating)?;
            Ok((lines, Some(rule)))
        }
        Work::Lines { lines, operation } => {
            let operation =
                operation.as_ref().map(|operation| known_operation(policy, operation)).transpose()?;
            let mut errors = Vec::new();
            let mut found: Vec<Line> = Vec::with_capacity(lines.len());
            for (index, (meter, amount)) in lines.iter().enumerate() {
                match one_line(policy, meter, *amount) {
                    Ok(line) => found.push(line),
                    Err((field, message)) => {
                        errors.push(FieldError::new(format!("/lines/{index}/{field}"), message))
                    }
                }
            }
            if errors.is_empty() { Ok((found, operation)) } else { Err(OperationError::Invalid(errors)) }
        }
    }
}

/// The work that a check asks about. Errors point into the check.
pub(in crate::operations) fn check_work(policy: &Policy, check: &CheckRequest) -> Answer<Work> {
    let Some(operation) = operation_of(policy, check)? else { return default_work(policy, check) };
    let Some(cost) = check.cost else {
        return Ok(Work::Operation { operation, attributes: check.attributes.clone() });
    };
    if let Some(attribute) = check.attributes.keys().next() {
        return Err(OperationError::field(
            child("/attributes", attribute),
            "says nothing where `cost` says how much; leave one of them out",
        ));
    }
    let rule = known_operation(policy, &operation)?;
    let [only] = rule.costs.as_slice() else {
        let message = format!("the operation {operation} costs several meters; leave `cost` out");
        return Err(OperationError::field("/cost", message));
    };
    let lines = WorkLines::parse(vec![(only.meter.clone(), cost)]).map_err(OperationError::Invalid)?;
    Ok(Work::Lines { lines, operation: Some(operation) })
}

/// The operation that a check names, or else the one whose pattern its method and endpoint match.
fn operation_of(policy: &Policy, check: &CheckRequest) -> Answer<Option<OperationId>> {
    match (&check.operation, &check.method, &check.endpoint) {
        (Some(operation), ..) => Ok(Some(operation.clone())),
        (None, Some(method), Some(path)) => Ok(policy.operation_of(method, path).cloned()),
        (None, Some(_), None) => Ok(None),
        (None, None, Some(_)) => Err(OperationError::field("/method", "is required with `endpoint`")),
        (None, None, None) => {
            Err(OperationError::field("/operation", "name the operation, or `method` with `endpoint`"))
        }
    }
}

/// The work of a check for which no operation is found.
fn default_work(policy: &Policy, check: &CheckRequest) -> Answer<Work> {
    if let Some(attribute) = check.attributes.keys().next() {
        let message = "belongs to an operation, and none is found for this call";
        return Err(OperationError::field(child("/attributes", attribute), message));
    }
    let defaults = policy.cost_defaults();
    let by_method = || check.method.as_ref().and_then(|method| defaults?.cost(method));
    let Some((defaults, cost)) = defaults.zip(check.cost.or_else(by_method)) else {
        let message = "no operation matches, and there is no default cost of this method";
        return Err(OperationError::field("/method", message));
    };
    let lines = WorkLines::parse(vec![(defaults.meter.clone(), cost)]).map_err(OperationError::Invalid)?;
    Ok(Work::Lines { lines, operation: None })
}

fn one_line(policy: &Policy, meter: &MeterId, amount: Amount) -> Result<Line, (&'static str, String)> {
    let meter = usable_meter(policy, meter).map_err(|message| ("meter", message))?;
    let units = amount.to_units(meter.decimals).map_err(|error| ("amount", error.to_string()))?;
    Ok(Line { meter, units, estimate: None })
}

fn usable_meter(policy: &Policy, meter: &MeterId) -> Result<Arc<Meter>, String> {
    match policy.meter(meter) {
        None => Err(format!("there is no meter {meter}")),
        Some(found) if found.archived => Err(format!("the meter {meter} is archived")),
        Some(found) => Ok(found.clone()),
    }
}

fn known_operation(policy: &Policy, operation: &OperationId) -> Answer<Arc<Operation>> {
    match policy.operation(operation) {
        None => Err(OperationError::field("/operation", format!("there is no operation {operation}"))),
        Some(found) if found.archived => {
            Err(OperationError::field("/operation", format!("the operation {operation} is archived")))
        }
        Some(found) => Ok(found.clone()),
    }
}

/// The lines that an operation's rule, at a given policy version, makes of the attributes; `estimating` as for
/// [`lines_of`].
pub(in crate::operations) fn costed_by(
    policy: &Policy,
    rule: &Operation,
    attributes: &serde_json::Map<String, serde_json::Value>,
    estimating: Option<Estimating<'_>>,
) -> Answer<Vec<Line>> {
    let attributes = read_attributes(attributes)?;
    let decimals_of = |meter: &MeterId| policy.meter(meter).map(|meter| meter.decimals);
    let costs = match estimating {
        None => rule.cost(&attributes, decimals_of, None),
        Some(Estimating { estimates, tenant }) => {
            let estimate =
                |cost: &Cost, decimals: Decimals| estimates.estimate(tenant, &rule.id, cost, decimals);
            rule.cost(&attributes, decimals_of, Some(&estimate))
        }
    };
    let costs = costs.map_err(OperationError::Invalid)?;
    costs
        .into_iter()
        .map(|line| {
            let meter = usable_meter(policy, &line.meter)
                .map_err(|message| OperationError::field("/operation", message))?;
            Ok(Line { meter, units: line.units, estimate: line.estimate })
        })
        .collect()
}

fn read_attributes(
    attributes: &serde_json::Map<String, serde_json::Value>,
) -> Answer<std::collections::BTreeMap<String, crate::domain::operation::AttributeValue>> {
    crate::domain::field_error::read_json(&serde_json::Value::Object(attributes.clone()))
        .map_err(|error| OperationError::Invalid(vec![error.under("/attributes")]))
}
