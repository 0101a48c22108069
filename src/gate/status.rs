//! A script's decision, as one small integer. Their order is the order of precedence.

/// Declares the statuses once: for Rust and, as `local NAME = number` lines, for the scripts.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $lua:literal;)*) => {
        /// What a script decided. A Lua error is never a decision.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// All statuses, in order of precedence.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number that scripts answer.
            pub fn code(self) -> i64 {
                match self { $(Self::$name => $code,)* }
            }

            /// The name that scripts use for it.
            pub fn lua_name(self) -> &'static str {
                match self { $(Self::$name => $lua,)* }
            }
        }
    };
}

statuses! {
    /// The partition's memory is missing or of another epoch.
    Alarm = 1, "ALARM";
    /// There is no such reservation in this epoch, or it is another tenant's.
    Unknown = 2, "UNKNOWN";
    /// The call had its effect before; nothing was written.
    Replayed = 3, "REPLAYED";
    /// The id belongs to a call with another fingerprint.
    KeyReused = 4, "KEY_REUSED";
    /// The caller had stopped waiting; this try did nothing.
    TooLate = 5, "TOO_LATE";
    /// The script's clock is before the partition's floor: it would write to a closed period.
    TooEarly = 6, "TOO_EARLY";
    /// A window of the call does not contain the script's time.
    StaleWindow = 7, "STALE_WINDOW";
    /// The gate does not know the tenant, a subject, a counter or a quota's capacity.
    Cold = 8, "COLD";
    /// A keyed call that may be a retry from before a loss.
    AskLedger = 9, "ASK_LEDGER";
    /// The same work was submitted a short time ago.
    Duplicate = 10, "DUPLICATE";
    /// The reservation was resolved otherwise.
    AlreadyResolved = 11, "ALREADY_RESOLVED";
    /// The reservation expired, and the call is too late.
    Expired = 12, "EXPIRED";
    /// An amount without a meter for a reservation of several lines.
    AmountNeedsOneLine = 13, "AMOUNT_NEEDS_ONE_LINE";
    /// A meter that the reservation has no line for.
    MeterNotReserved = 14, "METER_NOT_RESERVED";
    /// More decimals than the meter has.
    TooPrecise = 15, "TOO_PRECISE";
    /// A total, or the counter that would result, is beyond the largest amount.
    TooLarge = 16, "TOO_LARGE";
    /// A total below what is consumed already.
    AmountDecreased = 17, "AMOUNT_DECREASED";
    /// A total above the hold of a meter that refuses excess.
    ExcessRejected = 18, "EXCESS_REJECTED";
    /// A limit or quota does not allow it.
    Refused = 19, "REFUSED";
    /// A dry run that would have been admitted.
    Allowed = 20, "ALLOWED";
    /// The tenant or subject is warm in this epoch already.
    Warm = 21, "WARM";
    /// What is stored is as new or newer; nothing was written.
    Kept = 22, "KEPT";
    /// Done; where an event belongs to it, it is in the outbox.
    Done = 23, "DONE";
}

impl Status {
    /// The status with this number.
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.code() == code)
    }
}
