//! What a token bucket remembers of its low points, to the byte, at the gate and by the pure transition: beyond the
//! eighth the two oldest become one.

use proptest::prelude::*;
use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::cell::Cell;
use tollgate::domain::algorithms::token_bucket;

use super::*;

/// How many sequences a run tries.
const CASES: u32 = 40;
/// The fewest low points that become one with another, over a run.
const MERGES: u32 = 20;
/// A cell's own numbers where it remembers all the low points that it may: two, and two for each.
const FULL: usize = 2 + 2 * 8;

/// What happens to the bucket.
#[derive(Debug, Clone)]
enum Touch {
    Hold { amount: i64 },
    Release { which: prop::sample::Index },
    Consume { which: prop::sample::Index, total: i64, is_final: bool },
}

/// Mostly holds, so that the level rises from low point to low point; fewer than there are ids.
fn touches() -> impl Strategy<Value = Vec<(i64, Touch)>> {
    let which = any::<prop::sample::Index>;
    let touch = prop_oneof![
        6 => (1..6_i64).prop_map(|amount| Touch::Hold { amount }),
        1 => which().prop_map(|which| Touch::Release { which }),
        1 => (which(), 0..9_i64, any::<bool>())
            .prop_map(|(which, total, is_final)| Touch::Consume { which, total, is_final }),
    ];
    let pause = prop_oneof![6 => 1..300_i64, 1 => 1..6_000_i64];
    prop::collection::vec((pause, touch), 20..60)
}

/// The same as steps about ids.
fn as_steps(touches: Vec<(i64, Touch)>) -> Vec<Step> {
    let (mut steps, mut held) = (Vec::new(), 0_u8);
    let id_of = |which: prop::sample::Index, held: u8| u8::try_from(which.index(usize::from(held))).unwrap();
    for (ms, touch) in touches {
        steps.push(Step::Pass { ms });
        match touch {
            Touch::Hold { amount } => {
                let amounts = [amount, 1];
                steps.push(Step::Reserve {
                    id: held,
                    meaning: 0,
                    mode: Mode::All,
                    amounts,
                    ttl_ms: MAX_LIFE_MS,
                });
                held += 1;
            }
            Touch::Release { which } if held > 0 => {
                steps.push(Step::Release { id: id_of(which, held), incurred: None });
            }
            Touch::Consume { which, total, is_final } if held > 0 => {
                let totals = Some([total, 1]);
                steps.push(Step::Consume { id: id_of(which, held), totals, is_final });
            }
            Touch::Release { .. } | Touch::Consume { .. } => {}
        }
    }
    steps
}

/// Whether the two oldest low points became one between these.
fn is_merged(before: Option<&Cell>, after: Option<&Cell>) -> bool {
    let [before, after] = [before, after].map(|cell| cell.map(|cell| cell.own.clone()).unwrap_or_default());
    before.len() == FULL && after.len() == FULL && before[2] != after[2]
}

/// After each step the gate has the same bytes as the model. Returns how often low points became one.
async fn remember_alike(server: Arc<Server>, parameters: Parameters, steps: &[Step]) -> u32 {
    let rule = Rule { on_excess: OnExcess::Record, on_late: OnLate::Charge, late_within_ms: 604_800_000 };
    let counters = vec![Counter::new(parameters, 500, vec![1, 0])];
    let mut connection = server.connection();
    let mut subject = Subject::new(server, false, vec![rule; 2], &counters).await;
    let mut model = Model::new(vec![rule; 2], counters, BUCKET_MS);
    let mut merges = 0;
    for step in steps {
        let before = model.counters[0].stored().cloned();
        step_alike(&mut subject, &mut model, std::slice::from_ref(step)).await;
        let expected = model.counters[0].stored();
        let key = subject.world.state_key();
        let bytes: Option<Vec<u8>> =
            redis::cmd("HGET").arg(key).arg(&name_of(0)[..]).query(&mut connection).unwrap();
        let cell = bytes.map(|bytes| Cell::decode(&bytes).unwrap());
        assert_eq!(cell.as_ref(), expected, "{step:?}");
        merges += u32::from(is_merged(before.as_ref(), expected));
    }
    merges
}

#[test]
fn a_token_bucket_at_the_gate_remembers_the_low_points_of_the_pure_transition_to_the_byte() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    let refill = Drain { units: 7, per_ms: 20_000 };
    let parameters = Parameters::TokenBucket(token_bucket::Parameters { refill });
    let merges = std::cell::Cell::new(0);
    let config = Config { cases: sized(CASES), failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&touches(), |touches| {
        let steps = as_steps(touches);
        let more = runtime.block_on(remember_alike(Arc::clone(&server), parameters, &steps));
        merges.set(merges.get() + more);
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(merges.get() >= MERGES, "{}", merges.get());
}
