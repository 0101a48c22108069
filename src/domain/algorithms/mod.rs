//! How limits count: the one list of algorithms, and what each algorithm's file must provide.
//!
//! An algorithm is a file here, a file of the same name in `lua/algorithms/`, and a line in the list below.

pub mod anomaly;
pub mod bucket;
pub mod calendar;
pub mod cell;
pub mod concurrency;
mod fields;
pub mod fixed_window;
pub mod interval;
pub mod leaky_bucket;
pub mod sliding_counter;
pub mod sliding_log;
pub mod token_bucket;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, Decimals, UNITS_MAX, Units};
use super::codec::{Reader, Undecodable};
use super::field_error::FieldError;
use super::limit::Span;
use super::period::{Window, Windows};
use cell::{Cell, Loaded, Moment};
pub use fields::{EntriesMax, Fields, SpanSeconds, SubWindows};

/// Calls a macro with the list: `module::Name = code`. Calls and records contain the code, so it is never reused.
macro_rules! for_each_algorithm {
    ($define:ident) => {
        $define! {
            /// By windows of the calendar, in the tenant's zone.
            calendar::Calendar = 1;
            /// By windows of one length, which begin with the first use or at multiples of the length.
            fixed_window::FixedWindow = 2;
            /// By a bucket that refills steadily.
            token_bucket::TokenBucket = 3;
            /// By a window that slides in steps.
            sliding_counter::SlidingCounter = 4;
            /// By what runs at once.
            concurrency::Concurrency = 5;
            /// By a queue that drains steadily.
            leaky_bucket::LeakyBucket = 6;
            /// By a list of all that was admitted.
            sliding_log::SlidingLog = 7;
            /// By the time since the last call; an operation's, and no limit's.
            interval::Interval = 8;
            /// By how much sooner than usual a subject's calls come; a limit's `anomaly`, and no limit's own.
            anomaly::Anomaly = 9;
        }
    };
}

/// How a limit counts, as defined in policy.
pub trait Definition: Sized {
    /// The parameters by which a counter of it counts at one instant.
    type Parameters: Counting;
    /// Whether the ledger can restore what was counted, so that it survives a loss of the gate's memory.
    const IS_RESTORABLE: bool;
    /// Whether limits may name it.
    const IS_OF_LIMITS: bool = true;
    /// Reads a limit's fields; the error names the field that is missing or out of place.
    fn read(fields: &Fields) -> Result<Self, String>;
    /// Writes the fields that [`Self::read`] reads.
    fn write(&self, fields: &mut Fields);
    /// The fields that make it another counter when they change, in words that never change.
    fn signature(&self) -> Vec<String>;
    /// The stretch of time over which it counts, for answers.
    fn span(&self) -> Span;
    /// What is wrong with it for a capacity of a meter, as pointers into the limit; nothing for most.
    fn errors(&self, _capacity: Amount, _decimals: Decimals) -> Vec<FieldError> {
        Vec::new()
    }
    /// The largest capacity that it may count by, in the meter's smallest units: one that a factor makes larger is cut.
    fn capacity_max(&self, _decimals: Decimals) -> i64 {
        UNITS_MAX
    }
    /// The parameters under the tenant's current windows, in the meter's smallest units.
    fn parameters(&self, windows: &Windows, decimals: Decimals, capacity: Units) -> Self::Parameters;
}

/// What a counter counts of one line of an open reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineHold {
    /// How many units it counts for one unit of the line.
    pub weight: i64,
    /// Units held at the reserve.
    pub held: i64,
    /// Units consumed so far.
    pub consumed: i64,
}

/// The parameters by which a counter counts, in calls and records; and the transitions that the scripts are tested
/// against.
pub trait Counting: Copy {
    /// Packs it.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads what [`Self::encode`] packs.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable>;
    /// The calendar's window; none for an algorithm without one, which the ledger cannot restore.
    fn window(&self) -> Option<Window> {
        None
    }
    /// Whether everything that it counts leaves it at once, at the end of a window.
    fn has_windows(&self) -> bool {
        false
    }
    /// Whether a restore after a loss of the gate's memory counts the open reservations' holds in it.
    fn holds_survive(&self) -> bool {
        self.window().is_some()
    }
    /// What amounts of so many units need; `is_usage`: they are used up at once.
    fn need(&self, units: i64, _is_usage: bool) -> i64 {
        units
    }
    /// The most units that fit into this room.
    fn most(&self, room: i64) -> i64 {
        room
    }
    /// What an open reservation holds.
    fn held(&self, lines: &[LineHold]) -> i64 {
        let held = |line: &LineHold| line.weight.saturating_mul((line.held - line.consumed).max(0));
        lines.iter().map(held).fold(0, i64::saturating_add)
    }
    /// The latest time at which everything counted at `at_ms` has left a counter of this capacity (unix ms).
    fn ends_at_ms(&self, at_ms: i64, capacity: i64) -> i64;
    /// The cell as it counts work of one instant.
    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded;
    /// Whether the remaining units of this cell cut a consume at `now_ms`.
    fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool;
    /// How many more units fit beside those consumed and those held.
    fn room(&self, consumed: i64, reserved: i64, capacity: i64) -> i64 {
        capacity - consumed - reserved
    }
    /// How many more units fit of new work that it was loaded for.
    fn room_for_new_work(&self, loaded: &Loaded, capacity: i64) -> i64 {
        self.room(loaded.cell.consumed, loaded.cell.reserved, capacity)
    }
    /// How long new work has to wait before it may start, in ms.
    fn delay_ms(&self, _loaded: &Loaded) -> i64 {
        0
    }
    /// Holds units until `ends_at_ms`.
    fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
        loaded.cell.hold(units, ends_at_ms);
    }
    /// Counts units that were not held.
    fn charge(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.consumed += units;
    }
    /// Counts units that were held.
    fn settle(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.consumed += units;
        loaded.cell.let_go(units);
    }
    /// Gives back units that were held.
    fn give_back(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.let_go(units);
    }
}

macro_rules! define {
    ($($(#[$doc:meta])* $module:ident::$name:ident = $code:literal;)*) => {
        /// An algorithm's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AlgorithmName {
            $($(#[$doc])* $name,)*
        }

        impl AlgorithmName {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Whether limits may name it.
            pub fn is_of_limits(self) -> bool {
                match self { $(Self::$name => $module::$name::IS_OF_LIMITS,)* }
            }

            /// Its word in policy and answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($module),)* }
            }
        }

        /// An algorithm with its parameters, as defined in policy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$doc])* $name($module::$name),)*
        }

        impl Algorithm {
            /// Reads the fields of a limit; the error names the field that is missing or out of place.
            pub fn read(name: AlgorithmName, fields: &Fields) -> Result<Self, String> {
                match name { $(AlgorithmName::$name => $module::$name::read(fields).map(Self::$name),)* }
            }

            /// The fields that [`Self::read`] reads.
            pub fn fields(&self) -> Fields {
                let mut fields = Fields::default();
                match self { $(Self::$name(definition) => definition.write(&mut fields),)* }
                fields
            }

            /// Its name.
            pub fn name(&self) -> AlgorithmName {
                match self { $(Self::$name(_) => AlgorithmName::$name,)* }
            }

            /// Whether the ledger can restore what was counted.
            pub fn is_restorable(&self) -> bool {
                match self { $(Self::$name(_) => $module::$name::IS_RESTORABLE,)* }
            }

            /// The fields that make it another counter when they change.
            pub fn signature(&self) -> Vec<String> {
                match self { $(Self::$name(definition) => definition.signature(),)* }
            }

            /// The stretch of time over which it counts.
            pub fn span(&self) -> Span {
                match self { $(Self::$name(definition) => definition.span(),)* }
            }

            /// What is wrong with it for a capacity of a meter, as pointers into the limit.
            pub fn errors(&self, capacity: Amount, decimals: Decimals) -> Vec<FieldError> {
                match self { $(Self::$name(definition) => definition.errors(capacity, decimals),)* }
            }

            /// The largest capacity that it may count by, in the meter's smallest units.
            pub fn capacity_max(&self, decimals: Decimals) -> i64 {
                match self { $(Self::$name(definition) => definition.capacity_max(decimals),)* }
            }

            /// The parameters under the tenant's current windows, in the meter's smallest units.
            pub fn parameters(&self, windows: &Windows, decimals: Decimals, capacity: Units) -> Parameters {
                match self {
                    $(Self::$name(definition) => {
                        Parameters::$name(definition.parameters(windows, decimals, capacity))
                    })*
                }
            }
        }

        /// The parameters by which a counter counts, in calls and records.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Parameters {
            $($(#[$doc])* $name(<$module::$name as Definition>::Parameters),)*
        }

        impl Parameters {
            /// Its algorithm's code.
            pub fn code(&self) -> u8 {
                match self { $(Self::$name(_) => $code,)* }
            }

            /// Packs the parameters.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Self::$name(counting) => counting.encode(out),)* }
            }

            /// Reads what [`Self::encode`] packs, for the algorithm of this code.
            pub fn decode(code: u8, reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
                match code {
                    $($code => Counting::decode(reader).map(Self::$name),)*
                    _ => Err(Undecodable("an algorithm")),
                }
            }

            /// The calendar's window; none for an algorithm without one, which the ledger cannot restore.
            pub fn window(&self) -> Option<Window> {
                match self { $(Self::$name(counting) => counting.window(),)* }
            }

            /// Whether everything that it counts leaves it at once, at the end of a window.
            pub fn has_windows(&self) -> bool {
                match self { $(Self::$name(counting) => counting.has_windows(),)* }
            }

            /// Whether a restore after a loss of the gate's memory counts the open reservations' holds in it.
            pub fn holds_survive(&self) -> bool {
                match self { $(Self::$name(counting) => counting.holds_survive(),)* }
            }

            /// What amounts of so many units need; `is_usage`: they are used up at once.
            pub fn need(&self, units: i64, is_usage: bool) -> i64 {
                match self { $(Self::$name(counting) => counting.need(units, is_usage),)* }
            }

            /// The most units that fit into this room.
            pub fn most(&self, room: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.most(room),)* }
            }

            /// What an open reservation holds.
            pub fn held(&self, lines: &[LineHold]) -> i64 {
                match self { $(Self::$name(counting) => counting.held(lines),)* }
            }

            /// The latest time at which everything counted at `at_ms` has left a counter of this capacity (unix ms).
            pub fn ends_at_ms(&self, at_ms: i64, capacity: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.ends_at_ms(at_ms, capacity),)* }
            }

            /// The cell as it counts work of one instant.
            pub fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
                match self { $(Self::$name(counting) => counting.load(cell, at),)* }
            }

            /// Whether the remaining units of this cell cut a consume at `now_ms`.
            pub fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool {
                match self { $(Self::$name(counting) => counting.is_open(loaded, now_ms),)* }
            }

            /// How many more units fit beside those consumed and those held.
            pub fn room(&self, consumed: i64, reserved: i64, capacity: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.room(consumed, reserved, capacity),)* }
            }

            /// How many more units fit of new work that it was loaded for.
            pub fn room_for_new_work(&self, loaded: &Loaded, capacity: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.room_for_new_work(loaded, capacity),)* }
            }

            /// How long new work has to wait before it may start, in ms.
            pub fn delay_ms(&self, loaded: &Loaded) -> i64 {
                match self { $(Self::$name(counting) => counting.delay_ms(loaded),)* }
            }

            /// Holds units until `ends_at_ms`.
            pub fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
                match self { $(Self::$name(counting) => counting.hold(loaded, units, ends_at_ms),)* }
            }

            /// Counts units that were not held.
            pub fn charge(&self, loaded: &mut Loaded, units: i64) {
                match self { $(Self::$name(counting) => counting.charge(loaded, units),)* }
            }

            /// Counts units that were held.
            pub fn settle(&self, loaded: &mut Loaded, units: i64) {
                match self { $(Self::$name(counting) => counting.settle(loaded, units),)* }
            }

            /// Gives back units that were held.
            pub fn give_back(&self, loaded: &mut Loaded, units: i64) {
                match self { $(Self::$name(counting) => counting.give_back(loaded, units),)* }
            }
        }
    };
}

for_each_algorithm!(define);

pub(crate) use for_each_algorithm;

impl Default for AlgorithmName {
    fn default() -> Self {
        Self::Calendar
    }
}
