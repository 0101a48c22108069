//! From the work a caller names to lines: meters and whole units, with the rules a reservation keeps of each meter.

use std::sync::Arc;

use crate::domain::amount::{Amount, Units};
use crate::domain::ids::{MeterId, OperationId};
use crate::domain::meter::Meter;
use crate::domain::policy::Policy;
use crate::domain::reservation::LineRule;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::requests::Work;

/// One line of a request: a meter and how much of it.
pub(in crate::operations) struct Line {
    /// The meter.
    pub(in crate::operations) meter: Arc<Meter>,
    /// How much, above zero.
    pub(in crate::operations) units: Units,
}

impl Line {
    /// How much, exactly.
    pub(in crate::operations) fn amount(&self) -> Amount {
        self.units.to_amount(self.meter.decimals)
    }

    /// What the reservation keeps of the meter.
    pub(in crate::operations) fn rule(&self) -> LineRule {
        LineRule {
            meter: self.meter.id.clone(),
            decimals: self.meter.decimals,
            on_excess: self.meter.on_excess,
            on_late: self.meter.on_late,
            late_within_seconds: self.meter.late_within_seconds,
        }
    }
}

/// The lines of the work, and the operation it runs under.
///
/// Errors name the field by pointer: an unknown meter or operation, a wrong attribute, an amount that is too precise
/// or too large.
pub(super) fn lines_of(policy: &Policy, work: &Work) -> Answer<(Vec<Line>, Option<OperationId>)> {
    match work {
        Work::Operation { operation, attributes } => {
            let lines = costed(policy, operation, attributes)?;
            Ok((lines, Some(operation.clone())))
        }
        Work::Lines { lines, operation } => {
            if let Some(operation) = operation {
                known_operation(policy, operation)?;
            }
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
            if errors.is_empty() {
                Ok((found, operation.clone()))
            } else {
                Err(OperationError::Invalid(errors))
            }
        }
    }
}

fn one_line(policy: &Policy, meter: &MeterId, amount: Amount) -> Result<Line, (&'static str, String)> {
    let meter = usable_meter(policy, meter).map_err(|message| ("meter", message))?;
    let units = amount.to_units(meter.decimals).map_err(|error| ("amount", error.to_string()))?;
    Ok(Line { meter, units })
}

fn usable_meter(policy: &Policy, meter: &MeterId) -> Result<Arc<Meter>, String> {
    match policy.meter(meter) {
        None => Err(format!("there is no meter {meter}")),
        Some(found) if found.archived => Err(format!("the meter {meter} is archived")),
        Some(found) => Ok(found.clone()),
    }
}

fn known_operation(
    policy: &Policy,
    operation: &OperationId,
) -> Answer<Arc<crate::domain::operation::Operation>> {
    match policy.operation(operation) {
        None => Err(OperationError::field("/operation", format!("there is no operation {operation}"))),
        Some(found) if found.archived => {
            Err(OperationError::field("/operation", format!("the operation {operation} is archived")))
        }
        Some(found) => Ok(found.clone()),
    }
}

fn costed(
    policy: &Policy,
    operation: &OperationId,
    attributes: &serde_json::Map<String, serde_json::Value>,
) -> Answer<Vec<Line>> {
    let rule = known_operation(policy, operation)?;
    costed_by(policy, &rule, attributes)
}

/// The lines a given version of an operation's rule makes of the attributes.
pub(in crate::operations) fn costed_by(
    policy: &Policy,
    rule: &crate::domain::operation::Operation,
    attributes: &serde_json::Map<String, serde_json::Value>,
) -> Answer<Vec<Line>> {
    let attributes = read_attributes(attributes)?;
    let costs = rule
        .cost(&attributes, |meter| policy.meter(meter).map(|meter| meter.decimals))
        .map_err(OperationError::Invalid)?;
    costs
        .into_iter()
        .map(|(meter, units)| {
            let meter = usable_meter(policy, &meter)
                .map_err(|message| OperationError::field("/operation", message))?;
            Ok(Line { meter, units })
        })
        .collect()
}

fn read_attributes(
    attributes: &serde_json::Map<String, serde_json::Value>,
) -> Answer<std::collections::BTreeMap<String, crate::domain::operation::AttributeValue>> {
    crate::domain::field_error::read_json(&serde_json::Value::Object(attributes.clone()))
        .map_err(|error| OperationError::Invalid(vec![error.under("/attributes")]))
}
