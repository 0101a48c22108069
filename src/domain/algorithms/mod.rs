//! How limits count: the one list of algorithms, and what each one's file has to say of it.
//!
//! An algorithm is a file here, a file of the same name in `lua/algorithms/`, and a line in the list below.

pub mod bucket;
pub mod calendar;
pub mod cell;
mod fields;
pub mod fixed_window;
pub mod sliding_counter;
pub mod token_bucket;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, Decimals};
use super::codec::{Reader, Undecodable};
use super::field_error::FieldError;
use super::limit::Span;
use super::period::{Window, Windows};
use cell::{Cell, Loaded, Moment};
pub use fields::{Fields, SpanSeconds, SubWindows};

/// Calls a macro with the list: `module::Name = code`. The code stands in calls and records and is never given again.
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
        }
    };
}

/// How a limit counts, as policy says it.
pub trait Definition: Sized {
    /// What a counter of it is counted by at one instant.
    type Parameters: Counting;
    /// Whether the ledger can tell what was counted, so that it survives a loss of the gate's memory.
    const IS_RESTORABLE: bool;
    /// Reads a limit's fields; the error names the field that is missing or out of place.
    fn read(fields: &Fields) -> Result<Self, String>;
    /// Writes the fields that [`Self::read`] reads.
    fn write(&self, fields: &mut Fields);
    /// What makes it another counter when it changes, in words that stay the same for ever.
    fn signature(&self) -> Vec<String>;
    /// Over which stretch of time it counts, as answers show it.
    fn span(&self) -> Span;
    /// What is wrong with it for a capacity of a meter, as pointers into the limit; nothing for most.
    fn errors(&self, _capacity: Amount, _decimals: Decimals) -> Vec<FieldError> {
        Vec::new()
    }
    /// What counts under the tenant's windows of now, in the meter's smallest units.
    fn parameters(&self, windows: &Windows, decimals: Decimals) -> Self::Parameters;
}

/// What a counter is counted by, as calls and records carry it; and the transition that the scripts are tested against.
pub trait Counting: Copy {
    /// Packs it.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads what [`Self::encode`] packs.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable>;
    /// The calendar's window; none for what no calendar cuts, which the ledger cannot tell.
    fn window(&self) -> Option<Window> {
        None
    }
    /// Whether what it counts ends with a window, all at once.
    fn has_windows(&self) -> bool {
        false
    }
    /// When all that is counted at `at_ms` has left a counter of this capacity, at the latest (unix ms).
    fn ends_at_ms(&self, at_ms: i64, capacity: i64) -> i64;
    /// The cell as it counts work of one instant.
    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded;
    /// Whether what is left there cuts a consume at `now_ms`.
    fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool;
    /// How many more units fit beside those consumed and those held.
    fn room(&self, consumed: i64, reserved: i64, capacity: i64) -> i64 {
        capacity - consumed - reserved
    }
    /// Holds units until `ends_at_ms`.
    fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
        loaded.cell.hold(units, ends_at_ms);
    }
    /// Counts units that nothing held.
    fn charge(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.consumed += units;
    }
    /// Counts units that were held.
    fn settle(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.consumed += units;
        loaded.cell.let_go(units);
    }
    /// Returns units that were held.
    fn give_back(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.let_go(units);
    }
}

macro_rules! define {
    ($($(#[$doc:meta])* $module:ident::$name:ident = $code:literal;)*) => {
        /// Which algorithm.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AlgorithmName {
            $($(#[$doc])* $name,)*
        }

        impl AlgorithmName {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its word in policy and answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($module),)* }
            }
        }

        /// An algorithm with its parameters, as policy says them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$doc])* $name($module::$name),)*
        }

        impl Algorithm {
            /// Reads the fields of a limit; the error names the field that is missing or out of place.
            pub fn read(name: AlgorithmName, fields: &Fields) -> Result<Self, String> {
                match name { $(AlgorithmName::$name => $module::$name::read(fields).map(Self::$name),)* }
            }

            /// The fields as [`Self::read`] reads them.
            pub fn fields(&self) -> Fields {
                let mut fields = Fields::default();
                match self { $(Self::$name(definition) => definition.write(&mut fields),)* }
                fields
            }

            /// Its name.
            pub fn name(&self) -> AlgorithmName {
                match self { $(Self::$name(_) => AlgorithmName::$name,)* }
            }

            /// Whether the ledger can tell what was counted.
            pub fn is_restorable(&self) -> bool {
                match self { $(Self::$name(_) => $module::$name::IS_RESTORABLE,)* }
            }

            /// What makes it another counter when it changes.
            pub fn signature(&self) -> Vec<String> {
                match self { $(Self::$name(definition) => definition.signature(),)* }
            }

            /// Over which stretch of time it counts.
            pub fn span(&self) -> Span {
                match self { $(Self::$name(definition) => definition.span(),)* }
            }

            /// What is wrong with it for a capacity of a meter, as pointers into the limit.
            pub fn errors(&self, capacity: Amount, decimals: Decimals) -> Vec<FieldError> {
                match self { $(Self::$name(definition) => definition.errors(capacity, decimals),)* }
            }

            /// What counts under the tenant's windows of now, in the meter's smallest units.
            pub fn parameters(&self, windows: &Windows, decimals: Decimals) -> Parameters {
                match self {
                    $(Self::$name(definition) => Parameters::$name(definition.parameters(windows, decimals)),)*
                }
            }
        }

        /// What a counter is counted by, as calls and records carry it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Parameters {
            $($(#[$doc])* $name(<$module::$name as Definition>::Parameters),)*
        }

        impl Parameters {
            /// Its algorithm's code.
            pub fn code(&self) -> u8 {
                match self { $(Self::$name(_) => $code,)* }
            }

            /// Packs what is counted by.
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

            /// The calendar's window; none for what no calendar cuts, which the ledger cannot tell.
            pub fn window(&self) -> Option<Window> {
                match self { $(Self::$name(counting) => counting.window(),)* }
            }

            /// Whether what it counts ends with a window, all at once.
            pub fn has_windows(&self) -> bool {
                match self { $(Self::$name(counting) => counting.has_windows(),)* }
            }

            /// When all that is counted at `at_ms` has left a counter of this capacity, at the latest (unix ms).
            pub fn ends_at_ms(&self, at_ms: i64, capacity: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.ends_at_ms(at_ms, capacity),)* }
            }

            /// The cell as it counts work of one instant.
            pub fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
                match self { $(Self::$name(counting) => counting.load(cell, at),)* }
            }

            /// Whether what is left there cuts a consume at `now_ms`.
            pub fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool {
                match self { $(Self::$name(counting) => counting.is_open(loaded, now_ms),)* }
            }

            /// How many more units fit beside those consumed and those held.
            pub fn room(&self, consumed: i64, reserved: i64, capacity: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.room(consumed, reserved, capacity),)* }
            }

            /// Holds units until `ends_at_ms`.
            pub fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
                match self { $(Self::$name(counting) => counting.hold(loaded, units, ends_at_ms),)* }
            }

            /// Counts units that nothing held.
            pub fn charge(&self, loaded: &mut Loaded, units: i64) {
                match self { $(Self::$name(counting) => counting.charge(loaded, units),)* }
            }

            /// Counts units that were held.
            pub fn settle(&self, loaded: &mut Loaded, units: i64) {
                match self { $(Self::$name(counting) => counting.settle(loaded, units),)* }
            }

            /// Returns units that were held.
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
