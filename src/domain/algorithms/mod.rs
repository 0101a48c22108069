//! How limits count: the one list of algorithms, and what each one's file has to say of it.
//!
//! An algorithm is a file here, a file of the same name in `lua/algorithms/`, and a line in the list below.

pub mod calendar;
pub mod cell;
pub mod fixed_window;

use serde::{Deserialize, Serialize};

use super::codec::{Reader, Undecodable};
use super::limit::Span;
use super::period::{Window, WindowKind, Windows};
use cell::{Cell, Loaded};

/// Calls a macro with the list: `module::Name = code`. The code stands in calls and records and is never given again.
macro_rules! for_each_algorithm {
    ($define:ident) => {
        $define! {
            /// By windows of the calendar, in the tenant's zone.
            calendar::Calendar = 1;
            /// By windows of one length, which begin with the first use or at multiples of the length.
            fixed_window::FixedWindow = 2;
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
    /// What counts under the tenant's windows of now.
    fn parameters(&self, windows: &Windows) -> Self::Parameters;
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
    /// When all that is counted at `at_ms` has left the counter, at the latest (unix ms).
    fn ends_at_ms(&self, at_ms: i64) -> i64;
    /// The cell as it counts work of the instant `counted_at_ms`: new work where it `admits`, else what was made then.
    fn load(&self, cell: Option<Cell>, counted_at_ms: i64, admits: bool) -> Loaded;
    /// Whether what is left there cuts a consume at `now_ms`.
    fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool;
    /// How many more units fit.
    fn room(&self, cell: &Cell, capacity: i64) -> i64 {
        capacity - cell.consumed - cell.reserved
    }
    /// Holds units until `ends_at_ms`.
    fn hold(&self, cell: &mut Cell, units: i64, ends_at_ms: i64) {
        cell.hold(units, ends_at_ms);
    }
    /// Counts units that nothing held.
    fn charge(&self, cell: &mut Cell, units: i64) {
        cell.consumed += units;
    }
    /// Counts units that were held.
    fn settle(&self, cell: &mut Cell, units: i64) {
        cell.consumed += units;
        cell.let_go(units);
    }
    /// Returns units that were held.
    fn give_back(&self, cell: &mut Cell, units: i64) {
        cell.let_go(units);
    }
}

/// The fields of a limit that its algorithm reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields {
    /// `window`.
    pub window: Option<WindowKind>,
    /// `window_seconds`.
    pub window_seconds: Option<WindowSeconds>,
    /// `aligned`.
    pub aligned: Option<bool>,
}

impl Fields {
    /// Refuses fields that `algorithm` does not take.
    fn only(&self, algorithm: &str, taken: &[&str]) -> Result<(), String> {
        let given = [
            ("window", self.window.is_some()),
            ("window_seconds", self.window_seconds.is_some()),
            ("aligned", self.aligned.is_some()),
        ];
        match given.iter().find(|(name, is_given)| *is_given && !taken.contains(name)) {
            Some((name, _)) => Err(format!("the algorithm `{algorithm}` takes no `{name}`")),
            None => Ok(()),
        }
    }
}

/// The length of a window that no calendar cuts: 1 second to 366 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct WindowSeconds(u32);

impl WindowSeconds {
    /// The longest.
    pub const MAX: u32 = 366 * 86_400;

    /// The seconds.
    pub fn get(self) -> u32 {
        self.0
    }

    /// In milliseconds.
    pub fn ms(self) -> i64 {
        i64::from(self.0) * 1000
    }
}

impl TryFrom<u32> for WindowSeconds {
    type Error = String;
    fn try_from(seconds: u32) -> Result<Self, String> {
        match seconds {
            1..=Self::MAX => Ok(Self(seconds)),
            _ => Err(format!("must be 1 to {} seconds", Self::MAX)),
        }
    }
}

impl From<WindowSeconds> for u32 {
    fn from(seconds: WindowSeconds) -> u32 {
        seconds.0
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

            /// What counts under the tenant's windows of now.
            pub fn parameters(&self, windows: &Windows) -> Parameters {
                match self { $(Self::$name(definition) => Parameters::$name(definition.parameters(windows)),)* }
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

            /// When all that is counted at `at_ms` has left the counter, at the latest (unix ms).
            pub fn ends_at_ms(&self, at_ms: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.ends_at_ms(at_ms),)* }
            }

            /// The cell as it counts work of the instant `counted_at_ms`: new work where it `admits`, else what was made then.
            pub fn load(&self, cell: Option<Cell>, counted_at_ms: i64, admits: bool) -> Loaded {
                match self { $(Self::$name(counting) => counting.load(cell, counted_at_ms, admits),)* }
            }

            /// Whether what is left there cuts a consume at `now_ms`.
            pub fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool {
                match self { $(Self::$name(counting) => counting.is_open(loaded, now_ms),)* }
            }

            /// How many more units fit.
            pub fn room(&self, cell: &Cell, capacity: i64) -> i64 {
                match self { $(Self::$name(counting) => counting.room(cell, capacity),)* }
            }

            /// Holds units until `ends_at_ms`.
            pub fn hold(&self, cell: &mut Cell, units: i64, ends_at_ms: i64) {
                match self { $(Self::$name(counting) => counting.hold(cell, units, ends_at_ms),)* }
            }

            /// Counts units that nothing held.
            pub fn charge(&self, cell: &mut Cell, units: i64) {
                match self { $(Self::$name(counting) => counting.charge(cell, units),)* }
            }

            /// Counts units that were held.
            pub fn settle(&self, cell: &mut Cell, units: i64) {
                match self { $(Self::$name(counting) => counting.settle(cell, units),)* }
            }

            /// Returns units that were held.
            pub fn give_back(&self, cell: &mut Cell, units: i64) {
                match self { $(Self::$name(counting) => counting.give_back(cell, units),)* }
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
