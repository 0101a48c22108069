//! Reads of the books: usage and reservations, a page at a time, newest first.

use super::Reads;
use crate::domain::counter::Counter;
use crate::domain::ids::{LimitId, TenantId};
use crate::domain::period::{AnchorDay, Calendar, Calendars, DatedCalendar, WindowKind, Zone};
use crate::domain::reservation::{CounterRef, Record};
use crate::domain::resolution::ReservationView;
use crate::ledger::{
    ListedReservation, ParkedState, ReservationCursor, ReservationFilter, TopCursor, TopQuery, UsageCursor,
    UsageQuery,
};
use crate::operations::answers::{Ranked, Reservation, Rows, UsageFigures};
use crate::operations::error::{Answer, OperationError};
use crate::operations::outage::standing;
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::{Ack, Page, ReservationsRequest, TopRequest, UsageRequest};

/// How many reservations are read at once, at least, where only those count that a limit counts.
const COUNTED_AT_ONCE: usize = 500;
/// After how many read reservations a page ends although it is not full.
const READ_MAX: usize = 2_000;

impl Reads {
    /// Usage of one tenant, in the zones that it had, or of all tenants in the zone asked for.
    pub async fn list_usage(&self, request: UsageRequest) -> Answer<Rows<UsageFigures>> {
        let (asked_ms, after) = time_and_place(&request.page, (request.from_ms, request.to_ms));
        let after = after.map(usage_place).transpose()?;
        let (zones, (from_ms, to_ms)) = self
            .zones_and_span(request.tenant.as_ref(), (request.zone.clone(), request.span), asked_ms)
            .await?;
        let limit = request.page.rows_max();
        let query = UsageQuery {
            tenant: request.tenant,
            meter: request.meter,
            subject: None,
            from_ms,
            to_ms,
            granularity: request.granularity,
            zones,
            group_by: request.group_by,
            after,
            limit: limit + 1,
        };
        let page = self.books.usage(&query).await?;
        let place =
            |row: &UsageFigures| format!("{from_ms}..{to_ms} {}:{}", row.place.start_ms, row.place.group);
        Ok(Rows::page(page.rows, limit, place).read_at(page.as_of_ms))
    }

    /// Who used the most of a meter, the largest first.
    pub async fn top_consumers(&self, request: TopRequest) -> Answer<Rows<Ranked>> {
        let (asked_ms, after) = time_and_place(&request.page, (request.from_ms, request.to_ms));
        let after = after.map(top_place).transpose()?;
        let (_, (from_ms, to_ms)) =
            self.zones_and_span(request.tenant.as_ref(), (None, None), asked_ms).await?;
        let limit = request.page.rows_max();
        let query = TopQuery {
            meter: request.meter,
            tenant: request.tenant,
            by: request.by,
            from_ms,
            to_ms,
            after,
            limit: limit + 1,
        };
        let (ranked, as_of_ms) = self.books.top_usage(&query).await?;
        let place = |row: &Ranked| format!("{from_ms}..{to_ms} {}:{}", row.place.consumed, row.place.names);
        Ok(Rows::page(ranked, limit, place).read_at(as_of_ms))
    }

    /// The zones of a tenant, each from an instant on, or the one asked for over all of them; the time asked for, from
    /// and to. Where no `from` is asked for, it is the start of the current window.
    async fn zones_and_span(
        &self,
        tenant: Option<&TenantId>,
        (zone, window): (Option<Zone>, Option<WindowKind>),
        (from_ms, to_ms): (Option<i64>, Option<i64>),
    ) -> Answer<(Vec<(i64, String)>, (i64, i64))> {
        let now_ms = self.core.clock.now_ms();
        let (calendars, start_ms): (Calendars, i64) = match tenant {
            Some(tenant) => {
                let entry = self.core.policy.named_tenant(tenant).await?;
                let window = entry.calendars.window(window.unwrap_or(WindowKind::Period), now_ms);
                (entry.calendars.clone(), window.start_ms)
            }
            None => {
                let calendar = Calendar::new(zone.unwrap_or_default(), AnchorDay::default());
                let window = calendar.window(window.unwrap_or(WindowKind::Month), now_ms);
                (calendar.into(), window.start_ms)
            }
        };
        let zone_of = |dated: DatedCalendar| (dated.from_ms, dated.calendar.zone.name().to_owned());
        let mut zones: Vec<_> = calendars.dated().into_iter().map(zone_of).collect();
        // A calendar may change in its anchor day alone.
        zones.dedup_by(|later, earlier| later.1 == earlier.1);
        let span_ms = (from_ms.unwrap_or(start_ms), to_ms.unwrap_or(now_ms.saturating_add(1)));
        if span_ms.0 >= span_ms.1 {
            return Err(OperationError::Malformed(
                "`from` must be before `to`; where absent, they are the start of the period and now".into(),
            ));
        }
        Ok((zones, span_ms))
    }

    /// A tenant's reservations, from the ledger. A page has fewer of them than asked for, or none, where many were read
    /// that the filter leaves out: the next one goes on.
    pub async fn list_reservations(&self, request: ReservationsRequest) -> Answer<Rows<Reservation>> {
        let entry = self.core.policy.named_tenant(&request.tenant).await?;
        let counted_by = request.counted_by.as_ref();
        let counting = counted_by.map(|limit| Counting::new(&entry, limit, self.core.gate_now_ms()));
        let filter =
            ReservationFilter { state: request.state, subject: request.subject, meter: request.meter };
        let mut after = request.page.after.as_deref().map(|text| self.reservation_place(text)).transpose()?;
        let limit = request.page.rows_max();
        let rows = counting.as_ref().map_or(limit + 1, |_| (limit + 1).max(COUNTED_AT_ONCE));
        let (mut found, mut read) = (Vec::with_capacity(limit + 1), 0);
        // Parked calls may change whether a reservation fits the filter, so pages are read until one is full.
        while found.len() <= limit {
            if let Some(last) = after.filter(|_| read >= READ_MAX) {
                let data = found.into_iter().map(|(_, reservation)| reservation).collect();
                return Ok(Rows { data, next: Some(place_text(last)), as_of_ms: None });
            }
            let listed = self.core.ledger.reservations_of(&request.tenant, &filter, after, rows).await?;
            let is_last = listed.len() < rows;
            read += listed.len();
            after = listed.last().map(|listed| listed.place);
            let is_counted =
                |found: &Reservation| counting.as_ref().is_none_or(|limit| limit.counts(&found.record));
            // The place is the row's: a parked event stands where it was taken, and its record says when it happened.
            found.extend(
                listed
                    .into_iter()
                    .filter_map(|listed| Some((listed.place, found_in(listed, &filter).filter(is_counted)?))),
            );
            if is_last {
                break;
            }
        }
        let page = Rows::page(found, limit, |(place, _)| place_text(*place));
        Ok(page.map(|(_, reservation)| reservation))
    }

    fn reservation_place(&self, text: &str) -> Answer<ReservationCursor> {
        let (born, id) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
        Ok(ReservationCursor {
            born_at_ms: born.parse().map_err(|_| OperationError::bad_cursor())?,
            id: self.ids.parse(id).map_err(|_| OperationError::bad_cursor())?,
        })
    }
}

fn place_text(place: ReservationCursor) -> String {
    format!("{}:{}", place.born_at_ms, place.id)
}

/// A limit as it counts now.
struct Counting<'a> {
    entry: &'a TenantEntry,
    limit: &'a LimitId,
    at_ms: i64,
    /// Its counters of the tenant's own scope.
    of_tenant: Vec<Counter>,
}

impl<'a> Counting<'a> {
    fn new(entry: &'a TenantEntry, limit: &'a LimitId, at_ms: i64) -> Self {
        Self { entry, limit, at_ms, of_tenant: entry.tenant_counters(at_ms).counters }
    }

    /// Whether a reservation moved one of its counters: a shadow limit that would have refused it did not count it.
    fn counts(&self, record: &Record) -> bool {
        let Some(rest) = &record.body.rest else { return false };
        let is_its = |place: &CounterRef| match place.scope_index.checked_sub(1) {
            None => self.is_among(&self.of_tenant, place),
            Some(index) => rest.subjects.get(usize::from(index)).is_some_and(|(subject, _)| {
                self.is_among(&self.entry.subject_counters(subject, self.at_ms).counters, place)
            }),
        };
        let mut numbered = rest.counters.iter().enumerate();
        numbered.any(|(number, place)| !record.head.leaves_out(number) && is_its(place))
    }

    fn is_among(&self, counters: &[Counter], place: &CounterRef) -> bool {
        let is_its = |counter: &Counter| counter.limit().is_some_and(|limit| limit.id == *self.limit);
        counters.iter().any(|counter| counter.field == place.field && is_its(counter))
    }
}

/// A reservation of a list with its parked calls applied; none where it does not fit the filter.
fn found_in(listed: ListedReservation, filter: &ReservationFilter) -> Option<Reservation> {
    let degraded = listed.known.parked.iter().any(|row| row.state == ParkedState::Waiting);
    let ReservationView { record } = standing(&listed.known)?;
    let resolved_at_ms = listed.known.row.filter(|_| !degraded).and_then(|row| row.resolved_at_ms);
    let new = Reservation::new(listed.place.id, record);
    let found = Reservation { ack: Ack::Ledger, degraded, resolved_at_ms, ..new };
    filter.fits(&found.record).then_some(found)
}

/// From when and until when (unix ms), as far as it is said.
type Asked = (Option<i64>, Option<i64>);

/// The time that a page is of, and its place in the list: all pages are of the time that the first one was of.
fn time_and_place(page: &Page, asked_ms: Asked) -> (Asked, Option<&str>) {
    let Some(text) = page.after.as_deref() else { return (asked_ms, None) };
    let read = || {
        let (time, place) = text.split_once(' ')?;
        let (from, to) = time.split_once("..")?;
        Some(((Some(from.parse::<i64>().ok()?), Some(to.parse::<i64>().ok()?)), Some(place)))
    };
    // A cursor of an earlier version names no time.
    read().unwrap_or((asked_ms, Some(text)))
}

fn top_place(text: &str) -> Answer<TopCursor> {
    let (consumed, names) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    let consumed = consumed.parse().map_err(|_| OperationError::bad_cursor())?;
    Ok(TopCursor { consumed, names: names.to_owned() })
}

fn usage_place(text: &str) -> Answer<UsageCursor> {
    let (start, group) = text.split_once(':').ok_or_else(OperationError::bad_cursor)?;
    Ok(UsageCursor {
        start_ms: start.parse().map_err(|_| OperationError::bad_cursor())?,
        group: group.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_of_the_time_in_its_cursor_or_else_of_the_time_asked_for() {
        let asked = (Some(1), None);
        let read = |after: Option<&str>| {
            let page = Page { limit: 1, after: after.map(str::to_owned) };
            let (time, place) = time_and_place(&page, asked);
            (time, place.map(str::to_owned))
        };
        assert_eq!(read(None), (asked, None));
        assert_eq!(read(Some("5..-7 9:a b")), ((Some(5), Some(-7)), Some("9:a b".to_owned())));
        for earlier in ["9:a", "9:a b", "9:5..7 a", "9.5:..", "-9:a..b c"] {
            assert_eq!(read(Some(earlier)), (asked, Some(earlier.to_owned())), "of an earlier version");
        }
    }
}
