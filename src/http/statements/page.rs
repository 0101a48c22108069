//! A statement as a page to read and to print. It loads nothing and runs nothing.

use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_SECURITY_POLICY;
use askama::Template;

use super::wording::{corrected, described};
use crate::domain::price::PriceModel;
use crate::domain::rating::{Line, UsageLine};
use crate::http::problem::{Code, Problem};
use crate::http::shapes::{StatementAnswer, StatementLineAnswer, TierAnswer};
use crate::operations::answers::{StatementDetails, StatementLine};

/// Only the page's own style applies.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; sandbox";

#[derive(Template)]
#[template(path = "statement.html")]
struct Page<'a> {
    draft: &'a StatementAnswer,
    lines: Vec<PageLine<'a>>,
}

impl Page<'_> {
    /// What it is, with its number.
    fn title(&self) -> String {
        let name = if self.draft.corrects.is_some() { "Credit note" } else { "Statement" };
        self.draft.number.map_or_else(|| name.to_owned(), |number| format!("{name} {number}"))
    }
}

/// A line as people read it.
struct PageLine<'a> {
    what: String,
    notes: Vec<String>,
    quantity: String,
    price: String,
    amount: &'a str,
    tiers: &'a [TierAnswer],
}

/// The page of a statement, whose `answer` is the same in the words of JSON.
pub(super) fn answer(draft: &StatementDetails, answer: &StatementAnswer) -> Result<HttpResponse, Problem> {
    let page = page(draft, answer).map_err(|fault| {
        tracing::error!(%fault, "a page could not be written");
        Problem::new(Code::Internal, "The service failed to answer; the fault has been logged.")
    })?;
    Ok(HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .body(page))
}

pub(super) fn page(draft: &StatementDetails, answer: &StatementAnswer) -> Result<String, askama::Error> {
    let lines = draft.lines.iter().zip(&answer.lines).map(|(line, written)| {
        let (amount, tiers) = (written.amount.as_str(), written.tiers.as_slice());
        let line = match line {
            StatementLine::Billed(line) => line,
            StatementLine::Corrected(line) => {
                let notes = vec![format!("billed: {}, right: {}", line.billed, line.corrected)];
                let (quantity, price) = (String::new(), String::new());
                return PageLine { what: corrected(line), notes, quantity, price, amount, tiers };
            }
        };
        let (quantity, price, notes) = match line {
            Line::Usage(usage) => priced(usage),
            Line::Discount { percent, base, .. } => {
                (String::new(), percent.map_or_else(String::new, |percent| format!("{percent} %")), of(base))
            }
            Line::Grant { quantity, unit, .. } => {
                (quantity.to_string(), unit.map_or_else(String::new, |unit| unit.to_string()), Vec::new())
            }
            Line::Adjustment { .. } => (String::new(), String::new(), adjusted(written)),
            Line::MinimumCommitment { .. } => Default::default(),
            Line::Tax { percent, base, .. } => (String::new(), format!("{percent} %"), of(base)),
        };
        PageLine { what: described(line), notes, quantity, price, amount, tiers }
    });
    Page { draft: answer, lines: lines.collect() }.render()
}

/// What a discount or a tax is of.
fn of(base: &impl ToString) -> Vec<String> {
    vec![format!("of {}", base.to_string())]
}

/// When what is adjusted happened, and what it corrects.
fn adjusted(line: &StatementLineAnswer) -> Vec<String> {
    let happened = line.happened_at.iter().map(|at| format!("happened: {at}"));
    happened.chain(line.corrects_operation.iter().map(|id| format!("corrects: {id}"))).collect()
}

/// The quantity, the price and the notes of a usage line.
fn priced(usage: &UsageLine) -> (String, String, Vec<String>) {
    if usage.model == PriceModel::Flat {
        return Default::default();
    }
    let price = match (&usage.unit, &usage.package_size) {
        (Some(unit), Some(size)) => format!("{unit} for {size}"),
        (Some(unit), None) => unit.to_string(),
        (None, _) => String::new(),
    };
    let mut notes = Vec::new();
    if usage.charged != usage.quantity {
        notes.push(format!("charged: {}, included: {}", usage.charged, usage.included));
    }
    notes.extend(usage.packages.map(|packages| format!("packages begun: {packages}")));
    notes.extend(usage.minimum.as_ref().map(|minimum| format!("raised to the minimum of {minimum}")));
    (usage.quantity.to_string(), price, notes)
}
