use super::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::domain::policy::counter::{CounterName, GenerationRow, LimitSignature};
use crate::domain::policy::resets::{TenantBefore, tenant_resets_after};
use crate::domain::reservation::CounterField;
use crate::domain::tenant::TenantDefinition;
use proptest::prelude::*;

/// An installation that lives through changes as the storage does it.
struct Installation {
    definitions: Definitions,
    generations: Generations,
    resets: BTreeMap<TenantId, Resets>,
    built: BTreeMap<TenantId, TenantPolicy>,
}

impl Installation {
    fn new(definitions: Definitions, now_ms: i64) -> Self {
        let empty = Self {
            definitions: Definitions::default(),
            generations: Generations::default(),
            resets: BTreeMap::new(),
            built: BTreeMap::new(),
        };
        empty.changed(definitions, now_ms)
    }

    fn policy(&self) -> Policy {
        Policy::new(1, self.definitions.clone(), self.generations.clone())
    }

    fn changed(&self, definitions: Definitions, now_ms: i64) -> Self {
        let rows = generations_after(&self.definitions, &definitions, &self.generations, now_ms);
        let mut generations = self.generations.clone();
        generations.extend(rows);
        let after = Policy::new(1, definitions.clone(), generations.clone());
        let before = self.policy();
        let resets = definitions.tenants.iter().map(|(id, tenant)| {
            let resets = match self.definitions.tenants.get(id) {
                None => Resets::default(),
                Some(old) => {
                    let before = TenantBefore { policy: &before, tenant: old, resets: &self.resets[id] };
                    tenant_resets_after(before, &after, tenant, now_ms).unwrap()
                }
            };
            let stored = serde_json::to_string(&resets).unwrap();
            assert_eq!(serde_json::from_str::<Resets>(&stored).unwrap(), resets);
            (id.clone(), resets)
        });
        let resets: BTreeMap<TenantId, Resets> = resets.collect();
        let built = definitions
            .tenants
            .iter()
            .map(|(id, tenant)| (id.clone(), TenantPolicy::new(&after, tenant, &resets[id]).unwrap()));
        let built = built.collect();
        Self { definitions, generations, resets, built }
    }

    /// As the storage changes one tenant: without a look at the others.
    fn with_tenant(&self, tenant: &TenantId, definition: Arc<TenantDefinition>, now_ms: i64) -> Self {
        let alone = |definitions: &Definitions| {
            let mut alone = definitions.clone();
            alone.tenants.retain(|id, _| id == tenant);
            alone
        };
        let before = alone(&self.definitions);
        let mut after = before.clone();
        after.tenants.insert(tenant.clone(), definition.clone());
        let rows = generations_after(&before, &after, &self.generations, now_ms);
        let mut changed = Self {
            definitions: self.definitions.clone(),
            generations: self.generations.clone(),
            resets: self.resets.clone(),
            built: BTreeMap::new(),
        };
        changed.generations.extend(rows);
        changed.definitions.tenants.insert(tenant.clone(), definition.clone());
        let policy = changed.policy();
        let resets = match self.definitions.tenants.get(tenant) {
            None => Resets::default(),
            Some(old) => {
                let was = self.policy();
                let before = TenantBefore { policy: &was, tenant: old, resets: &self.resets[tenant] };
                tenant_resets_after(before, &policy, &definition, now_ms).unwrap()
            }
        };
        changed.resets.insert(tenant.clone(), resets);
        let tenants = changed.definitions.tenants.iter();
        changed.built = tenants
            .map(|(id, each)| (id.clone(), TenantPolicy::new(&policy, each, &changed.resets[id]).unwrap()))
            .collect();
        changed
    }

    /// Every counter of the tenant as a whole and of each of `subjects`: (subject, name) to signature and field.
    fn counters(&self, tenant: &TenantId, at_ms: i64) -> Counters {
        let built = &self.built[tenant];
        let subjects =
            [subject("user", "vip"), subject("user", "u1"), subject("user", "u2"), subject("device", "d1")];
        let operation = OperationId::parse("job").unwrap();
        let windows = self.definitions.tenants[tenant].calendar().windows(at_ms);
        let meters = [meter("whole"), meter("cents"), meter("page")];
        let found = built.resolve(&meters, &subjects, Some(&operation), at_ms, &windows).unwrap();
        let limits = found.limits().map(|each| {
            let limit = each.limit().unwrap();
            let who = each.subject(&subjects).cloned();
            (
                (who, CounterName::of_limit(&limit.id)),
                (LimitSignature::of_limit(limit), each.field, each.since_ms),
            )
        });
        let quotas = found.quotas().map(|each| {
            let name = CounterName::of_quota(&each.meter);
            ((None, name), (LimitSignature::of_quota(&each.meter), each.field, each.since_ms))
        });
        limits.chain(quotas).collect()
    }
}

type Counters = BTreeMap<(Option<Subject>, CounterName), (LimitSignature, CounterField, i64)>;

fn acme() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn key(limit: &str) -> (Option<Subject>, CounterName) {
    (None, CounterName::try_from(limit.to_owned()).unwrap())
}

fn demo_with(change: impl FnOnce(&mut Value)) -> Definitions {
    let mut world = demo();
    change(&mut world);
    defined(world)
}

#[test]
fn capacity_plan_level_and_message_leave_the_counter_alone() {
    let start = Installation::new(defined(demo()), NOW_MS);
    let field = |installation: &Installation| installation.counters(&acme(), NOW_MS + 10)[&key("page-day")];
    let premium =
        start.changed(demo_with(|world| world["tenants"][0]["plan"] = json!("premium")), NOW_MS + 5);
    assert_eq!(field(&premium), field(&start), "the same shape in both plans goes on counting");
    let other = start.changed(
        demo_with(|world| {
            let limit = &mut world["plans"][0]["limits"][0];
            limit["capacity"] = json!("7");
            limit["near_percent"] = json!(50);
            limit["on_gate_failure"] = json!("allow");
            limit["message"] = json!("ask sales");
        }),
        NOW_MS + 5,
    );
    assert_eq!(field(&other), field(&start));
}

#[test]
fn a_changed_kind_leaves_the_counter_alone_and_leaving_off_begins_a_new_one() {
    let of_kind =
        |kind: &'static str| demo_with(move |world| world["plans"][0]["limits"][0]["kind"] = json!(kind));
    let hard = Installation::new(of_kind("hard"), NOW_MS);
    let field = |installation: &Installation| {
        installation.counters(&acme(), NOW_MS + 100).get(&key("page-day")).copied()
    };
    let soft = hard.changed(of_kind("soft"), NOW_MS + 1);
    assert_eq!(field(&soft), field(&hard));
    let off = soft.changed(of_kind("off"), NOW_MS + 2);
    assert_eq!(field(&off), None, "it is not asked");
    let again = off.changed(of_kind("soft"), NOW_MS + 3);
    let (before, then) = (field(&hard).unwrap(), field(&again).unwrap());
    assert_eq!((then.0, then.2), (before.0, NOW_MS + 3), "the same shape since then");
    assert_ne!(then.1, before.1);
}

#[test]
fn an_override_that_asks_a_limit_which_is_off_keeps_its_counter_when_all_are_asked() {
    let world = |kind: &'static str| {
        demo_with(move |world| {
            world["plans"][0]["limits"][0]["kind"] = json!(kind);
            let asks = json!([{ "id": "o", "level": "tenant", "limit": "page-day", "kind": "hard" }]);
            world["tenants"][0]["overrides"] = asks;
            world["tenants"].as_array_mut().unwrap().push(json!({ "id": "beta", "plan": "free" }));
        })
    };
    let off = Installation::new(world("off"), NOW_MS);
    let asked = off.changed(world("soft"), NOW_MS + 1);
    let beta = TenantId::parse("beta").unwrap();
    let of = |installation: &Installation, tenant: &TenantId| {
        installation.counters(tenant, NOW_MS + 100).get(&key("page-day")).copied()
    };
    assert_eq!(of(&asked, &acme()), of(&off, &acme()), "an override asked it all along");
    assert_eq!((of(&off, &beta), of(&asked, &beta).unwrap().2), (None, NOW_MS + 1));
}

#[test]
fn a_counter_left_and_taken_up_again_starts_anew() {
    let weekly = || demo_with(|world| world["plans"][0]["limits"][0]["window"] = json!("week"));
    let first = Installation::new(defined(demo()), NOW_MS);
    let field = |installation: &Installation| installation.counters(&acme(), NOW_MS + 100)[&key("page-day")];
    let second = first.changed(weekly(), NOW_MS + 1);
    let third = second.changed(defined(demo()), NOW_MS + 2);
    assert_eq!(field(&third).0, field(&first).0, "the same shape");
    assert_eq!(HashSet::from([field(&first).1, field(&second).1, field(&third).1]).len(), 3);
    assert_eq!([field(&first).2, field(&second).2, field(&third).2], [NOW_MS, NOW_MS + 1, NOW_MS + 2]);
}

#[test]
fn a_quota_left_and_taken_up_again_starts_anew() {
    let on = |plan: &'static str| demo_with(move |world| world["tenants"][0]["plan"] = json!(plan));
    let first = Installation::new(on("free"), NOW_MS);
    let third = first.changed(on("premium"), NOW_MS + 1).changed(on("free"), NOW_MS + 2);
    let field = |installation: &Installation| installation.counters(&acme(), NOW_MS + 2)[&key("quota/page")];
    assert_ne!(field(&third).1, field(&first).1);
    assert_eq!(field(&third).2, NOW_MS + 2);
}

#[test]
fn a_standing_clock_never_brings_a_counter_back() {
    let window = |window: &'static str| {
        demo_with(move |world| {
            world["tenants"][0]["limits"] =
                json!([{ "id": "own", "meter": "page", "window": window, "capacity": 1 }]);
            world["limits"] = json!([{ "id": "own", "meter": "page", "window": "day", "capacity": 1 }]);
            world["plans"][0]["limits"] =
                json!([{ "id": "own", "meter": "page", "window": "week", "capacity": 1 }]);
        })
    };
    let mut installation = Installation::new(window("day"), NOW_MS);
    let mut fields = vec![installation.counters(&acme(), NOW_MS)[&key("own")].1];
    for kind in ["week", "day", "week", "day"] {
        installation = installation.changed(window(kind), NOW_MS);
        fields.push(installation.counters(&acme(), NOW_MS)[&key("own")].1);
    }
    assert_eq!(fields.iter().collect::<HashSet<_>>().len(), 5, "{fields:?}");
}

#[test]
fn a_field_is_eight_characters_that_need_no_escape() {
    for (_, field, _) in Installation::new(defined(demo()), NOW_MS).counters(&acme(), NOW_MS).values() {
        let text = field.as_str();
        assert!(
            text.len() == 8 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)),
            "{text}"
        );
    }
}

#[test]
fn stored_names_and_shapes_read_back() {
    let definitions = defined(demo());
    for row in generations_after(&Definitions::default(), &definitions, &Generations::default(), NOW_MS) {
        let GenerationRow { counter, shape, generation } = row;
        assert_eq!(CounterName::try_from(String::from(counter.clone())), Ok(counter));
        assert_eq!(shape.to_string().parse(), Ok(shape));
        assert_eq!((generation.number, generation.since_ms), (1, NOW_MS));
    }
    assert!("+0000000000000000000000000000001".parse::<LimitSignature>().is_err());
    for bad in ["", "quota/", "quota/a/b", "a/b", "{a}"] {
        assert!(CounterName::try_from(bad.to_owned()).is_err(), "{bad:?}");
    }
    let half = r#"[{"counter":"a","subject_kind":"user","start_ms":1,"decided_ms":1}]"#;
    assert!(serde_json::from_str::<Resets>(half).is_err());
}

/// What one counter of one tenant was at the last look, and every field it has ever had.
#[derive(Default)]
struct Seen {
    now: Option<(LimitSignature, CounterField)>,
    fields: HashSet<CounterField>,
}

#[test]
fn what_happens_to_one_tenant_leaves_the_counters_of_another_alone() {
    let own = |tenant: &str, window: &str| {
        let world = json!({ "tenants": [{ "id": tenant, "plan": "free",
            "limits": [{ "id": "own", "meter": "page", "window": window, "capacity": 1 }] }] });
        let tenant = TenantId::parse(tenant).unwrap();
        (tenant.clone(), file(world).merge_into(Definitions::default()).tenants[&tenant].clone())
    };
    let mut installation = Installation::new(defined(demo()), NOW_MS);
    let ((a, a_day), (b, b_day)) = (own("a", "day"), own("b", "day"));
    installation = installation.with_tenant(&a, a_day, NOW_MS + 1);
    let counters = installation.counters(&a, NOW_MS + 100);
    let (_, b_week) = own("b", "week");
    let (c, _) = own("c", "day");
    for (tenant, definition) in [(&b, &b_day), (&b, &b_week), (&b, &b_day), (&c, &b_day)] {
        installation = installation.with_tenant(tenant, definition.clone(), NOW_MS + 50);
        assert_eq!(installation.counters(&a, NOW_MS + 100), counters);
    }
    let in_plan = |definitions: &Definitions| {
        let world = demo_with(|world| {
            let own = json!({ "id": "own", "meter": "page", "window": "day", "capacity": 1 });
            world["plans"][0]["limits"].as_array_mut().unwrap().push(own);
        });
        Definitions { plans: world.plans, ..definitions.clone() }
    };
    let planned = installation.changed(in_plan(&installation.definitions), NOW_MS + 60);
    assert_eq!(planned.counters(&a, NOW_MS + 100), counters, "a plan takes up what the tenant has had");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The whole rule of counter identity: while the shape stays, the field stays; once it was another shape, or
    /// nothing, the field is one that was never used before. Worlds change at 10, 50, 90 ms ...; limits' dates lie
    /// between.
    #[test]
    fn a_counter_goes_on_exactly_while_its_shape_stays(
        changes in prop::collection::vec((worlds::any_world(), any::<bool>()), 2..8),
    ) {
        let mut installation = Installation::new(changes[0].0.definitions(), 0);
        let mut seen: HashMap<(TenantId, Option<Subject>, CounterName), Seen> = HashMap::new();
        for tick in 0_usize..36 {
            let at_ms = i64::try_from(tick * 10).unwrap();
            if let Some((world, is_of_one_tenant)) = changes.get(tick / 4).filter(|_| tick % 4 == 1) {
                let definitions = world.definitions();
                installation = match definitions.tenants.first_key_value() {
                    Some((tenant, definition)) if *is_of_one_tenant => {
                        installation.with_tenant(tenant, definition.clone(), at_ms)
                    }
                    _ => installation.changed(definitions, at_ms),
                };
            }
            for tenant in installation.definitions.tenants.keys() {
                let counters = installation.counters(tenant, at_ms);
                for ((who, name), (shape, field, since_ms)) in &counters {
                    let seen = seen.entry((tenant.clone(), who.clone(), name.clone())).or_default();
                    match seen.now {
                        Some((before, old)) if before == *shape => prop_assert_eq!(old, *field, "{:?} at {}", name, at_ms),
                        _ => prop_assert!(!seen.fields.contains(field), "{:?} came back at {}", name, at_ms),
                    }
                    prop_assert!(*since_ms <= at_ms);
                    seen.now = Some((*shape, *field));
                    seen.fields.insert(*field);
                }
                for ((owner, who, name), seen) in &mut seen {
                    if owner == tenant && !counters.contains_key(&(who.clone(), name.clone())) {
                        seen.now = None;
                    }
                }
            }
        }
    }
}
