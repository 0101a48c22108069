//! What must hold on a bad day: memory lost, processes killed, calls repeated in any order.

mod contention;
mod killed_service;
mod lost_memory;
mod reconciliation;
mod teeth;
