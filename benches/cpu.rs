//! Processor time by process, from /proc.

use std::fs;

/// Clock ticks a second in /proc, fixed by the kernel's interface.
const MICROSECONDS_A_TICK: u64 = 10_000;

/// Processor time of one part of the system so far, in µs, its ended children included.
pub fn of_process(id: u32) -> u64 {
    stat(id).map_or(0, |fields| fields.own + fields.ended_children)
}

/// Processor time of this process's children that have ended, in µs.
pub fn of_ended_children() -> u64 {
    stat(std::process::id()).map_or(0, |fields| fields.ended_children)
}

/// As [`of_process`], with all that run below it now: a Postgres is a process for each connection.
pub fn of_tree(id: u32) -> u64 {
    let children = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let child: u32 = entry.file_name().to_str()?.parse().ok()?;
        let fields = stat(child)?;
        (fields.parent == id).then_some(fields.own)
    });
    of_process(id) + children.sum::<u64>()
}

struct Fields {
    parent: u32,
    own: u64,
    ended_children: u64,
}

fn stat(id: u32) -> Option<Fields> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name may hold spaces; it ends with the last parenthesis.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Fields {
        parent: u32::try_from(number(1)?).ok()?,
        own: (number(11)? + number(12)?) * MICROSECONDS_A_TICK,
        ended_children: (number(13)? + number(14)?) * MICROSECONDS_A_TICK,
    })
}
