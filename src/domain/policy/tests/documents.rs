use super::*;
use crate::domain::ids::{MeterId, PlanId};
use crate::domain::policy::diff::{Action, DefinitionKind, changes, digest};
use crate::domain::policy::document::export;
use proptest::prelude::*;

fn pointers(value: Value) -> Vec<String> {
    let mut world = demo();
    for (list, items) in value.as_object().unwrap() {
        world[list] = items.clone();
    }
    match apply(&Definitions::default(), world, &[]) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.into_iter().map(|error| error.pointer).collect(),
    }
}

fn limit(changes: Value) -> Value {
    let mut limit = json!({ "id": "x", "meter": "page", "window": "day", "capacity": "5" });
    for (field, value) in changes.as_object().unwrap() {
        limit[field] = value.clone();
    }
    limit
}

#[test]
fn a_limit_names_every_fault() {
    let faults = |changes: Value| pointers(json!({ "limits": [limit(changes)] }));
    assert_eq!(faults(json!({})), [""; 0]);
    assert_eq!(faults(json!({ "meter": "none" })), ["/limits/0/meter"]);
    assert_eq!(faults(json!({ "capacity": "0.5" })), ["/limits/0/capacity"]);
    assert_eq!(faults(json!({ "capacity": "9000000000000001" })), ["/limits/0/capacity"]);
    assert_eq!(faults(json!({ "scope": "subject" })), ["/limits/0/subject_kind"]);
    assert_eq!(faults(json!({ "subject_kind": "user" })), ["/limits/0/subject_kind"]);
    assert_eq!(faults(json!({ "operations": [] })), ["/limits/0/operations"]);
    assert_eq!(faults(json!({ "operations": ["ocr", "ocr"] })), ["/limits/0/operations/1"]);
    assert_eq!(faults(json!({ "operations": ["none"] })), ["/limits/0/operations/0"]);
    let backwards = json!({ "from": "2026-01-02T00:00:00Z", "until": "2026-01-02T00:00:00Z" });
    assert_eq!(faults(backwards), ["/limits/0/until"]);
    assert_eq!(faults(json!({ "message": "" })), ["/limits/0/message"]);
    assert_eq!(faults(json!({ "rollout_percent": 99 })), ["/limits/0/rollout_percent"]);
    assert_eq!(faults(json!({ "rollout_percent": 99, "class": "rate" })), [""; 0]);
    assert_eq!(faults(json!({ "kind": "shadow" })), ["/limits/0/kind"]);
    assert_eq!(faults(json!({ "kind": "shadow", "class": "rate" })), [""; 0]);
    assert_eq!(faults(json!({ "load_scaled": true })), ["/limits/0/load_scaled"]);
    assert_eq!(faults(json!({ "load_scaled": true, "class": "rate" })), [""; 0]);
    assert_eq!(faults(json!({ "meter": "none", "scope": "subject", "message": "\n" })).len(), 3);
}

#[test]
fn a_limit_says_how_much_is_admitted_in_an_emergency_and_only_then() {
    let faults = |changes: Value| pointers(json!({ "limits": [limit(changes)] }));
    let emergency = |more: Value| {
        let mut changes = json!({ "on_gate_failure": "emergency", "emergency_capacity": "5" });
        more.as_object().unwrap().iter().for_each(|(field, value)| changes[field] = value.clone());
        faults(changes)
    };
    assert_eq!(emergency(json!({})), [""; 0]);
    assert_eq!(emergency(json!({ "emergency_capacity": null })), ["/limits/0/emergency_capacity"]);
    assert_eq!(emergency(json!({ "emergency_capacity": "0.5" })), ["/limits/0/emergency_capacity"]);
    assert_eq!(emergency(json!({ "on_gate_failure": "allow" })), ["/limits/0/emergency_capacity"]);
    let at_once = json!({ "algorithm": "concurrency", "window": null });
    assert_eq!(emergency(at_once), ["/limits/0/on_gate_failure"]);
}

#[test]
fn a_share_is_of_a_counter_of_class_rate_that_holds_for_a_window() {
    let faults = |changes: Value| pointers(json!({ "limits": [limit(changes)] }));
    let local = |more: Value| {
        let mut changes = json!({ "on_gate_failure": "local", "class": "rate" });
        more.as_object().unwrap().iter().for_each(|(field, value)| changes[field] = value.clone());
        faults(changes)
    };
    let windows =
        |seconds: u32| json!({ "algorithm": "fixed_window", "window": null, "window_seconds": seconds });
    assert_eq!((local(json!({})), local(windows(60))), (Vec::new(), Vec::new()));
    for unfit in [
        json!({ "class": "quota" }),
        json!({ "scope": "global" }),
        windows(59),
        json!({ "algorithm": "sliding_counter", "window": null, "window_seconds": 600 }),
        json!({ "algorithm": "concurrency", "window": null }),
    ] {
        assert_eq!(local(unfit.clone()), ["/limits/0/on_gate_failure"], "{unfit}");
    }
}

#[test]
fn subjects_that_share_slots_have_limits_of_class_rate_that_count_without_names_and_nothing_of_their_own() {
    let of_anonymous = |changes: Value| {
        let mut limit = limit(json!({ "scope": "subject", "subject_kind": "anonymous", "class": "rate" }));
        changes.as_object().unwrap().iter().for_each(|(field, value)| limit[field] = value.clone());
        limit
    };
    let faults = |changes: Value| pointers(json!({ "limits": [of_anonymous(changes)] }));
    assert_eq!(faults(json!({})), [""; 0]);
    assert_eq!(faults(json!({ "class": "quota" })), ["/limits/0/class"]);
    let log = json!({ "algorithm": "sliding_log", "window": null, "window_seconds": 60 });
    assert_eq!(faults(log), ["/limits/0/algorithm"]);
    assert_eq!(faults(json!({ "algorithm": "concurrency", "window": null })), ["/limits/0/algorithm"]);
    let anonymous = json!({ "kind": "anonymous", "id": "u" });
    let own = json!({ "id": "a", "level": "subject", "limit": "x", "capacity": "9", "subject": anonymous });
    let plan = json!({ "kind": "anonymous", "id": "u", "plan": "free" });
    let tenant = json!({ "id": "acme", "plan": "free", "overrides": [own], "subjects": [plan] });
    let found = pointers(json!({ "limits": [of_anonymous(json!({}))], "tenants": [tenant] }));
    assert_eq!(found, ["/tenants/0/subjects/0/kind", "/tenants/0/overrides/0/subject/kind"]);
}

#[test]
fn what_this_version_does_not_serve_is_refused_by_name() {
    let refused = |value: Value| read_json::<PolicyFile>(&value).unwrap_err();
    let with = |changes: Value| refused(json!({ "limits": [limit(changes)] }));
    assert!(with(json!({ "refill": "2" })).message.contains("refill"));
    for (field, value) in [
        ("algorithm", "gcra"),
        ("kind", "watch"),
        ("scope", "galaxy"),
        ("window", "year"),
        ("class", "other"),
        ("on_gate_failure", "maybe"),
    ] {
        let error = with(json!({ field: value }));
        assert_eq!(error.pointer, format!("/limits/0/{field}"), "{error}");
    }
    assert_eq!(with(json!({ "near_percent": 101 })).pointer, "/limits/0/near_percent");
    assert_eq!(with(json!({ "from": "yesterday" })).pointer, "/limits/0/from");
    assert_eq!(with(json!({ "capacity": 1.5 })).pointer, "/limits/0/capacity");
    let rolling = json!({ "plans": [{ "id": "a", "quotas": [{ "meter": "b", "included": 1, "rollover_percent": 5 }] }] });
    assert!(refused(rolling).message.contains("rollover_percent"));
    let taxes = json!({ "plans": [{ "id": "a", "taxes": [] }] });
    assert!(refused(taxes).message.contains("taxes"), "only tenants pay taxes");
    assert!(refused(json!({ "cost_defaults": {} })).message.contains("meter"));
}

#[test]
fn meters_plans_and_tenants_name_every_fault() {
    let meters = |changes: Value| {
        let mut meter = json!({ "id": "page", "unit": "page" });
        changes.as_object().unwrap().iter().for_each(|(field, value)| meter[field] = value.clone());
        let token = json!({ "id": "token", "unit": "token" });
        pointers(json!({ "meters": [meter, token] }))
    };
    assert_eq!(meters(json!({ "unit": " " })), ["/meters/0/unit"]);
    assert_eq!(meters(json!({ "ttl_seconds": 0 })), ["/meters/0/ttl_seconds"]);
    assert_eq!(meters(json!({ "ttl_seconds": 60, "max_life_seconds": 59 })), ["/meters/0/ttl_seconds"]);
    assert_eq!(meters(json!({ "max_life_seconds": 2_678_401 })), ["/meters/0/max_life_seconds"]);
    assert_eq!(meters(json!({ "late_within_seconds": 34_560_001 })), ["/meters/0/late_within_seconds"]);

    let learned = |booked: bool| {
        let meters =
            json!([{ "id": "page", "unit": "page" }, { "id": "token", "unit": "token", "booked": booked }]);
        let costs = json!([{ "meter": "page", "base": "1" }, { "meter": "token", "max": "9", "estimate": "learned" }]);
        pointers(json!({ "meters": meters, "operations": [{ "id": "ocr", "costs": costs }] }))
    };
    assert_eq!(learned(true), [""; 0]);
    assert_eq!(learned(false), ["/operations/0/costs/1/estimate"], "the gate alone learns nothing");

    let quota = json!({ "meter": "page", "included": "1" });
    let twice = json!({ "plans": [{ "id": "free" }, { "id": "free", "limits": [limit(json!({ "meter": "none" }))] }] });
    assert_eq!(pointers(twice), ["/plans/1/id"], "which of the two is meant must be settled first");
    let plans = json!({ "plans": [
        { "id": "free", "limits": [limit(json!({})), limit(json!({}))], "quotas": [quota, quota, { "meter": "none", "included": 1 }] },
    ] });
    assert_eq!(
        pointers(plans),
        ["/plans/0/limits/1/id", "/plans/0/quotas/1/meter", "/plans/0/quotas/2/meter"]
    );

    let user = json!({ "kind": "user", "id": "u", "plan": "none" });
    let tenants = json!({ "tenants": [{ "id": "acme", "plan": "gone", "subjects": [user, user] }] });
    let at = "/tenants/0";
    let expected =
        ["plan", "subjects/1", "subjects/0/plan", "subjects/1/plan"].map(|field| format!("{at}/{field}"));
    assert_eq!(pointers(tenants), expected);
}

#[test]
fn overrides_name_every_fault() {
    let faults = |overrides: Value| -> Vec<String> {
        let found =
            pointers(json!({ "tenants": [{ "id": "acme", "plan": "free", "overrides": overrides }] }));
        found.into_iter().map(|pointer| pointer.replace("/tenants/0/overrides", "")).collect()
    };
    let user = json!({ "kind": "user", "id": "u" });
    let fine = json!({ "id": "a", "level": "tenant", "limit": "page-day", "capacity": "5" });
    let with = |changes: Value| {
        let mut each = fine.clone();
        changes.as_object().unwrap().iter().for_each(|(field, value)| each[field] = value.clone());
        each
    };
    assert_eq!(faults(json!([fine])), [""; 0]);
    assert_eq!(faults(json!([with(json!({ "capacity": null, "factor": "1.5" }))])), [""; 0]);
    assert_eq!(faults(json!([with(json!({ "factor": "1.5" }))])), ["/0/capacity"]);
    assert_eq!(faults(json!([with(json!({ "capacity": null }))])), ["/0/capacity"]);
    assert_eq!(faults(json!([with(json!({ "capacity": "0.5" }))])), ["/0/capacity"]);
    assert_eq!(faults(json!([with(json!({ "limit": "none" }))])), ["/0/limit"]);
    assert_eq!(faults(json!([with(json!({ "level": "subject" }))])), ["/0/subject"]);
    assert_eq!(faults(json!([with(json!({ "subject": user }))])), ["/0/subject", "/0/limit"]);
    let on_user = |kind: &str| json!({ "level": "subject", "limit": "user-hour", "subject": { "kind": kind, "id": "u" } });
    assert_eq!(faults(json!([with(on_user("user"))])), [""; 0]);
    assert_eq!(faults(json!([with(on_user("device"))])), ["/0/limit"]);
    assert_eq!(faults(json!([fine, with(json!({ "capacity": "6" }))])), ["/1/id", "/1/limit"]);
    assert_eq!(faults(json!([fine, with(json!({ "id": "b", "level": "emergency" }))])), [""; 0]);
}

#[test]
fn nobody_new_is_put_on_an_archived_plan_but_who_is_on_it_stays() {
    let current = defined(demo());
    let archived = apply(&current, json!({ "plans": [{ "id": "free", "archived": true }] }), &[]).unwrap();
    let after = archived;
    assert_eq!(
        after.plans[&PlanId::parse("free").unwrap()].limits.len(),
        1,
        "an absent list is left as it is"
    );
    let errors = apply(&after, json!({ "tenants": [{ "id": "new", "plan": "free" }] }), &[]).unwrap_err();
    assert_eq!(errors[0].pointer, "/tenants/0/plan");
    assert!(
        apply(&after, json!({ "tenants": [{ "id": "acme", "plan": "free", "anchor_day": 2 }] }), &[]).is_ok()
    );
}

#[test]
fn an_absent_list_is_left_and_an_empty_one_empties() {
    let mut world = demo();
    world["tenants"][0]["limits"] = json!([limit(json!({}))]);
    world["tenants"][0]["subjects"] = json!([{ "kind": "user", "id": "vip", "plan": "premium" }]);
    let current = defined(world);
    let tenant = |document: Value| {
        let after = Edit::put(file(json!({ "tenants": [document] }))).after(&current);
        after.tenants.values().next().unwrap().as_ref().clone()
    };
    let kept = tenant(json!({ "id": "acme", "plan": "premium" }));
    assert_eq!((kept.limits.len(), kept.subjects.len(), kept.time_zone.name()), (1, 1, "Europe/Berlin"));
    let emptied = tenant(json!({ "id": "acme", "limits": [], "subjects": [] }));
    assert_eq!((emptied.limits.len(), emptied.subjects.len(), emptied.plan), (0, 0, None));
}

#[test]
fn unit_and_decimals_are_fixed_after_first_use() {
    let current = defined(demo());
    let page = &current.meters[&MeterId::parse("page").unwrap()];
    let mut new = page.as_ref().clone();
    new.ttl_seconds = 5;
    assert_eq!(page.change_needs_unused(&new), []);
    new.unit = "sheet".to_owned();
    assert_eq!(page.change_needs_unused(&new)[0].pointer, "/unit");
}

#[test]
fn a_change_of_decimals_is_refused_where_a_capacity_would_no_longer_fit() {
    let mut world = demo();
    world["limits"] = json!([limit(json!({ "meter": "token", "capacity": "0.25" }))]);
    let current = defined(world);
    let errors =
        apply(&current, json!({ "meters": [{ "id": "token", "unit": "token", "decimals": 1 }] }), &[]);
    assert_eq!(errors.unwrap_err()[0].pointer, "/limits/x/capacity", "not in the file, so named by its id");
}

#[test]
fn a_diff_names_each_field_with_its_texts_before_and_after() {
    let current = defined(demo());
    let changed = json!({
        "plans": [{ "id": "free", "limits": [{ "id": "page-day", "meter": "page", "window": "day", "capacity": "150" }] }],
        "tenants": [{ "id": "beta" }],
    });
    let changes = changes(&current, &apply(&current, changed, &[]).unwrap());
    let summary: Vec<_> = changes.iter().map(|c| (c.kind, c.id.as_str(), c.action)).collect();
    let free = (DefinitionKind::Plan, "free", Action::Change);
    assert_eq!(summary, [free, (DefinitionKind::Tenant, "beta", Action::Create)], "acme is not deleted");
    let [field] = changes[0].fields.as_slice() else { panic!("{changes:?}") };
    assert_eq!((field.action, field.pointer.as_str()), (Action::Change, "/limits/page-day/capacity"));
    assert_eq!((field.before.as_deref(), field.after.as_deref()), (Some("100"), Some("150")));
}

#[test]
fn a_diff_names_an_item_that_goes_as_a_removal() {
    let current = defined(demo());
    let fewer = json!({ "plans": [{ "id": "free", "quotas": [] }] });
    let changes = changes(&current, &apply(&current, fewer, &[Prune::Quotas]).unwrap());
    let [field] = changes[0].fields.as_slice() else { panic!("{changes:?}") };
    assert_eq!((field.action, field.pointer.as_str()), (Action::Delete, "/quotas/page"));
    assert!(field.before.as_deref().unwrap().contains("1000"), "{field:?}");
    assert_eq!(field.after, None);
}

#[test]
fn a_list_of_a_file_takes_nothing_out_unless_told_to() {
    let mut world = demo();
    let vip = json!([{ "kind": "user", "id": "vip", "plan": "premium" }]);
    world["tenants"][0]["subjects"] = vip;
    world["tenants"][0]["limits"] = json!([limit(json!({}))]);
    world["tenants"][0]["overrides"] =
        json!([{ "id": "a", "level": "tenant", "limit": "x", "capacity": "5" }]);
    let current = defined(world);
    let emptied = json!({
        "plans": [{ "id": "free", "limits": [], "quotas": [] }],
        "tenants": [{ "id": "acme", "plan": "free", "limits": [], "subjects": [], "overrides": [] }],
    });
    let errors = apply(&current, emptied.clone(), &[]).unwrap_err();
    let said: Vec<_> = errors.iter().map(|error| (error.pointer.as_str(), error.message.as_str())).collect();
    let would = |what: &str, prune: &str| format!("would remove `{what}`: write it too, or prune {prune}");
    let expected = [
        ("/plans/0/limits", would("page-day", "limits")),
        ("/plans/0/quotas", would("page", "quotas")),
        ("/tenants/0/limits", would("x", "limits")),
        ("/tenants/0/subjects", would("user:vip", "subjects")),
        ("/tenants/0/overrides", would("a", "overrides")),
    ];
    assert_eq!(said, expected.iter().map(|(at, text)| (*at, text.as_str())).collect::<Vec<_>>());
    let put = Edit::put(file(json!({ "plans": [{ "id": "free", "limits": [], "quotas": [] }] })));
    assert_eq!(
        Checks::new(&put, &current, &put.after(&current)).all(),
        [],
        "a definition by itself replaces"
    );
}

#[test]
fn changes_have_a_digest_of_their_own() {
    let current = defined(demo());
    let digest_of = |value: Value| digest(&changes(&current, &apply(&current, value, &[]).unwrap()));
    let beta = digest_of(json!({ "tenants": [{ "id": "beta" }] }));
    assert_eq!(beta, digest_of(json!({ "tenants": [{ "id": "beta" }] })));
    assert_ne!(beta, digest_of(json!({ "tenants": [{ "id": "gamma" }] })));
    let capacity = |capacity: &str| {
        let limits = json!([{ "id": "page-day", "meter": "page", "window": "day", "capacity": capacity }]);
        digest_of(json!({ "plans": [{ "id": "free", "limits": limits }] }))
    };
    assert_ne!(capacity("150"), capacity("151"));
}

#[test]
fn only_what_is_asked_for_is_pruned_and_nothing_that_is_in_use() {
    let current = defined(demo());
    let free = json!({ "plans": [{ "id": "free" }] });
    let after = apply(&current, free, &[Prune::Plans]).unwrap();
    let changes = changes(&current, &after);
    let [change] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!((change.id.as_str(), change.action), ("premium", Action::Delete));
    let errors = apply(&current, json!({}), &[Prune::Plans]).unwrap_err();
    assert_eq!(errors[0].pointer, "/tenants/acme/plan");
    let errors = apply(&current, json!({}), &[Prune::Meters, Prune::Limits]).unwrap_err();
    assert!(errors.iter().any(|error| error.pointer == "/operations/ocr/costs/0/meter"), "{errors:?}");
}

#[test]
fn a_removal_shows_what_still_needs_the_definition() {
    let before = defined(demo());
    let errors = |edit: Edit| Checks::new(&edit, &before, &edit.after(&before)).all();
    assert_eq!(errors(Edit::delete(DefinitionKind::Meter, "token")), []);
    let errors = errors(Edit::delete(DefinitionKind::Meter, "page"));
    assert!(errors.iter().any(|error| error.pointer == "/plans/free/quotas/0/meter"), "{errors:?}");
}

#[test]
fn what_was_wrong_before_stops_only_who_writes_it() {
    let mut before = defined(demo());
    before.plans.remove(&PlanId::parse("free").unwrap());
    let errors = |edit: Edit| Checks::new(&edit, &before, &edit.after(&before)).all();
    let other = json!({ "plans": [{ "id": "other" }], "tenants": [{ "id": "new", "plan": "other" }] });
    assert_eq!(errors(Edit::put(file(other))), [], "acme's plan was gone before");
    let same = errors(Edit::put(file(json!({ "tenants": [{ "id": "acme", "plan": "free" }] }))));
    assert_eq!(same[0].pointer, "/plan");
}

#[test]
fn an_export_is_a_stable_text() {
    let definitions = defined(demo());
    let text = export(&definitions).to_toml().unwrap();
    let read = PolicyFile::from_toml(&text).unwrap();
    assert_eq!(changes(&definitions, &read.clone().merge_into(definitions.clone())), []);
    assert_eq!(read.merge_into(Definitions::default()), definitions);
    assert!(text.starts_with("[[meters]]\nid = \"page\"\nunit = \"page\"\ndecimals = 0\n"), "{text}");
}

proptest! {
    #[test]
    fn what_is_exported_reads_back_as_it_was(world in worlds::any_world()) {
        let definitions = world.definitions();
        let exported = export(&definitions);
        let text = exported.to_toml().unwrap();
        let read = PolicyFile::from_toml(&text).unwrap();
        prop_assert_eq!(changes(&definitions, &read.clone().merge_into(definitions.clone())), []);
        prop_assert_eq!(&read, &exported);
        let json = serde_json::to_value(&exported).unwrap();
        prop_assert_eq!(read_json::<PolicyFile>(&json).unwrap(), exported);
        prop_assert_eq!(read.merge_into(Definitions::default()), definitions);
    }

    #[test]
    fn a_diff_is_empty_exactly_when_nothing_changes(before in worlds::any_world(), after in worlds::any_world()) {
        let (before, after) = (before.definitions(), after.definitions());
        prop_assert_eq!(changes(&after, &after), []);
        prop_assert_eq!(changes(&before, &after).is_empty(), before == after);
    }

    #[test]
    fn no_text_panics_a_policy_file(text in "(\\[\\[(meters|limits|plans|tenants)\\]\\]\n)?((id|unit|capacity|from|window) = .{0,20}\n){0,4}") {
        let _ = PolicyFile::from_toml(&text);
    }
}
