//! What happens in a simulated year, by chance.

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Where tenants live, and when their periods begin.
pub const CALENDARS: [(&str, u8); 5] = [
    ("UTC", 1),
    ("Europe/Berlin", 1),
    ("Pacific/Auckland", 15),
    ("America/Los_Angeles", 31),
    ("Asia/Kolkata", 28),
];
/// A plan that holds at once and includes least.
pub const LOWERED: &str = "small";
/// The pages of a grant of which something is left at the end of each period, for one use a day.
pub const LARGE: u32 = 2_000;
/// Tenants with holds that last for weeks: nothing of theirs expires.
pub const HOLD_FOR_LONG: [usize; 2] = [2, 3];
/// Tenants from this one on move: their grants end with the open period, the only one whose end they cannot change.
const MOVE: usize = 4;

/// How long the simulation is, and how much happens in it.
pub struct Size {
    /// How many there are.
    pub tenants: usize,
    /// How long it is.
    pub days: i64,
    /// Uses of a tenant on a day, beside what is held.
    pub uses: usize,
}

impl Size {
    /// The days on which no job runs in a disturbed year: three months, or half of what is simulated.
    pub fn downtime(&self) -> std::ops::Range<i64> {
        let start = self.days / 4;
        start..start + 92.min(self.days / 2)
    }
}

/// What happens to one tenant on one day, at noon; what it holds is ended an hour before the next noon.
#[derive(Debug, Clone, Default)]
pub struct Day {
    /// Pages that are used.
    pub uses: Vec<u32>,
    /// What is held, and what of it is consumed, if it is not released.
    pub hold: Option<(u32, Option<u32>)>,
    /// What is held for so many days, and what of it is consumed then.
    pub long_hold: Option<(u32, u32, i64)>,
    /// What is held until it expires, and what of it is consumed how many days after all.
    pub expires: Option<(u32, Option<(u32, i64)>)>,
    /// Pages of an event, and how many days ago they were used.
    pub late: Option<(u32, i64)>,
    /// Pages that were counted wrongly, and how many days ago.
    pub adjusted: Option<(u32, i64)>,
    /// A grant that is made.
    pub grant: Option<Grant>,
    /// Whether the last grant is voided.
    pub voids: bool,
    /// The plan that it is put on.
    pub plan: Option<&'static str>,
    /// Where it moves, by the place in [`CALENDARS`].
    pub calendar: Option<usize>,
}

/// A grant of so many pages until a period ends, or until an instant inside one.
#[derive(Debug, Clone)]
pub struct Grant {
    /// How many.
    pub pages: u32,
    /// When it burns.
    pub priority: u8,
    /// How many periods after the open one that is.
    pub periods: i64,
    /// After how many hours it ends, if that is sooner.
    pub hours: Option<i64>,
    /// What it costs, in euros.
    pub price: Option<u32>,
}

/// What happens, by day and tenant.
pub type Year = Vec<Vec<Day>>;

fn day(random: &mut StdRng, of: usize, uses: usize) -> Day {
    let mut pages = |most: u32| random.random_range(1..=most);
    let (held, used) = (pages(20), pages(25) - 1);
    let late = (pages(9), i64::from(pages(20)));
    let after_all = (pages(25) - 1, i64::from(pages(45)));
    let adjusted = (pages(3), i64::from(pages(60)) - 1);
    let (amount, priority) = (pages(60), u8::try_from(40 + pages(20)).unwrap());
    let periods = i64::from(pages(8)).saturating_sub(4).max(0);
    let periods = if of < MOVE { periods } else { 0 };
    let price = Some(pages(90)).filter(|price| price % 2 == 0);
    let hours = Some(i64::from(pages(720))).filter(|hours| hours % 2 == 0);
    let grant = Grant { pages: amount, priority, periods, hours, price };
    let calendar = usize::try_from(pages(5)).unwrap() - 1;
    let uses = (0..uses).map(|_| pages(3)).collect();
    let mut happens = |probability: f64| random.random_bool(probability);
    Day {
        uses: if happens(0.9) { uses } else { Vec::new() },
        hold: happens(0.2).then(|| (held, happens(0.7).then_some(used))),
        long_hold: None,
        expires: happens(0.05).then(|| (held, happens(0.7).then_some(after_all))),
        late: happens(0.03).then_some(late),
        adjusted: happens(0.03).then_some(adjusted),
        grant: happens(0.03).then_some(grant),
        voids: happens(0.02),
        plan: happens(0.015).then(|| if happens(0.5) { "large" } else { "plan" }),
        calendar: (of >= MOVE && happens(0.02)).then_some(calendar),
    }
}

/// A year that this seed makes.
pub fn year(seed: u64, size: &Size) -> Year {
    let random = &mut StdRng::seed_from_u64(seed);
    let days = (0..size.days).map(|_| (0..size.tenants).map(|of| day(random, of, size.uses)).collect());
    let mut year: Year = days.collect();
    // The last change of each tenant lowers its quota at once. Another one would wait for it, where jobs rest.
    for of in 0..size.tenants {
        if let Some(last) = year.iter_mut().map(|day| &mut day[of]).rfind(|day| day.plan.is_some()) {
            last.plan = Some(LOWERED);
        }
    }
    let large = LARGE * u32::try_from(size.uses).unwrap();
    // A grant of one period and one of three are so large that something is left of them at each end.
    for (of, periods) in [(0, 0), (1, 2)] {
        year[9][of].grant = Some(Grant { pages: large, priority: 60, periods, hours: None, price: None });
    }
    // Holds over one close and over two are set against a grant that burns before all else, or among others.
    for (of, (pages, priority)) in HOLD_FOR_LONG.into_iter().zip([(large, 1), (large / 4, 50)]) {
        year[9][of].grant = Some(Grant { pages, priority, periods: 3, hours: None, price: Some(70) });
        for (day, amount, used, days) in
            [(20, 30, 12, 30), (40, 20, 0, 50), (50, 25, 3, 40), (80, 40, 40, 45)]
        {
            year[day][of].long_hold = Some((amount, used, days));
        }
    }
    year
}

/// Noon of a day, counted from the first one.
pub fn noon(first: Date, day: i64) -> Timestamp {
    let noon = first.checked_add(day.days()).unwrap().at(12, 0, 0, 0);
    noon.in_tz("UTC").unwrap().timestamp()
}

/// When a grant ends that is made at `now` in a period that ends at `end`.
pub fn grant_end(now: Timestamp, end: &str, calendar: (&str, u8), grant: &Grant) -> String {
    let end: Timestamp = end.parse().unwrap();
    let end = (0..grant.periods).fold(end, |end, _| next_start(end, calendar));
    let inside = grant.hours.map(|hours| now.checked_add(hours.hours()).unwrap());
    inside.map_or(end, |inside| inside.min(end)).to_string()
}

/// When the first period of a calendar begins after this one ends.
pub fn next_start(end: Timestamp, (zone, anchor_day): (&str, u8)) -> Timestamp {
    let month = end.in_tz(zone).unwrap().date().first_of_month();
    let start = |months: i64| {
        let month = month.checked_add(months.months()).unwrap();
        let day = i8::try_from(anchor_day).unwrap().min(month.days_in_month());
        month.with().day(day).build().unwrap().in_tz(zone).unwrap().timestamp()
    };
    (0..).map(start).find(|start| *start > end).unwrap()
}

/// A tenant's name.
pub fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}
