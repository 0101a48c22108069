//! A tenant's zone, anchor day and currency by their dates: when a change of them takes effect, and how one to come is
//! shown.

use serde_json::{Value, json};

use super::PolicyVerbs;
use crate::domain::currencies::Currencies;
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;
use crate::domain::period::{Calendar, Calendars, WindowKind};
use crate::domain::tenant::{CALENDARS, CURRENCIES};
use crate::ledger::{CalendarChange, StoredTenant};

impl PolicyVerbs {
    /// A stored tenant as it is shown.
    pub(in crate::operations) fn shown(&self, stored: &StoredTenant) -> Value {
        // Where no calendars are stored, none is still to come, whatever the definition says.
        let calendars = Calendars::of(stored.calendars.clone(), Calendar::default());
        self.with_dates(stored.definition.clone(), &calendars, &stored.currencies.clone().into())
    }

    /// Adds the current calendar and those to come, while a change of calendar is still to come, and currencies
    /// likewise.
    pub(super) fn with_dates(
        &self,
        mut definition: Value,
        calendars: &Calendars,
        currencies: &Currencies,
    ) -> Value {
        let now_ms = self.core.clock.now_ms();
        let to_come = calendars.to_come(now_ms);
        if let (Some(fields), false) = (definition.as_object_mut(), to_come.is_empty()) {
            let shown = to_come.iter().map(|dated| {
                let (zone, anchor_day) = (dated.calendar.zone.name(), u8::from(dated.calendar.anchor_day));
                match dated.from_ms {
                    0 => json!({ "time_zone": zone, "anchor_day": anchor_day }),
                    from_ms => {
                        json!({ "from": rfc3339(from_ms), "time_zone": zone, "anchor_day": anchor_day })
                    }
                }
            });
            fields.insert(CALENDARS.into(), shown.collect());
        }
        let to_come = currencies.to_come(now_ms);
        if let (Some(fields), false) = (definition.as_object_mut(), to_come.is_empty()) {
            let shown = to_come.iter().map(|dated| match dated.from_ms {
                0 => json!({ "currency": dated.currency }),
                from_ms => json!({ "from": rfc3339(from_ms), "currency": dated.currency }),
            });
            fields.insert(CURRENCIES.into(), shown.collect());
        }
        definition
    }
}

/// The change of a tenant's calendars when `asked` replaces the current one. It takes effect at once where nothing is
/// booked.
pub(super) fn calendar_change(
    tenant: &TenantId,
    before: &Calendars,
    asked: Calendar,
    unbooked: bool,
    now_ms: i64,
) -> CalendarChange {
    let calendars = (!unbooked).then(|| before.changed_to(asked, now_ms));
    let next_start_ms = before.window(WindowKind::Period, now_ms).end_ms;
    CalendarChange { tenant: tenant.clone(), calendars, next_start_ms }
}
