use super::*;
use crate::domain::policy::warnings::warnings;

fn by(kind: &str, changes: Value) -> Value {
    let mut limit = json!({
        "id": kind, "meter": "page", "scope": "subject", "subject_kind": kind, "window": "day", "capacity": "5"
    });
    changes.as_object().unwrap().iter().for_each(|(field, value)| limit[field] = value.clone());
    limit
}

/// Where the file warns, on top of two meters and a plan `own` with a limit by user.
fn warned(value: Value) -> Vec<String> {
    let meters = json!([{ "id": "page", "unit": "page" }, { "id": "token", "unit": "token" }]);
    let operations = json!([{ "id": "ocr", "costs": [{ "meter": "page", "base": "1" }] }]);
    let plans = json!([{ "id": "own", "limits": [by("user", json!({}))] }]);
    let current = defined(json!({ "meters": meters, "operations": operations, "plans": plans }));
    let after = apply(&current, value.clone(), &[]).unwrap();
    warnings(&file(value), &after).into_iter().map(|warning| warning.pointer).collect()
}

#[test]
fn a_limit_that_tells_callers_apart_by_address_alone_is_warned_about_in_each_list() {
    let address = || by("ip", json!({}));
    let day = json!({ "id": "day", "meter": "page", "window": "day", "capacity": "9" });
    assert_eq!(warned(json!({ "limits": [day, address()] })), ["/limits/1/subject_kind"]);
    let plans = json!([{ "id": "free" }, { "id": "paid", "limits": [address()] }]);
    assert_eq!(warned(json!({ "plans": plans })), ["/plans/1/limits/0/subject_kind"]);
    let tenants = json!([{ "id": "acme", "limits": [address()] }]);
    assert_eq!(warned(json!({ "tenants": tenants })), ["/tenants/0/limits/0/subject_kind"]);
    assert_eq!(warned(json!({ "limits": [by("user", json!({}))] })), [""; 0]);
    assert_eq!(warned(json!({ "limits": [by("ip", json!({ "kind": "off" }))] })), [""; 0]);
}

#[test]
fn a_limit_of_the_same_work_by_who_is_known_otherwise_makes_it_right() {
    let both = |other: Value| warned(json!({ "limits": [by("ip", json!({})), other] }));
    assert_eq!(both(by("user", json!({}))), [""; 0]);
    assert_eq!(both(by("api_key", json!({}))), [""; 0]);
    for other in [
        by("user", json!({ "meter": "token" })),
        by("user", json!({ "operations": ["ocr"] })),
        by("user", json!({ "kind": "off" })),
        by("anonymous", json!({ "class": "rate" })),
        by("ip", json!({ "id": "more" })),
    ] {
        let found = both(other.clone());
        assert_eq!(found.first().map(String::as_str), Some("/limits/0/subject_kind"), "{other}");
    }
    let of_ocr = json!({ "operations": ["ocr"] });
    let limits = json!([by("ip", of_ocr.clone()), by("user", of_ocr)]);
    assert_eq!(warned(json!({ "limits": limits })), [""; 0]);

    let address = || json!([by("ip", json!({}))]);
    let default = json!([by("user", json!({ "id": "of-all" }))]);
    let plans = json!([{ "id": "paid", "limits": address() }]);
    assert_eq!(warned(json!({ "limits": default, "plans": plans })), [""; 0]);
    let tenants = json!([{ "id": "acme", "plan": "own", "limits": address() }]);
    assert_eq!(warned(json!({ "tenants": tenants })), [""; 0], "its plan counts users");
}
