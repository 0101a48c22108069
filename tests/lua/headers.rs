use std::collections::BTreeMap;

use tollgate::domain::chain::{Chain, ChainHead};
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::gate::scripts::Script;
use tollgate::gate::{Gate, Holder, RepairCall};

use crate::gate::monitor::Monitor;
use crate::gate::server::Mode;
use crate::gate::world::*;

/// How many keys and arguments a script states and how many it reads at fixed places.
fn highest(text: &str, name: &str) -> usize {
    let open = format!("{name}[");
    let number = |at: usize| text[at + open.len()..].split(']').next().unwrap().parse().ok();
    text.match_indices(&open).filter_map(|(at, _)| number(at)).max().unwrap_or(0)
}

/// The last number that a header line of this name states; its following lines belong to it.
fn stated(text: &str, name: &str) -> usize {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("-- {name} ")));
    let first = lines.next().unwrap();
    let more = lines.take_while(|line| line.starts_with("--          "));
    let words = std::iter::once(first).chain(more).flat_map(|line| line.split("  "));
    words
        .filter_map(|word| word.trim_start().split(['.', ' ']).next()?.parse::<usize>().ok())
        .max()
        .unwrap_or(0)
}

#[test]
fn every_key_and_argument_a_script_reads_is_stated_in_its_header() {
    for script in Script::ALL {
        let text = script.text("run").unwrap();
        for name in ["KEYS", "ARGV"] {
            let (read, states) = (highest(&text, name), stated(&text, name));
            assert!(read <= states, "{}: reads {name}[{read}], states {states}", script.name());
        }
    }
}

/// Whether a header says that more follow after the last number it states.
fn is_open_ended(text: &str, name: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("-- {name} ")));
    let first = lines.next().unwrap();
    let more = lines.take_while(|line| line.starts_with("--          "));
    std::iter::once(first).chain(more).any(|line| line.contains(".. ") || line.contains("then per"))
}

/// Calls every script once, with all that a call can carry.
async fn call_every_script(world: &World) {
    world.adopt(2).await;
    let told = told(&[(b"day-----", 1, 0)]);
    world.warm_up(told.clone()).await;
    for key in ["a", "b"] {
        world.hold(&pages(key, 5)).await;
    }
    world.extend_at(START_MS, "a", TTL_MS * 2).await;
    world.consume("a", total("1"), false).await;
    world.consume("a", total("2"), true).await;
    world.release("b", total("0")).await;
    let resolved = world.record("a").await.unwrap();
    world.gate.restore_record(world.id("a"), world.epoch(), &resolved, Some(START_MS)).await.unwrap();
    world.hold(&pages("e", 5)).await;
    let open = world.record("e").await.unwrap();
    world.tell_hold("e", &open, &[]).await;
    world.day().await;
    let (gate, partition, tenant) = (&world.gate, world.partition, &world.tenant);
    world.tell(&told).await;
    world.tell_subject(&user("ada"), told.clone()).await;
    world.tell_capacity(capacity(b"quota---", 1, 9, START_MS * 2)).await;
    gate.publish(partition, OutboxId { epoch: Epoch(2), sequence: 1 }).await.unwrap();
    let head = ChainHead { number: 7, rows: 2, hash: [1; 32] };
    gate.anchor(Chain::Outbox(partition), head).await.unwrap();
    gate.expire(partition, Some(START_MS), 10).await.unwrap();
    super::check::check(world).await;
    super::take::take(world).await;
    super::hold::hold_and_sweep(world).await;
    super::lease::renew(world).await;
    super::punishment::list_and_lift(world).await;
    super::record::record(world, &pages("d", 5)).await;
    super::checkpoint::take(world, &[day(100)], None, START_MS).await;
    let repair = RepairCall {
        checkpoint: uuid::Uuid::from_bytes([1; 16]),
        place: OutboxId { epoch: Epoch(2), sequence: 1 },
        partition,
        tenant,
        holder: Holder::Tenant,
        field: field(b"day-----"),
        window_ms: WINDOW,
        delta: (1, 0),
        now_ms: Some(START_MS),
    };
    gate.repair(&repair).await.unwrap();
    gate.append_boundary(world.partition, 0, Some(START_MS)).await.unwrap();
    world.suspend(Some(&user("ada"))).await;
    world.hold(&pages("job", 5)).await;
    let again = (OutboxId { epoch: Epoch(2), sequence: 1 }, world.record("job").await.unwrap());
    super::undo::undo(world, &again, &resolved).await;
    Gate::together(futures::future::join(world.hold(&pages("c", 5)), world.hold(&pages("f", 5)))).await;
    let record = world.record("c").await.unwrap();
    world.adopt(3).await;
    let records = [(world.id("c"), record)];
    gate.restore_page(&world.page(&records, Some(told))).await.unwrap();
}

#[tokio::test]
async fn every_script_is_sent_exactly_the_keys_and_arguments_that_its_header_states() {
    let world = World::warm(Mode::Alone).await;
    let run_id = world.gate.meet().await.unwrap();
    let digests: BTreeMap<String, Script> = Script::ALL
        .iter()
        .map(|script| {
            let text = script.text(&run_id).unwrap();
            let redis::Value::BulkString(digest) = world.server.command(&["SCRIPT", "LOAD", &text]) else {
                panic!("no digest of {}", script.name());
            };
            (String::from_utf8(digest).unwrap(), *script)
        })
        .collect();
    let mut monitor = Monitor::of(&world.server);
    call_every_script(&world).await;
    world.server.command(&["ECHO", "that is all of them"]);
    let mut sent = BTreeMap::new();
    for words in monitor.until("that is all of them") {
        let call: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let script = match call.first().map(AsRef::as_ref) {
            Some("EVALSHA") => digests.get(call[1].as_ref()).copied(),
            Some("EVAL") => Some(Script::Adopt),
            _ => None,
        };
        let Some(script) = script.filter(|_| call.iter().any(|word| word.starts_with(&world.key("")))) else {
            continue;
        };
        let keys: usize = call[2].parse().unwrap();
        let counts = [("KEYS", keys), ("ARGV", call.len() - 3 - keys)];
        for (name, count) in counts {
            let states = stated(script.source(), name);
            let fits =
                if is_open_ended(script.source(), name) { count + 1 >= states } else { count == states };
            assert!(fits, "{}: sent {count} {name}, states {states}", script.name());
        }
        sent.insert(script.name(), counts);
    }
    let missing: Vec<_> = Script::ALL.iter().filter(|script| !sent.contains_key(script.name())).collect();
    assert!(missing.is_empty(), "never sent: {missing:?}");
}
