//! docs/POLICY.md describes every field of a policy as the contract does.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate::domain::limit::Limit;
use tollgate::domain::policy::counter::LimitSignature;

use crate::support::app::*;

/// The sections of the document and the schemas that they describe.
const SECTIONS: [(&str, &str); 21] = [
    ("PolicyFile", "PolicyFile"),
    ("Meter", "Meter"),
    ("Operation", "Operation"),
    ("Cost", "Cost"),
    ("EndpointPattern", "EndpointPattern"),
    ("CostDefaults", "CostDefaults"),
    ("Limit", "Limit"),
    ("Anomaly", "Anomaly"),
    ("Punishment", "Punishment"),
    ("Plan", "PlanDocument"),
    ("Quota", "Quota"),
    ("Price", "Price"),
    ("PriceTier", "PriceTier"),
    ("Discount", "Discount"),
    ("MinimumCommitment", "MinimumCommitment"),
    ("Tax", "Tax"),
    ("Tenant", "TenantDocument"),
    ("SubjectPlan", "SubjectPlan"),
    ("Override", "Override"),
    ("Ban", "Ban"),
    ("SubjectName", "SubjectName"),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
}

fn contract() -> Value {
    serde_json::from_str(&read("docs/openapi.json")).unwrap()
}

/// The names of the schemas that a schema refers to.
fn references(schema: &Value) -> BTreeSet<String> {
    let text = schema.to_string();
    let names = text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

/// A field's schema with the schemas that it refers to, for their bounds and words.
fn parts<'a>(contract: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let of = |name: &String| &contract["components"]["schemas"][name.as_str()];
    let scalars =
        references(schema).iter().map(of).filter(|schema| schema["properties"].is_null()).collect::<Vec<_>>();
    [schema].into_iter().chain(scalars).collect()
}

#[test]
fn the_document_of_the_policy_names_every_field_with_its_words_bounds_and_default() {
    let (contract, document) = (contract(), read("docs/POLICY.md"));
    let mut missing = Vec::new();
    for (section, schema) in SECTIONS {
        let start = format!("\n## {section}\n");
        let body =
            document.split(&start).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
        let properties = contract["components"]["schemas"][schema]["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("{schema} has no fields in the contract"));
        for (field, schema) in properties {
            let at = format!("| `{field}` |");
            let Some(row) = body.lines().find(|line| line.starts_with(&at)) else {
                missing.push(format!("{section}: {field}"));
                continue;
            };
            for part in parts(&contract, schema) {
                let words = part["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let unnamed = words.filter(|word| !row.contains(&format!("`{word}`")));
                missing.extend(unnamed.map(|word| format!("{section}: {field}: {word}")));
                let is_whole = part["type"] == "integer" || part["type"][0] == "integer";
                for bound in ["minimum", "maximum", "default"].iter().filter(|_| is_whole) {
                    let number = part[*bound].as_i64().filter(|number| !row.contains(&number.to_string()));
                    missing.extend(number.map(|number| format!("{section}: {field}: {bound} {number}")));
                }
            }
        }
        let named = body.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let unknown = named.filter(|field| !properties.contains_key(*field));
        missing.extend(unknown.map(|field| format!("{section}: there is no {field}")));
    }
    assert!(missing.is_empty(), "docs/POLICY.md does not say:\n{}", missing.join("\n"));
}

#[test]
fn every_part_of_a_policy_has_a_schema_and_a_section() {
    let contract = contract();
    let mut found = BTreeSet::from(["PolicyFile".to_owned()]);
    loop {
        let more: BTreeSet<String> =
            found.iter().flat_map(|name| references(&contract["components"]["schemas"][name])).collect();
        let count = found.len();
        found.extend(more);
        if found.len() == count {
            break;
        }
    }
    let described = |name: &&String| SECTIONS.iter().any(|(_, schema)| schema == name);
    let has_fields =
        |name: &&String| contract["components"]["schemas"][name.as_str()]["properties"].is_object();
    let undescribed: Vec<_> = found.iter().filter(has_fields).filter(|name| !described(name)).collect();
    assert!(undescribed.is_empty(), "docs/POLICY.md has no section for {undescribed:?}");
    for (path, item) in
        contract["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1/admin/"))
    {
        for (method, call) in item.as_object().unwrap() {
            let body = &call["requestBody"]["content"]["application/json"]["schema"];
            assert!(
                body.is_null() || !references(body).is_empty(),
                "{method} {path} takes a bare object: {body}"
            );
        }
    }
}

#[test]
fn the_document_of_billing_names_every_field_of_a_grant() {
    let (contract, document) = (contract(), read("docs/BILLING.md"));
    let section = document.split("\n## Grants\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| quoted(row.split(" | ").next().unwrap())).collect::<BTreeSet<_>>();
    let fields = contract["components"]["schemas"]["GrantBody"]["properties"].as_object().unwrap();
    assert_eq!(named, fields.keys().cloned().collect::<BTreeSet<_>>(), "docs/BILLING.md");
}

/// Limits, and for each of their fields another value.
fn other_values() -> [(Value, Value); 9] {
    let limit = |fields: Value| {
        let mut limit = json!({ "id": "x", "meter": "page", "capacity": "5" });
        for (field, value) in fields.as_object().unwrap() {
            limit[field] = value.clone();
        }
        limit
    };
    let by = |algorithm: &str, fields: Value| limit(fields).with("algorithm", algorithm);
    let of_all = json!({
        "meter": "token", "window": "hour", "scope": "subject", "operations": ["ocr"], "class": "rate", "capacity": "6",
        "kind": "soft", "rollout_percent": 50, "load_scaled": true, "near_percent": 50, "on_gate_failure": "allow",
        "emergency_capacity": "1", "punishment": { "memory_seconds": 60, "warn_at": 3 }, "anomaly": { "min_samples": 5 },
        "from": "2026-01-01T00:00:00Z", "until": "2027-01-01T00:00:00Z", "message": "no",
    });
    let of_user = json!({ "window": "day", "scope": "subject", "subject_kind": "user" });
    let mut budget =
        by("fixed_window", json!({ "window_seconds": 60, "meters": { "page": "1", "token": "2" } }));
    budget.as_object_mut().unwrap().remove("meter");
    [
        (limit(json!({ "window": "day" })), of_all),
        (limit(of_user), json!({ "subject_kind": "ip" })),
        (
            by("fixed_window", json!({ "window_seconds": 60 })),
            json!({ "algorithm": "sliding_log", "window_seconds": 120, "aligned": true }),
        ),
        (by("sliding_counter", json!({ "window_seconds": 60 })), json!({ "sub_windows": 20 })),
        (by("sliding_log", json!({ "window_seconds": 60 })), json!({ "entries_max": 3 })),
        (
            by("token_bucket", json!({ "refill": "1", "per_seconds": 60 })),
            json!({ "refill": "2", "per_seconds": 30 }),
        ),
        (
            by("leaky_bucket", json!({ "drain": "1", "per_seconds": 60 })),
            json!({ "drain": "2", "max_wait_seconds": 30 }),
        ),
        (by("concurrency", json!({})), json!({ "counts": "reservations" })),
        (budget, json!({ "meters": { "page": "1", "token": "3" }, "decimals": 1 })),
    ]
}

/// The words in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_fields_that_begin_a_new_counter_are_those_that_the_documents_name() {
    let signature =
        |limit: &Value| LimitSignature::of_limit(&serde_json::from_value::<Limit>(limit.clone()).unwrap());
    let (mut begin, mut tried) = (BTreeSet::new(), BTreeSet::from(["id".to_owned()]));
    for (limit, others) in other_values() {
        for (field, other) in others.as_object().unwrap() {
            tried.insert(field.clone());
            if signature(&limit.clone().with(field, other.clone())) != signature(&limit) {
                begin.insert(field.clone());
            }
        }
    }
    let contract = contract();
    let fields = contract["components"]["schemas"]["Limit"]["properties"].as_object().unwrap();
    assert_eq!(tried, fields.keys().cloned().collect::<BTreeSet<_>>(), "each field is tried");
    let of = |operations: Value| signature(&other_values()[0].0.clone().with("operations", operations));
    assert_eq!(of(json!(["a", "b"])), of(json!(["b", "a"])));

    let policy = read("docs/POLICY.md");
    let section = policy.split("\n### What begins a new counter\n").nth(1).unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| quoted(row.split(" | ").next().unwrap())).collect::<BTreeSet<_>>();
    assert_eq!(named, begin, "docs/POLICY.md");
    let limits = read("docs/LIMITS.md");
    let sentence = limits.split("So does one whose").nth(1).unwrap().split(" changes ").next().unwrap();
    assert_eq!(quoted(sentence), begin, "docs/LIMITS.md");
}
