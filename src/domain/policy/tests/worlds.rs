//! Random installations, small enough that everything collides.

use std::collections::BTreeSet;

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::file;
use crate::domain::instant::Instant;
use crate::domain::policy::document::Definitions;

/// Limits, plans and two tenants, as JSON: dates lie at 100, 200 and 300 ms.
#[derive(Debug, Clone)]
pub(super) struct World {
    limits: Vec<Value>,
    plans: Vec<(Vec<Value>, bool)>,
    tenants: Vec<Tenant>,
}

#[derive(Debug, Clone)]
struct Tenant {
    plan: Option<&'static str>,
    limits: Vec<Value>,
    vip: Option<&'static str>,
    overrides: Vec<Value>,
}

impl World {
    pub(super) fn definitions(&self) -> Definitions {
        let plans = self.plans.iter().zip(["p", "q"]).map(|((limits, has_quota), id)| {
            let quotas = if *has_quota { json!([{ "meter": "whole", "included": "70" }]) } else { json!([]) };
            json!({ "id": id, "limits": limits, "quotas": quotas })
        });
        let tenants = self.tenants.iter().zip(["acme", "beta"]).map(|(tenant, id)| {
            let vip = tenant.vip.map(|plan| json!({ "kind": "user", "id": "vip", "plan": plan }));
            json!({ "id": id, "plan": tenant.plan, "limits": tenant.limits, "overrides": tenant.overrides,
                    "subjects": Vec::from_iter(vip) })
        });
        let world = json!({
            "meters": [{ "id": "whole", "unit": "u" }, { "id": "cents", "unit": "u", "decimals": 2 }],
            "operations": [{ "id": "job", "costs": [{ "meter": "whole", "base": 1 }] }],
            "limits": self.limits, "plans": Vec::from_iter(plans), "tenants": Vec::from_iter(tenants),
        });
        file(world).merge_into(Definitions::default())
    }
}

fn any_date() -> impl Strategy<Value = Option<Value>> {
    of(select(vec![100_i64, 200, 300]).prop_map(|ms| json!(Instant::from_ms(ms).unwrap())))
}

fn any_limit() -> impl Strategy<Value = Value> {
    let shape = (
        select(vec!["a", "b"]),
        select(vec!["whole", "whole", "cents"]),
        select(vec![None, None, Some("user"), Some("user"), Some("device")]),
        select(vec!["hour", "day"]),
        prop::bool::weighted(0.2),
        select(vec!["hard", "hard", "soft", "off"]),
    );
    (shape, 0_u32..1000, any_date(), any_date()).prop_map(|(shape, capacity, from, until)| {
        let (id, meter, subject_kind, window, has_operations, kind) = shape;
        let mut limit = Map::new();
        let mut put = |field: &str, value: Value| limit.insert(field.to_owned(), value);
        put("id", json!(id));
        put("meter", json!(meter));
        put("window", json!(window));
        put("capacity", json!(capacity));
        put("kind", json!(kind));
        if let Some(kind) = subject_kind {
            put("scope", json!("subject"));
            put("subject_kind", json!(kind));
        }
        if has_operations {
            put("operations", json!(["job"]));
        }
        from.map(|from| put("from", from));
        until.map(|until| put("until", until));
        Value::Object(limit)
    })
}

fn any_limits() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(any_limit(), 0..3)
        .prop_map(|limits| distinct(limits, |limit| limit["id"].to_string()))
}

fn any_override() -> impl Strategy<Value = Value> {
    let amount = prop_oneof![
        (0_u32..1000).prop_map(|capacity| json!({ "capacity": capacity })),
        select(vec!["0.5", "1.333", "3"]).prop_map(|factor| json!({ "factor": factor })),
        select(vec!["hard", "soft", "off"]).prop_map(|kind| json!({ "kind": kind })),
        select(vec!["hard", "off"]).prop_map(|kind| json!({ "kind": kind, "capacity": 3 })),
    ];
    let level = select(vec!["emergency", "subject", "tenant"]);
    let who = select(vec![("user", "vip"), ("user", "u1"), ("device", "d1")]);
    (level, select(vec!["a", "b"]), who, amount, any_date()).prop_map(|(level, limit, who, amount, until)| {
        let mut each = amount;
        each["level"] = json!(level);
        each["limit"] = json!(limit);
        if level == "subject" {
            each["subject"] = json!({ "kind": who.0, "id": who.1 });
        }
        if let Some(until) = until {
            each["until"] = until;
        }
        each
    })
}

fn any_overrides() -> impl Strategy<Value = Vec<Value>> {
    let key = |each: &Value| format!("{} {} {}", each["level"], each["limit"], each["subject"]);
    prop::collection::vec(any_override(), 0..4).prop_map(move |overrides| {
        let mut overrides = distinct(overrides, key);
        overrides.iter_mut().enumerate().for_each(|(index, each)| each["id"] = json!(format!("o{index}")));
        overrides
    })
}

fn distinct(values: Vec<Value>, key: impl Fn(&Value) -> String) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    values.into_iter().filter(|value| seen.insert(key(value))).collect()
}

fn any_tenant() -> impl Strategy<Value = Tenant> {
    let plan = || select(vec![None, Some("p"), Some("q")]);
    (plan(), any_limits(), plan(), any_overrides()).prop_map(|(plan, limits, vip, overrides)| Tenant {
        plan,
        limits,
        vip,
        overrides,
    })
}

pub(super) fn any_world() -> impl Strategy<Value = World> {
    let plans = prop::collection::vec((any_limits(), any::<bool>()), 2);
    (any_limits(), plans, prop::collection::vec(any_tenant(), 2)).prop_map(|(limits, plans, tenants)| World {
        limits,
        plans,
        tenants,
    })
}
