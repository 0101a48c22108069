//! What calls were answered, and when.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::load::{AFTER, FAULT, Seen, Stream};
use super::{CAP, Call, Fault, INSTANCES, LOCAL, POLICIES, Size};

fn at_99(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

/// What these answers say of each kind of call and policy; nothing of one without an answer.
fn of_each(seen: &[Seen], is_of: impl Fn(&Seen) -> bool) -> Vec<(Stream, Vec<&Seen>)> {
    let streams =
        Call::ALL.into_iter().flat_map(|call| (0..POLICIES.len()).map(move |policy| Stream { call, policy }));
    let of = |stream: Stream| {
        let of: Vec<_> = seen.iter().filter(|each| each.stream == stream && is_of(each)).collect();
        (stream, of)
    };
    streams.map(of).filter(|(_, of)| !of.is_empty()).collect()
}

/// The answers to what began in the fault, and after it until each instance decided again, as a table.
pub(super) fn print_answers(fault: Fault, seen: &[Seen], closed_after: Duration, noise: [Duration; 2]) {
    let [noise, noise_after] = noise;
    println!("{fault:?}: breakers closed {closed_after:.0?} after its end,");
    println!("  a call without Redis took up to {noise:.1?} in it, and {noise_after:.1?} after it");
    println!("  began   call  policy       answers  admitted   refused     p50 ms     p99 ms");
    for (word, phase) in [("in it", FAULT), ("after", AFTER)] {
        for (stream, of) in of_each(seen, |each| each.phases.0 == phase) {
            let (call, policy) = (format!("{:?}", stream.call), POLICIES[stream.policy]);
            let admitted = of.iter().filter(|each| each.admitted).count();
            let mut times: Vec<_> = of.iter().map(|each| each.took).collect();
            let (slow, middle) = (at_99(&mut times).as_millis(), times[times.len() / 2].as_millis());
            println!(
                "  {word}   {call:<5} {policy:<10} {:>9} {admitted:>9} {:>9} {middle:>10} {slow:>10}",
                of.len(),
                of.len() - admitted
            );
        }
    }
}

/// These were answered in time under each policy. A call that waits until the fault is over counts.
pub(super) fn check_times(seen: &[Seen], is_judged: impl Fn(&Seen) -> bool, in_time: Duration) {
    for (stream, mut of) in of_each(seen, is_judged) {
        let slowest = at_99(&mut of.iter().map(|each| each.took).collect::<Vec<_>>());
        of.sort_by_key(|each| Reverse(each.took));
        let few: Vec<_> = of.iter().take(12).map(|each| (each.status, each.phases, each.took)).collect();
        assert!(
            slowest <= in_time,
            "{stream:?}: 99 of 100 of {} within {slowest:?} instead of {in_time:?}; the slowest {few:?}",
            of.len()
        );
    }
}

/// Each call that was in flight when the fault began was answered by then.
pub(super) fn check_in_flight(seen: &[Seen], by: Instant) {
    let late: Vec<_> = seen.iter().filter(|each| each.was_in_flight() && each.ended > by).collect();
    assert!(late.is_empty(), "in flight when it began: {late:?}");
}

/// While Redis's memory is checked and restored after a restart, a call is decided or asked to come back; only a limit
/// that instances share refuses.
pub(super) fn check_restore(seen: &[Seen]) {
    let of: Vec<_> = seen.iter().filter(|each| each.began_after()).collect();
    assert!(!of.is_empty(), "nothing began in the restore");
    let is_answered = |each: &&&Seen| match each.status {
        200 | 201 | 503 => true,
        status => status == 429 && each.stream.policy == LOCAL,
    };
    let wrong: Vec<_> = of.iter().filter(|each| !is_answered(each)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// What was answered while the fault lasted.
pub(super) fn check_answers(seen: &[Seen], fault: Fault, size: Size) {
    let within = |each: &Seen| each.phases == (FAULT, FAULT);
    for stream in Stream::all() {
        let of: Vec<_> = seen.iter().filter(|each| each.stream == stream).collect();
        check_policy(stream, &of, fault, size);
    }
    let is_by_the_gate = |each: &&Seen| within(each) && each.admitted && !each.degraded;
    assert_eq!(seen.iter().find(is_by_the_gate).map(|each| each.status), None);
    // The ledger has what was admitted without the gate, so its work ends without the gate too.
    let is_known = |end: &&Seen| {
        let is_its = |each: &&Seen| {
            each.stream == Stream { call: Call::Hold, ..end.stream } && each.number == end.number
        };
        seen.iter().find(is_its).is_some_and(|held| held.degraded)
    };
    let ends = seen.iter().filter(|each| each.stream.call == Call::End && within(each));
    let open: Vec<_> = ends.filter(is_known).filter(|end| !end.admitted).collect();
    assert!(open.is_empty(), "{open:?}");
    let silent: Vec<_> = seen.iter().filter(|each| each.status == 503 && !each.says_when).collect();
    assert!(silent.is_empty(), "they do not say when to come back: {silent:?}");
}

fn check_policy(stream: Stream, of: &[&Seen], fault: Fault, size: Size) {
    let within: Vec<_> = of.iter().filter(|each| each.phases == (FAULT, FAULT)).collect();
    let (all, admitted) = (within.len(), within.iter().filter(|each| each.admitted).count());
    let denied = within.iter().filter(|each| each.status == 503).count();
    let refused = of.iter().filter(|each| each.began_within() && each.status == 503).count();
    let by_itself = of.iter().filter(|each| each.degraded && each.admitted).count();
    assert_eq!(admitted + denied, all, "{stream:?}");
    let least = if stream.call == Call::Use && fault != Fault::Restarted { 11 } else { 1 };
    assert!(all >= least, "{stream:?}: {all}");
    let caps = INSTANCES * CAP;
    let capacity = size.local_capacity(stream.call);
    let is_as_said = match POLICIES[stream.policy] {
        "deny" => by_itself == 0,
        "emergency" => {
            let is_used_up = by_itself >= CAP && refused > 0;
            by_itself > 0 && by_itself <= caps && (all <= caps || is_used_up)
        }
        // Half of what is left is shared out. On a slow machine the shares may outlast the fault.
        "local" => admitted > 0 && admitted <= capacity.div_ceil(2),
        _ => denied == 0,
    };
    assert!(is_as_said, "{stream:?}: {admitted} of {all} admitted, {by_itself} in all, {refused} refused");
    let of_share = of.iter().filter(|each| each.phases.0 <= FAULT && each.admitted).count();
    assert!(stream.policy != LOCAL || of_share <= capacity, "{stream:?}: {of_share} of {capacity}");
}
