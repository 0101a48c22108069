//! docs/POLICY.md describes every field of a policy as the contract does.

use std::collections::BTreeSet;

use serde_json::Value;

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
