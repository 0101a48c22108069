//! A statement in the columns of FinOps FOCUS 1.2 that Tollgate can fill; what FOCUS has no column for begins with
//! `x_`.

use rust_decimal::Decimal;

use super::wording::{corrected, described};
use crate::domain::amount::Amount;
use crate::domain::factor::Factor;
use crate::domain::ids::MeterId;
use crate::domain::instant::rfc3339;
use crate::domain::period::{Window, WindowKind};
use crate::domain::price::PriceModel;
use crate::domain::rating::{Line, LineKey, NoteLine, UsageLine};
use crate::http::cell::Cell;
use crate::operations::answers::{StatementDetails, StatementLine};

pub(super) const COLUMNS: [&str; 32] = [
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "BilledCost",
    "EffectiveCost",
    "ContractedCost",
    "ContractedUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ConsumedQuantity",
    "ConsumedUnit",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "x_PriceModel",
    "x_UnitPrice",
    "x_StatementStatus",
    "x_PlanId",
    "x_PolicyVersion",
    "x_AsOf",
    "x_AsOfEvent",
    "x_StatementNumber",
    "x_CorrectsStatement",
    "InvoiceId",
];

/// A row for each line, in their order; the costs add up to the total.
pub(super) fn rows(draft: &StatementDetails) -> Vec<Vec<Cell>> {
    let issued = draft.issued.as_ref();
    // A correction is in the bill of a later period than the one that it is for.
    let billed_in = issued.map_or(draft.period, |issued| issued.billed_in);
    let of_bill = [Cell::text(Some(&draft.tenant)), Cell::text(draft.currency)];
    let of_books = [
        Cell::text(Some(if issued.is_some() { "issued" } else { "draft" })),
        Cell::text(draft.plan.as_ref()),
        Cell::number(draft.policy_version),
        Cell::text(Some(rfc3339(draft.as_of_ms))),
        Cell::text(draft.as_of_event),
        Cell::number(issued.map(|issued| issued.number)),
        Cell::number(issued.and_then(|issued| issued.corrects)),
        Cell::text(issued.map(|issued| issued.number)),
    ];
    let cells = |line: &StatementLine| {
        let charged_for = charged_for(draft, line);
        // What is for a period that was billed before is a correction.
        let is_late = charged_for.start_ms < billed_in.start_ms;
        let mut cells: Vec<Cell> = [billed_in, charged_for].into_iter().flat_map(bounds).collect();
        cells.extend(match line {
            StatementLine::Billed(line) => charge(line, is_late),
            StatementLine::Corrected(line) => correction(line),
        });
        cells
    };
    let row = |line| of_bill.iter().cloned().chain(cells(line)).chain(of_books.iter().cloned()).collect();
    draft.lines.iter().map(row).collect()
}

/// The period that a line is for: the whole one of the document, as tiers and minimum belong to no part of it; of what
/// is adjusted the one in which it happened.
fn charged_for(draft: &StatementDetails, line: &StatementLine) -> Window {
    match line {
        StatementLine::Billed(Line::Adjustment { happened_at_ms: Some(at_ms), .. }) => {
            draft.calendars.window(WindowKind::Period, *at_ms)
        }
        _ => draft.period,
    }
}

fn bounds(period: Window) -> [Cell; 2] {
    [period.start_ms, period.end_ms].map(|at_ms| Cell::text(Some(rfc3339(at_ms))))
}

/// The cells from `ChargeCategory` to `x_UnitPrice` of a credit note's line.
fn correction(line: &NoteLine) -> Vec<Cell> {
    let (category, meter) = match &line.key {
        LineKey::Usage { meter, .. } => ("Usage", Some(meter)),
        LineKey::Discount { .. } => ("Credit", None),
        LineKey::MinimumCommitment => ("Adjustment", None),
        LineKey::Grant { meter, .. } => ("Purchase", Some(meter)),
        LineKey::Adjustment { meter, .. } => ("Adjustment", meter.as_ref()),
        LineKey::Tax { .. } => ("Tax", None),
    };
    let amount = Cell::number(Some(line.amount));
    let mut cells = vec![
        Cell::text(Some(category)),
        Cell::text(Some("Correction")),
        Cell::text(Some(corrected(line))),
        Cell::text(Some("One-Time")),
        amount.clone(),
        amount.clone(),
        amount,
    ];
    // The difference has no unit price; what it is for is the meter.
    cells.resize(cells.len() + 7, Cell::Empty);
    cells.push(Cell::text(meter));
    cells.resize(cells.len() + 3, Cell::Empty);
    cells
}

/// The cells from `ChargeCategory` to `x_UnitPrice`.
fn charge(line: &Line, is_late: bool) -> Vec<Cell> {
    let (category, frequency) = match line {
        Line::Usage(usage) if usage.model == PriceModel::Flat => ("Purchase", "Recurring"),
        Line::Usage(_) => ("Usage", "Usage-Based"),
        Line::Discount { .. } => ("Credit", "Recurring"),
        Line::MinimumCommitment { .. } => ("Adjustment", "Recurring"),
        Line::Grant { .. } => ("Purchase", "One-Time"),
        Line::Adjustment { .. } => ("Adjustment", "One-Time"),
        Line::Tax { .. } => ("Tax", "Recurring"),
    };
    let amount = Cell::number(Some(line.amount()));
    let mut cells = vec![
        Cell::text(Some(category)),
        // Only corrections have a class.
        Cell::text(is_late.then_some("Correction")),
        Cell::text(Some(described(line))),
        Cell::text(Some(frequency)),
        amount.clone(),
        amount.clone(),
        amount,
    ];
    match line {
        Line::Usage(usage) => cells.extend(priced(usage)),
        Line::Grant { meter, quantity, unit, .. } => cells.extend(sold(meter, *quantity, *unit)),
        Line::Adjustment { meter, .. } => {
            cells.resize(cells.len() + 7, Cell::Empty);
            cells.push(Cell::text(meter.as_ref()));
            cells.resize(cells.len() + 3, Cell::Empty);
        }
        _ => cells.resize(cells.len() + 11, Cell::Empty),
    }
    cells
}

/// The cells from `ContractedUnitPrice` to `x_UnitPrice`.
fn priced(usage: &UsageLine) -> [Cell; 11] {
    let is_flat = usage.model == PriceModel::Flat;
    let (quantity, unit) = match (usage.packages, usage.package_size) {
        (Some(packages), Some(size)) => (packages.decimal(), format!("{size} {}", usage.meter)),
        _ if is_flat => (Decimal::ONE, "period".to_owned()),
        _ => (usage.charged.decimal(), usage.meter.to_string()),
    };
    let unit_price = match usage.unit {
        Some(unit) => Some(unit.decimal()),
        None if is_flat && usage.minimum.is_none() => Some(usage.amount.decimal()),
        None => None,
    };
    let contracted = unit_price.filter(|price| is_product(quantity, *price, usage.amount.decimal()));
    let sku = match &usage.price {
        None => usage.meter.to_string(),
        Some(price) => format!("{}/{price}", usage.meter),
    };
    let consumed = (!is_flat).then_some(usage);
    [
        Cell::number(contracted.map(|price| price.normalize())),
        Cell::text(Some("Standard")),
        Cell::number(Some(quantity.normalize())),
        Cell::text(Some(unit)),
        Cell::number(consumed.map(|usage| usage.quantity)),
        Cell::text(consumed.map(|usage| &usage.meter)),
        Cell::text(Some(&sku)),
        Cell::text(Some(&usage.meter)),
        Cell::text(Some(format!("{sku}/{}", usage.effective_from))),
        Cell::text(Some(usage.model.as_str())),
        Cell::number(unit_price.map(|price| price.normalize())),
    ]
}

/// The same cells of a paid grant.
fn sold(meter: &MeterId, quantity: Amount, unit: Option<Factor>) -> [Cell; 11] {
    let unit = Cell::number(unit);
    [
        unit.clone(),
        Cell::text(Some("Standard")),
        Cell::number(Some(quantity)),
        Cell::text(Some(meter)),
        Cell::Empty,
        Cell::Empty,
        Cell::text(Some(meter)),
        Cell::text(Some(meter)),
        Cell::Empty,
        Cell::Empty,
        unit,
    ]
}

/// Whether `quantity` times `price` is exactly `amount`: a line that was rounded or raised is not, and FOCUS wants the
/// product in `ContractedCost` wherever there is a `ContractedUnitPrice`.
fn is_product(quantity: Decimal, price: Decimal, amount: Decimal) -> bool {
    let amount = amount.normalize();
    let missing = (quantity.scale() + price.scale()).checked_sub(amount.scale());
    let scaled = missing.and_then(|zeros| amount.mantissa().checked_mul(10_i128.checked_pow(zeros)?));
    let product = quantity.mantissa().checked_mul(price.mantissa());
    product.is_some() && product == scaled
}
