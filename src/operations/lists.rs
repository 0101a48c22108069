//! Reads of the books: usage, entries, reservations, a page at a time, newest first.

use super::answers::*;
use super::degraded::standing;
use super::present::{self, Circumstances, instant};
use super::requests::{EntriesRequest, Page, ReservationsRequest, UsageRequest};
use super::{Answer, OperationError, Operations};
use crate::domain::amount::Amount;
use crate::domain::ids::{ReservationId, TenantId};
use crate::domain::movements::EntryFlags;
use crate::domain::reservation::Record;
use crate::domain::resolution::Standing;
use crate::ledger::{
    EntryFilter, EntryPlace, ListedReservation, ParkedState, ReservationFilter, ReservationPlace,
    StoredEntry, UsageFigures, UsagePlace, UsageQuery,
};

impl Operations {
    /// Usage of one tenant in its own zone, or of all tenants in the zone asked for.
    pub async fn list_usage(&self, request: UsageRequest) -> Answer<PageAnswer<UsageRow>> {
        let now_ms = self.clock.now_ms();
        let (zone, start_ms) = self.zone_and_start(&request, now_ms).await?;
        let (from_ms, to_ms) =
            (request.from_ms.unwrap_or(start_ms), request.to_ms.unwrap_or(now_ms.saturating_add(1)));
        if from_ms >= to_ms {
            return Err(OperationError::Malformed(
                "`from` must be before `to`; where absent, they are the start of the period and now".into(),
            ));
        }
        let limit = limit_of(&request.page);
        let query = UsageQuery {
            tenant: request.tenant,
            meter: request.meter,
            subject: None,
            from_ms,
            to_ms,
            granularity: request.granularity,
            zone,
            group_by: request.group_by.clone(),
            after: request.page.after.as_deref().map(usage_place).transpose()?,
            limit: limit + 1,
        };
        let mut page = self.ledger.usage(&query).await?;
        let has_more = page.rows.len() > limit;
        page.rows.truncate(limit);
        let next = page
            .rows
            .last()
            .filter(|_| has_more)
            .map(|row| format!("{}:{}", row.place.start_ms, row.place.group));
        let data = page.rows.into_iter().map(usage_row).collect::<Answer<_>>()?;
        Ok(PageAnswer { data, next, as_of: Some(instant(page.as_of_ms)) })
    }

    async fn zone_and_start(&self, request: &UsageRequest, now_ms: i64) -> Answer<(String, i64)> {
        use crate::domain::period::{AnchorDay, Calendar, WindowKind, Zone};
        match &request.tenant {
            Some(tenant) => {
                let entry = self.known(tenant).await?;
                Ok((entry.calendars.at(now_ms).zone.name().to_owned(), entry.windows(now_ms).period.start_ms))
            }
            None => {
                let zone = match &request.zone {
                    Some(name) => Zone::parse(name)
                        .map_err(|error| OperationError::field("/zone", error.to_string()))?,
                    None => Zone::default(),
                };
                let name = zone.name().to_owned();
                let month = Calendar::new(zone, AnchorDay::default()).window(WindowKind::Month, now_ms);
                Ok((name, month.start_ms))
            }
        }
    }

    /// A tenant's entries.
    pub async fn list_entries(&self, request: EntriesRequest) -> Answer<PageAnswer<EntryRow>> {
        self.known(&request.tenant).await?;
        let filter = EntryFilter {
            meter: request.meter,
            from_ms: request.from_ms,
            to_ms: request.to_ms,
            operation_id: request.reservation.map(ReservationId::uuid),
        };
        let after = request.page.after.as_deref().map(entry_place).transpose()?;
        let limit = limit_of(&request.page);
        let mut rows = self.ledger.entries_of(&request.tenant, &filter, after, limit + 1).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| {
            let place = row.place();
            format!(
                "{}:{}:{}:{}:{}",
                place.happened_at_ms, place.operation_id, place.step, place.line, place.leg
            )
        });
        Ok(PageAnswer { data: rows.iter().map(entry_row).collect::<Answer<_>>()?, next, as_of: None })
    }

    /// A tenant's reservations, as the ledger has them.
    pub async fn list_reservations(
        &self,
        request: ReservationsRequest,
    ) -> Answer<PageAnswer<ReservationAnswer>> {
        self.known(&request.tenant).await?;
        let filter = ReservationFilter { state: request.state, subject: None, meter: None };
        let mut after = request.page.after.as_deref().map(|text| self.reservation_place(text)).transpose()?;
        let limit = limit_of(&request.page);
        let mut found = Vec::with_capacity(limit + 1);
        // What parked calls changed may not fit the filter: pages are read until one is full.
        while found.len() <= limit {
            let listed = self.ledger.reservations_of(&request.tenant, &filter, after, limit + 1).await?;
            let is_last = listed.len() <= limit;
            after = listed.last().map(|listed| listed.place);
            found.extend(listed.into_iter().filter_map(|listed| Listed::of(listed, &filter)));
            if is_last {
                break;
            }
        }
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found
            .last()
            .filter(|_| has_more)
            .map(|listed| format!("{}:{}", listed.place.born_at_ms, listed.place.id));
        let data = found
            .into_iter()
            .map(|listed| present::reservation(listed.place.id, &listed.record, listed.told))
            .collect();
        Ok(PageAnswer { data, next, as_of: None })
    }

    async fn known(&self, tenant: &TenantId) -> Answer<std::sync::Arc<super::policy_store::TenantEntry>> {
        let found = self.policy.find_tenant(tenant).await?;
        found.ok_or_else(|| OperationError::NotFound(format!("there is no tenant {tenant}")))
    }

    fn reservation_place(&self, text: &str) -> Answer<ReservationPlace> {
        let (born, id) = text.split_once(':').ok_or_else(bad_cursor)?;
        Ok(ReservationPlace {
            born_at_ms: born.parse().map_err(|_| bad_cursor())?,
            id: self.ids.parse(id).map_err(|_| bad_cursor())?,
        })
    }
}

/// A reservation of a list, as it stands with its parked calls.
struct Listed {
    place: ReservationPlace,
    record: Record,
    told: Circumstances,
}

impl Listed {
    /// Nothing where it does not fit the filter.
    fn of(listed: ListedReservation, filter: &ReservationFilter) -> Option<Self> {
        let is_parked = listed.known.parked.iter().any(|row| row.state == ParkedState::Waiting);
        let Standing { record } = standing(&listed.known)?;
        let resolved_at_ms = listed.known.row.filter(|_| !is_parked).and_then(|row| row.resolved_at_ms);
        let told = Circumstances {
            ack_ledger: true,
            degraded: is_parked,
            resolved_at_ms,
            ..Circumstances::default()
        };
        filter.fits(&record).then_some(Self { place: listed.place, record, told })
    }
}

pub(super) fn limit_of(page: &Page) -> usize {
    usize::try_from(page.limit).unwrap_or(1000).clamp(1, 1000)
}

pub(super) fn bad_cursor() -> OperationError {
    OperationError::Malformed("the cursor does not read; start again without it".into())
}

fn usage_place(text: &str) -> Answer<UsagePlace> {
    let (start, group) = text.split_once(':').ok_or_else(bad_cursor)?;
    Ok(UsagePlace { start_ms: start.parse().map_err(|_| bad_cursor())?, group: group.to_owned() })
}

fn usage_row(row: UsageFigures) -> Answer<UsageRow> {
    Ok(UsageRow {
        start: row.start_ms.map(instant),
        tenant: row.tenant.map(|tenant| tenant.to_string()),
        plan: row.plan,
        meter: row.meter.to_string(),
        operation: row.operation,
        subject: row
            .subject
            .map(|subject| SubjectAnswer { kind: subject.kind.to_string(), id: subject.id.to_string() }),
        consumed: row.consumed.normalize().to_string(),
        count: i64::try_from(row.count).unwrap_or(i64::MAX),
        excess: row.excess.normalize().to_string(),
        late: row.late.normalize().to_string(),
        corrections: Amount::ZERO.to_string(),
    })
}

fn entry_place(text: &str) -> Answer<EntryPlace> {
    let parts: Vec<_> = text.split(':').collect();
    let [at, id, step, line, leg] = parts.as_slice() else { return Err(bad_cursor()) };
    Ok(EntryPlace {
        happened_at_ms: at.parse().map_err(|_| bad_cursor())?,
        operation_id: id.parse().map_err(|_| bad_cursor())?,
        step: step.parse().map_err(|_| bad_cursor())?,
        line: line.parse().map_err(|_| bad_cursor())?,
        leg: leg.parse().map_err(|_| bad_cursor())?,
    })
}

fn entry_row(stored: &StoredEntry) -> Answer<EntryRow> {
    let entry = &stored.entry;
    Ok(EntryRow {
        operation_id: entry.operation_id.to_string(),
        step: entry.step.into(),
        meter: entry.meter.to_string(),
        period_start: instant(entry.period_start_ms),
        credit: entry.credit.as_str().into(),
        debit: entry.debit.as_str().into(),
        amount: entry.amount.to_string(),
        class: entry.class.as_str().into(),
        flags: flag_words(entry.flags),
        happened_at: instant(entry.happened_at_ms),
        booked_at: instant(stored.booked_at_ms),
    })
}

fn flag_words(flags: EntryFlags) -> Vec<String> {
    let words = [
        (flags.excess, "excess"),
        (flags.late, "late"),
        (flags.carried, "carried"),
        (flags.degraded, "degraded"),
    ];
    words.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()).collect()
}
