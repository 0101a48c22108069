//! Zone and anchor day of a tenant by their dates: when a change of them holds, and what is shown of one to come.

use serde_json::{Value, json};

use super::PolicyVerbs;
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;
use crate::domain::period::{Calendar, Calendars, WindowKind};
use crate::ledger::{CalendarChange, StoredTenant};

impl PolicyVerbs {
    /// A stored tenant as it is shown.
    pub(in crate::operations) fn shown(&self, stored: &StoredTenant) -> Value {
        // Where none is stored there is none to come, whatever the definition says.
        let calendars = Calendars::of(stored.calendars.clone(), Calendar::default());
        self.with_calendars(stored.definition.clone(), &calendars)
    }

    /// While a change of calendar is still to come: the calendar that holds now and those that follow it.
    pub(super) fn with_calendars(&self, mut definition: Value, calendars: &Calendars) -> Value {
        let to_come = calendars.to_come(self.core.clock.now_ms());
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
            fields.insert("calendars".into(), shown.collect());
        }
        definition
    }
}

/// What it does to a tenant's calendars that `asked` is asked for in their place: it holds at once where nothing is booked.
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
