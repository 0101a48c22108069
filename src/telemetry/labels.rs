//! The values that labels of metrics may have. They are few and fixed: what a caller sends never becomes one.

/// One label: its name and every value it may have.
pub(super) trait Label: Copy + 'static {
    const NAME: &'static str;
    const ALL: &'static [Self];

    /// Its text in the metrics.
    fn text(self) -> &'static str;
    /// Its place in `ALL`.
    fn index(self) -> usize;
}

macro_rules! label {
    ($(#[$doc:meta])* $label:ident, $name:literal { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $label {
            $($(#[$value_doc])* $value,)+
        }

        impl Label for $label {
            const NAME: &'static str = $name;
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn text(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// A call that the gate decides.
    Call, "call" {
        /// `POST /v1/reservations`.
        Reserve = "reserve",
        /// `POST /v1/reservations/{id}/consume`.
        Consume = "consume",
        /// `POST /v1/reservations/{id}/release`.
        Release = "release",
        /// `POST /v1/reservations/{id}/extend`.
        Extend = "extend",
        /// `POST /v1/usage`.
        Usage = "usage",
        /// One event of `POST /v1/events`.
        Event = "event",
        /// `POST /v1/ratelimit/check`, of meters that are not booked.
        Check = "check",
    }
}

label! {
    /// How a call ended.
    Outcome, "outcome" {
        /// Done: admitted, consumed, released, extended.
        Admitted = "admitted",
        /// A limit or quota does not allow it (429).
        Refused = "refused",
        /// A repeat, answered as the first time.
        Replayed = "replayed",
        /// The reservation's state does not allow it (409, 410).
        Conflict = "conflict",
        /// The call itself is wrong (400, 403, 404, 422).
        Invalid = "invalid",
        /// Gate or ledger could not answer (503).
        Unavailable = "unavailable",
    }
}

label! {
    /// A script of the gate.
    Script, "script" {
        /// Hold amounts.
        Reserve = "reserve",
        /// Hold amounts of meters that are not booked.
        Hold = "hold",
        /// Apply an admission granted while the gate was away.
        Record = "record",
        /// Record what was used.
        Consume = "consume",
        /// Return what is held.
        Release = "release",
        /// Move the expiry.
        Extend = "extend",
        /// Sweep due reservations.
        Expire = "expire",
        /// Sweep due reservations of meters that are not booked.
        ExpireHeld = "expire_held",
        /// Count under light counters.
        Check = "check",
        /// Count under global limits.
        Take = "take",
        /// Give back what was counted under global limits.
        GiveBack = "give_back",
        /// Give an instance a share of a counter.
        Lease = "lease",
        /// Read.
        Peek = "peek",
        /// Take over a restore from the ledger.
        Restore = "restore",
        /// Take a new epoch.
        Adopt = "adopt",
        /// Take a quota's new version.
        Capacity = "capacity",
        /// Take the writer's position.
        Publish = "publish",
        /// Append a checkpoint of the counters.
        Checkpoint = "checkpoint",
        /// Add what a checkpoint found missing in a counter.
        Repair = "repair",
        /// Undo a repeat.
        Undo = "undo",
    }
}

label! {
    /// Why a script has decided nothing.
    Fault, "error" {
        /// The node's memory is in doubt.
        Alarm = "alarm",
        /// No answer in time.
        Timeout = "timeout",
        /// It ran after its caller had stopped waiting.
        TooLate = "too_late",
        /// The server cannot be reached or cannot serve now.
        Unavailable = "unavailable",
        /// Nothing was sent, because the server has been silent.
        BreakerOpen = "breaker_open",
        /// Too many calls waited at once.
        Overloaded = "overloaded",
        /// The partition has no epoch yet.
        NoEpoch = "no_epoch",
        /// The server is not safe to keep counters in.
        UnsafeServer = "unsafe_server",
        /// The call contradicted itself.
        Malformed = "malformed",
        /// It failed before its first write.
        Script = "script",
        /// A value or its answer could not be read.
        Undecodable = "undecodable",
    }
}

label! {
    /// What decided about a call or check while the gate was away.
    Fallback, "policy" {
        /// A limit or quota denied it.
        Deny = "deny",
        /// It was let through under the cap of an emergency.
        Emergency = "emergency",
        /// That cap had no room for it.
        EmergencyUsedUp = "emergency_used_up",
        /// It was let through under a share of a counter.
        Local = "local",
        /// That share had no room for it.
        LocalUsedUp = "local_used_up",
        /// It was let through unmeasured.
        Allow = "allow",
    }
}

label! {
    /// What was restored from the ledger.
    Restored, "kind" {
        /// A tenant with its counters and open reservations.
        Tenant = "tenant",
        /// A subject's counters.
        Subject = "subject",
        /// One counter.
        Counter = "counter",
        /// One resolved reservation.
        Reservation = "reservation",
    }
}

label! {
    /// The ledger's answer about a key that the gate did not know.
    Asked, "found" {
        /// It was used before.
        Known = "known",
        /// It is new.
        New = "new",
    }
}

label! {
    /// The result of comparing a checkpoint with the books.
    Judged, "result" {
        /// Every counter equals the books.
        Clean = "clean",
        /// One or more differ.
        Drift = "drift",
        /// It could not be decided.
        Refused = "refused",
        /// None was taken: the gate cannot read a counter of the tenant, or the tenant is otherwise damaged.
        Failed = "failed",
    }
}

label! {
    /// Which figure of a counter differs from the books.
    Drift, "kind" {
        /// The gate has consumed more.
        ConsumedMore = "consumed_more",
        /// The gate has consumed less.
        ConsumedLess = "consumed_less",
        /// The gate holds more.
        ReservedMore = "reserved_more",
        /// The gate holds less.
        ReservedLess = "reserved_less",
    }
}

label! {
    /// The outcome of a repair.
    Repaired, "outcome" {
        /// The counter equals the books again.
        Done = "done",
        /// It was left as it is.
        Refused = "refused",
    }
}

label! {
    /// A server that is guarded by a circuit breaker.
    Guarded, "server" {
        /// The gate's.
        Redis = "redis",
    }
}

label! {
    /// The state of a circuit breaker; in the metrics a number: 0, 1, 2.
    BreakerState, "state" {
        /// Calls go through: 0.
        Closed = "closed",
        /// A probe was answered: 1.
        HalfOpen = "half_open",
        /// Calls are refused at once: 2.
        Open = "open",
    }
}

label! {
    /// Something that an operator must know.
    Alarm, "alarm" {
        /// A partition's memory is in doubt.
        Memory = "memory",
        /// Events are missing between two that came.
        Gap = "gap",
        /// An event could not be booked.
        Quarantine = "quarantine",
        /// An open reservation of the ledger is missing at the gate.
        MissingRecord = "missing_record",
        /// Redis's clock has stepped.
        Clock = "clock",
        /// A counter of the gate differs from the books.
        Drift = "drift",
        /// What is stored of a tenant cannot be resolved.
        Policy = "policy",
        /// The ledger lacks a batch that was booked.
        Chain = "chain",
        /// A record, counter or row cannot be read, and was passed over.
        Damage = "damage",
    }
}

label! {
    /// A job that is run when it is due.
    Job, "job" {
        /// Restores what the gate forgot with a new epoch.
        Restore = "restore",
        /// Periods are opened a day ahead.
        Periods = "periods",
        /// Grants that have begun or ended are booked, and the gate gets what it lacks of capacities.
        Grants = "grants",
        /// Tenants are put on approved plans.
        Upgrades = "upgrades",
        /// Periods that have ended are closed.
        Close = "close",
        /// Statements of closed periods are issued.
        Statements = "statements",
        /// Thresholds and forecasts of quotas are raised and resolved.
        Notices = "notices",
        /// Notices are delivered to webhooks.
        Webhooks = "webhooks",
        /// Estimates are learned from what finished work used.
        Estimates = "estimates",
        /// Months of the entries are made ahead.
        Partitions = "partitions",
        /// Keys that were used are sealed into filters.
        Keys = "keys",
        /// Old rows are archived or dropped.
        Retention = "retention",
    }
}

label! {
    /// The class of an HTTP status.
    StatusClass, "status" {
        /// 100 to 199.
        Informational = "1xx",
        /// 200 to 299.
        Success = "2xx",
        /// 300 to 399.
        Redirection = "3xx",
        /// 400 to 499.
        ClientError = "4xx",
        /// 500 and above.
        ServerError = "5xx",
    }
}

impl StatusClass {
    /// The class of a status.
    #[must_use]
    pub const fn of(status: u16) -> Self {
        match status {
            0..=199 => Self::Informational,
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}
