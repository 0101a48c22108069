//! Reservations and events.

use super::{Rows, instant};
use crate::domain::boundary::{decode_boundary, is_boundary};
use crate::domain::checkpoint::{Checkpoint, is_checkpoint};
use crate::domain::codec::Undecodable;
use crate::domain::event::{Change, Event};
use crate::domain::ids::OutboxId;
use crate::domain::reservation::{BodyDetails, CounterRef, Head, LineRule, LineUnits, PlaceCapacity, Record};

/// A reservation's record.
pub(super) fn record_rows(bytes: &[u8]) -> Result<Rows, Undecodable> {
    let record = Record::decode(bytes)?;
    let (head, body) = (&record.head, &record.body);
    let mut rows: Rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    row("tenant", body.tenant.to_string());
    row("state", head.state.to_string());
    row("late", head.late.to_string());
    row("degraded", head.degraded.to_string());
    row("step", head.step.to_string());
    row("last event", head.last_event().to_string());
    row("born at", instant(head.born_at_ms));
    row("expires at", instant(head.expires_at_ms));
    row("latest expiry", instant(head.latest_expiry_ms));
    for (number, (rule, units)) in body.lines.iter().zip(&record.units).enumerate() {
        row(&format!("line {number}"), format!("{}; {}", line_text(rule, units), rule_text(rule)));
    }
    row("fingerprint", hex(&body.fingerprint.0));
    match &body.rest {
        Some(rest) => rows.extend(rest_rows(head, rest)),
        None => row("body", "cut to a tombstone".into()),
    }
    Ok(rows)
}

fn rest_rows(head: &Head, rest: &BodyDetails) -> Rows {
    let mut rows: Rows = Vec::new();
    for (number, (subject, hash)) in (1..).zip(&rest.subjects) {
        rows.push((format!("scope {number}"), format!("{} {} {}", subject.kind, subject.id, hash.as_str())));
    }
    for (number, place) in rest.counters.iter().enumerate() {
        let unmoved = if head.leaves_out(number) { ", not moved" } else { "" };
        rows.push((format!("counter {number}"), place_text(place) + unmoved));
    }
    let operation = rest.operation.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let facts = [
        ("keyed", rest.keyed.to_string()),
        ("operation", operation),
        ("policy version", rest.policy_version.to_string()),
        ("period from", instant(rest.period_ms.0)),
        ("period to", instant(rest.period_ms.1)),
        ("hour from", instant(rest.hour_start_ms)),
        ("metadata", rest.metadata.clone()),
    ];
    rows.extend(facts.map(|(name, value)| (name.to_owned(), value)));
    rows
}

fn line_text(rule: &LineRule, units: &LineUnits) -> String {
    let amount = |units: crate::domain::amount::Units| units.to_amount(rule.decimals);
    let LineUnits { held, consumed, uncharged } = *units;
    format!(
        "{}: held {}, consumed {}, uncharged {}",
        rule.meter,
        amount(held),
        amount(consumed),
        amount(uncharged)
    )
}

fn rule_text(rule: &LineRule) -> String {
    let unbooked = if rule.booked { "" } else { ", not booked" };
    format!(
        "decimals {}, on_excess {:?}, on_late {:?} within {} s{unbooked}",
        rule.decimals.count(),
        rule.on_excess,
        rule.on_late,
        rule.late_within_seconds
    )
}

fn place_text(place: &CounterRef) -> String {
    let lines: Vec<_> = place.lines.iter().map(|(line, weight)| format!("line {line} × {weight}")).collect();
    let cap = match place.cap {
        None => String::new(),
        Some(PlaceCapacity::Quota) => ", capped by the quota".into(),
        Some(PlaceCapacity::Limit(units)) => format!(", capped at {} units", units.get()),
    };
    let counted = match place.parameters.window() {
        Some(window) => format!("calendar from {}", instant(window.start_ms)),
        None => format!("{:?}", place.parameters),
    };
    let (field, light) = (place.field.as_str(), if place.is_light { " (light)" } else { "" });
    format!("{field} of scope {}{light}, {counted}, {}{cap}", place.scope_index, lines.join(", "))
}

/// One event, in a line.
pub(super) fn event_text(id: OutboxId, bytes: &[u8]) -> String {
    let read = if is_checkpoint(bytes) {
        checkpoint_text(id, bytes)
    } else if is_boundary(bytes) {
        decode_boundary(bytes).map(|at_ms| format!("boundary at {}", instant(at_ms)))
    } else {
        change_text(id, bytes)
    };
    read.unwrap_or_else(|Undecodable(reason)| format!("cannot be decoded: {reason}"))
}

fn checkpoint_text(id: OutboxId, bytes: &[u8]) -> Result<String, Undecodable> {
    let checkpoint = Checkpoint::decode(id, bytes)?;
    Ok(format!("checkpoint of {} counters", checkpoint.with_figures().count()))
}

fn change_text(id: OutboxId, bytes: &[u8]) -> Result<String, Undecodable> {
    let event = Event::decode(id, bytes)?;
    let kind = match &event.change {
        Change::Reserve(_) => "reserve",
        Change::Usage(_) => "usage",
        Change::Consume { is_final: true, .. } => "consume, final",
        Change::Consume { is_final: false, .. } => "consume, partial",
        Change::Release { .. } => "release",
        Change::Extend { .. } => "extend",
        Change::Expire { .. } => "expire",
    };
    let line = |units: &LineUnits| format!("held {}, consumed {}", units.held.get(), units.consumed.get());
    let lines: Vec<_> = event.units().iter().map(line).collect();
    let at = instant(event.gate_time_ms);
    Ok(format!(
        "{kind} of {} at {at}, {}, units: {}",
        event.reservation,
        event.head().state,
        lines.join("; ")
    ))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
