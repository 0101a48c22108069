//! The scripts: their texts with includes expanded, salted for the node on which they were verified, called by digest.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::error::GateError;
use super::status::Status;
use crate::domain::algorithms::for_each_algorithm;

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $file:literal;)*) => {
        /// One script is one transition.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Script {
            $($(#[$doc])* $name,)*
        }

        impl Script {
            /// All of them, in the order of their digests.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Its text as written, with includes not expanded.
            pub fn source(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../../lua/", $file, ".lua")),)* }
            }
        }
    };
}

scripts! {
    /// Holds amounts, or counts usage.
    Reserve = "reserve", "reserve";
    /// Several reserves, one after the other.
    ReserveAll = "reserve_all", "reserve_all";
    /// Holds amounts, or counts usage, under counters that the gate alone keeps.
    Hold = "hold", "hold";
    /// Takes over an admission granted while the gate was away.
    Record = "record", "record";
    /// A consume that resolves; may run when memory is full.
    ConsumeFinal = "consume_final", "consume";
    /// A consume that keeps the hold open.
    ConsumePart = "consume_part", "consume";
    /// Returns what is held.
    Release = "release", "release";
    /// Moves the expiry.
    Extend = "extend", "extend";
    /// Sweeps due holds.
    Expire = "expire", "expire";
    /// Sweeps holds that the gate alone keeps.
    ExpireHeld = "expire_held", "expire_held";
    /// Counts under counters that the gate alone keeps.
    Check = "check", "check";
    /// Only says what a check would find; may run when memory is full.
    Look = "look", "check";
    /// Counts under global limits, before the tenant's partition decides.
    Take = "take", "take";
    /// Gives back what was taken of global limits.
    GiveBack = "give_back", "give_back";
    /// Gives an instance a share of a counter.
    Lease = "lease", "lease";
    /// Reads counters.
    Peek = "peek", "peek";
    /// Reads one reservation.
    PeekRecord = "peek_record", "peek_record";
    /// Restores a page of a cold tenant.
    Restore = "restore", "restore";
    /// Restores one subject of a warm tenant.
    RestoreSubject = "restore_subject", "restore_subject";
    /// Suspends a warm tenant or subject until its restore.
    Suspend = "suspend", "suspend";
    /// Restores single quotas of a warm tenant.
    RestoreCounters = "restore_counters", "restore_counters";
    /// Restores one resolved reservation.
    RestoreRecord = "restore_record", "restore_record";
    /// Restores one open reservation of a warm tenant.
    RestoreHold = "restore_hold", "restore_hold";
    /// Sets new capacities of quotas.
    Capacity = "capacity", "capacity";
    /// Publishes the writer's cursor.
    Publish = "publish", "publish";
    /// Anchors the head of a hash chain of the ledger.
    Anchor = "anchor", "anchor";
    /// Raises the partition's epoch.
    Adopt = "adopt", "adopt";
    /// Appends the figures of a tenant's counters as an event.
    Checkpoint = "checkpoint", "checkpoint";
    /// Appends an event at which the writer cuts.
    Boundary = "boundary", "boundary";
    /// Adds what a checkpoint found missing in a counter.
    Repair = "repair", "repair";
    /// Undoes a repeat of a booked operation.
    Undo = "undo", "undo";
    /// Reads the bans that limits have placed.
    Bans = "bans", "bans";
    /// Lifts one of them.
    Lift = "lift", "lift";
}

macro_rules! includes {
    ($($name:literal)*) => {
        const INCLUDES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../lua/include/", $name, ".lua"))),)*];
    };
}

includes! {
    "about_cold" "about_record" "add_new_counters" "admit" "append" "ban_length" "banned_checks" "body_of"
    "cap_totals" "cell" "clock" "cold_holders" "cold_record" "conduct_end" "count_violations" "decreased_line"
    "deeds" "drain" "drain_wait" "due_list" "find_cold" "find_record" "fit" "fixed_end" "hash_end" "held_in"
    "holder_keys" "integer" "is_current" "is_known" "is_same_call" "keep_subjects" "keys/bans" "keys/beside"
    "keys/due" "keys/known_subjects" "keys/light" "keys/log" "keys/prefix" "keys/reservation" "keys/subject"
    "keys/tenant" "kinds" "knows_subject" "lacks" "last_id" "last_sequence" "late_rejected" "layout_of"
    "light_scope" "list_ban" "load_light" "longest_delay" "measure" "measure_held" "measure_record" "modes"
    "name_entries" "new_counters_told" "operation_of" "out_of_time" "outlive" "pack_conduct" "pack_event"
    "pack_figures" "pack_readings" "pack_record" "pack_taking" "pack_units" "plain/check" "plain/consume"
    "plain/counters" "plain/hashes" "plain/places" "plain/reserve" "plain/slot" "plain/totals" "plain/wanted"
    "plan_moves" "prelude" "quota_capacity" "read_body" "read_checks" "read_conduct" "read_header" "read_light"
    "read_new_counters" "read_punishment" "read_record" "read_taking" "read_totals" "read_weights" "reads_zero"
    "record_values" "recorded_checks" "refusing_checks" "rejected_line" "release_holds" "reload_light"
    "remember_work" "resolving" "same_totals" "same_work" "save_conduct" "sequence_of" "settle_counter"
    "shadow_refusals" "square_root" "state_keys" "states" "store" "store_held" "told_sequence" "unchanged"
    "unfit" "unknown_room" "unsettled_quotas" "window_wait" "write_change" "write_conduct" "write_counters"
    "write_held" "write_light"
}

macro_rules! algorithm_files {
    ($($(#[$doc:meta])* $module:ident::$name:ident = $code:literal;)*) => {
        /// The algorithms: name, code and text.
        const ALGORITHMS: &[(&str, u8, &str)] = &[$((
            stringify!($module),
            $code,
            include_str!(concat!("../../lua/algorithms/", stringify!($module), ".lua")),
        ),)*];
    };
}

for_each_algorithm!(algorithm_files);

impl Script {
    /// Whether it appends events; the id it answers is then its event's.
    pub(super) fn appends(self) -> bool {
        matches!(
            self,
            Self::Reserve
                | Self::Record
                | Self::ConsumeFinal
                | Self::ConsumePart
                | Self::Release
                | Self::Extend
                | Self::Expire
                | Self::Checkpoint
                | Self::Boundary
        )
    }

    /// Whether it serves callers, who then decide how many of it run at once.
    pub(super) fn serves_callers(self) -> bool {
        matches!(
            self,
            Self::Reserve
                | Self::ReserveAll
                | Self::Hold
                | Self::ConsumeFinal
                | Self::ConsumePart
                | Self::Release
                | Self::Extend
                | Self::Check
                | Self::Look
                | Self::Take
                | Self::GiveBack
                | Self::Peek
                | Self::PeekRecord
        )
    }

    /// The whole text for the node with this run id; the salt makes its digest the node's own.
    pub fn text(self, run_id: &str) -> Result<String, GateError> {
        let source = match self {
            Self::ConsumePart => self.source().replacen("#!lua flags=allow-oom", "#!lua", 1),
            Self::Look => self.source().replacen("#!lua", "#!lua flags=no-writes", 1),
            _ => self.source().to_owned(),
        };
        let mut text = String::with_capacity(16 * 1024);
        expand(self, &source, &mut BTreeSet::new(), &mut text)?;
        let _ = writeln!(text, "-- {run_id}");
        Ok(text)
    }
}

fn expand(
    script: Script,
    source: &str,
    done: &mut BTreeSet<String>,
    text: &mut String,
) -> Result<(), GateError> {
    for line in source.lines() {
        let Some(name) = line.strip_prefix("-- include ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        if !done.insert(name.to_owned()) {
            continue;
        }
        if name == "statuses" {
            text.push_str(&statuses());
            continue;
        }
        if name == "algorithm_codes" {
            text.push_str(&algorithm_codes());
            continue;
        }
        if name == "algorithms" {
            expand_algorithms(script, done, text)?;
            continue;
        }
        let (_, included) = INCLUDES
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or(GateError::Malformed { script: script.name(), reason: "an include does not exist" })?;
        expand(script, included, done, text)?;
    }
    Ok(())
}

/// The algorithms' functions by code; each is created when a call first counts by it.
fn expand_algorithms(
    script: Script,
    done: &mut BTreeSet<String>,
    text: &mut String,
) -> Result<(), GateError> {
    let is_include = |line: &&str| line.starts_with("-- include ");
    for (_, _, source) in ALGORITHMS {
        let includes: Vec<_> = source.lines().filter(is_include).collect();
        expand(script, &includes.join("\n"), done, text)?;
    }
    expand(script, "-- include algorithm_codes", done, text)?;
    text.push_str("local algorithm_files, algorithms = {}, {}\n");
    for (_, code, source) in ALGORITHMS {
        let _ = writeln!(text, "algorithm_files[{code}] = function()");
        source.lines().filter(|line| !is_include(line)).for_each(|line| {
            let _ = writeln!(text, "  {line}");
        });
        text.push_str("end\n");
    }
    text.push_str(ALGORITHM_OF);
    Ok(())
}

const ALGORITHM_OF: &str = "\
local function algorithm_of(code)
  local found = algorithms[code]
  if not found then
    found = (algorithm_files[code] or error('algorithm ' .. code))()
    algorithms[code] = found
  end
  return found
end
";

/// The algorithms' codes as Lua locals.
fn algorithm_codes() -> String {
    let names: Vec<_> = ALGORITHMS.iter().map(|(name, ..)| name.to_uppercase()).collect();
    let codes: Vec<_> = ALGORITHMS.iter().map(|(_, code, _)| code.to_string()).collect();
    format!("local {} = {}\n", names.join(", "), codes.join(", "))
}

/// The statuses as Lua locals.
fn statuses() -> String {
    let names: Vec<_> = Status::ALL.iter().map(|status| status.lua_name()).collect();
    let codes: Vec<_> = Status::ALL.iter().map(|status| status.code().to_string()).collect();
    format!("local {} = {}\n", names.join(", "), codes.join(", "))
}

/// The digests of the loaded scripts, all salted for one node.
#[derive(Debug, Clone)]
pub(super) struct Digests(pub(super) Vec<String>);

impl Digests {
    /// The digest of one script.
    pub(super) fn of(&self, script: Script) -> &str {
        Script::ALL
            .iter()
            .position(|known| *known == script)
            .and_then(|index| self.0.get(index))
            .map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_expands_starts_with_its_flags_and_states_keys_arguments_returns_and_event() {
        for script in Script::ALL {
            let text = script.text("run").unwrap();
            assert!(text.starts_with("#!lua"), "{script:?}");
            assert!(!text.contains("-- include "), "{script:?}");
            for part in ["-- KEYS ", "-- ARGV ", "-- returns ", "-- event "] {
                assert_eq!(script.source().matches(part).count(), 1, "{script:?} {part}");
            }
        }
    }

    #[test]
    fn only_what_frees_holds_may_run_when_memory_is_full() {
        let allows = |script: Script| script.text("").unwrap().lines().next().unwrap().contains("allow-oom");
        let free = [Script::ConsumeFinal, Script::Release, Script::Expire, Script::ExpireHeld];
        assert!(free.into_iter().all(allows));
        let hold = [Script::ConsumePart, Script::Reserve, Script::Hold, Script::Extend];
        assert!(!hold.into_iter().any(allows));
    }

    #[test]
    fn the_salt_makes_the_text_the_nodes_own() {
        assert_ne!(Script::Reserve.text("a").unwrap(), Script::Reserve.text("b").unwrap());
    }
}
