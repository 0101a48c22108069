//! What must hold on a bad day: memory lost, processes killed, calls repeated in any order.

mod backlog;
mod check_away;
mod clock_step;
mod conflicts;
mod contention;
mod damage;
mod events;
mod forgotten;
mod frozen_postgres;
mod frozen_redis;
mod gate_away;
mod global;
mod killed_service;
mod late_attempt;
mod lost_in_a_call;
mod lost_memory;
mod old_keys;
mod reconciliation;
mod replay;
mod safety_tail;
mod set_back;
mod stopping;
mod storm;
mod teeth;
mod unknown_hold;
mod upgrade;
