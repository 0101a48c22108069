use rstest::rstest;
use tollgate::domain::boundary::{decode_boundary, is_boundary};
use tollgate::domain::ids::OutboxId;

use crate::gate::server::Mode;
use crate::gate::world::*;

#[rstest]
#[tokio::test]
async fn a_boundary_is_an_event_at_its_instant_and_nothing_is_written_before_that_any_more(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let append = async |instant_ms, now_ms| {
        world.gate.append_boundary(world.partition, instant_ms, Some(now_ms)).await.unwrap()
    };
    assert_eq!(append(START_MS + 100, START_MS + 99).await, None, "its instant has not come");
    world.hold(&pages("a", 1).at(START_MS + 99)).await;
    let place = append(START_MS + 100, START_MS + 150).await.unwrap();
    let from = [(world.partition, OutboxId::default())];
    let (_, events) = world.gate.read_outbox(&from, 100).await.unwrap().remove(0);
    let (at, bytes) = events.last().unwrap();
    assert_eq!((*at, is_boundary(bytes), decode_boundary(bytes)), (place, true, Ok(START_MS + 150)));
    assert!(!is_boundary(&events[0].1));

    assert!(append(START_MS + 50, START_MS + 160).await.is_some(), "an earlier instant lowers nothing");
    assert!(append(0, START_MS + 170).await.is_some());
    let mut ask = redis::cmd("HGET");
    let floor: String =
        ask.arg(world.key("meta")).arg("floor").query(&mut world.server.connection()).unwrap();
    assert_eq!(floor, (START_MS + 100).to_string());
}
