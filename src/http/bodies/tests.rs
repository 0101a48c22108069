//! Request parsing as tables.

use rstest::rstest;

use super::*;
use crate::http::json;

fn reserve(text: &str) -> Result<ReserveRequest, Problem> {
    let body: ReserveBody = json::typed(text)?;
    let named = body.tenant.clone();
    body.into_request(named, None)
}

fn pointers(problem: &Problem) -> Vec<String> {
    let document: Value = serde_json::from_slice(&problem.to_json("r")).unwrap();
    let errors = document["errors"].as_array().unwrap();
    errors.iter().map(|error| error["pointer"].as_str().unwrap().to_owned()).collect()
}

#[rstest]
#[case(r#"{"operation":"o"}"#, &["/tenant"])]
#[case(r#"{"tenant":"acme"}"#, &["/operation"])]
#[case(r#"{"tenant":"{acme}","operation":"o"}"#, &["/tenant"])]
#[case(r#"{"tenant":"","operation":"o"}"#, &["/tenant"])]
#[case(r#"{"tenant":7,"operation":"o"}"#, &["/tenant"])]
#[case(r#"{"tenant":"acme","operation":"o{}"}"#, &["/operation"])]
#[case(r#"{"tenant":"acme","meter":"m"}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","amount":"1"}"#, &["/meter"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":"0"}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":"-1"}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":-1}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":1.5}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":"NaN"}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":"1e3"}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","meter":"m","amount":9007199254740992}"#, &["/amount"])]
#[case(r#"{"tenant":"acme","lines":[]}"#, &["/lines"])]
#[case(r#"{"tenant":"acme","lines":[["m","1"]]}"#, &["/lines/0"])]
#[case(r#"{"tenant":"acme","lines":[{"meter":"m","amount":"1"},{"meter":"m","amount":"2"}]}"#, &["/lines/1/meter"])]
#[case(r#"{"tenant":"acme","lines":[{"meter":"m","amount":"0"},{"meter":"n","amount":"0"}]}"#, &["/lines/0/amount", "/lines/1/amount"])]
#[case(r#"{"tenant":"acme","lines":[{"meter":"m"}]}"#, &["/lines/0/amount"])]
#[case(r#"{"tenant":"acme","lines":[{"meter":"m","amount":"1"}],"meter":"m","amount":"1"}"#, &["/lines"])]
#[case(r#"{"tenant":"acme","operation":"o","lines":[{"meter":"m","amount":"1"}],"attributes":{}}"#, &["/attributes"])]
#[case(r#"{"tenant":"acme","operation":"o","attributes":{"pages":1.5}}"#, &["/attributes/pages"])]
#[case(r#"{"tenant":"acme","operation":"o","attributes":{"pages":-1}}"#, &["/attributes/pages"])]
#[case(r#"{"tenant":"acme","operation":"o","attributes":{"a/b":null}}"#, &["/attributes/a~1b"])]
#[case(r#"{"tenant":"acme","operation":"o","attributes":[]}"#, &["/attributes"])]
#[case(r#"{"tenant":"acme","operation":"o","ttl_seconds":0}"#, &["/ttl_seconds"])]
#[case(r#"{"tenant":"acme","operation":"o","ttl_seconds":86401}"#, &["/ttl_seconds"])]
#[case(r#"{"tenant":"acme","operation":"o","ttl_seconds":"60"}"#, &["/ttl_seconds"])]
#[case(r#"{"tenant":"acme","operation":"o","mode":"some"}"#, &["/mode"])]
#[case(r#"{"tenant":"acme","operation":"o","dry_run":"true"}"#, &["/dry_run"])]
#[case(r#"{"tenant":"acme","operation":"o","priority":1}"#, &["/priority"])]
#[case(r#"{"tenant":"acme","operation":"o","subject":"u","subjects":{"user":"u"}}"#, &["/subject"])]
#[case(r#"{"tenant":"acme","operation":"o","subject":"u{1}"}"#, &["/subject"])]
#[case(r#"{"tenant":"acme","operation":"o","subjects":{"user":"u\u0001"}}"#, &["/subjects/user"])]
#[case(r#"{"tenant":"acme","operation":"o","subjects":{"a":"1","b":"1","c":"1","d":"1","e":"1"}}"#, &["/subjects"])]
#[case(r#"{"tenant":"acme","operation":"o","payload_fingerprint":""}"#, &["/payload_fingerprint"])]
#[case(r#"{"tenant":"acme","operation":"o","idempotency_key":""}"#, &["/idempotency_key"])]
#[case(r#"{"ttl_seconds":0,"subjects":{"a":"1"}}"#, &["/ttl_seconds", "/operation", "/tenant"])]
fn a_wrong_reserve_names_its_fields(#[case] text: &str, #[case] expected: &[&str]) {
    let problem = reserve(text).unwrap_err();
    assert_eq!(problem.code(), "validation_failed");
    assert_eq!(pointers(&problem), expected, "{text}");
}

#[rstest]
#[case(
    r#"{"tenant":"acme","operation":"o","attributes":{"pages":3,"hand":true,"tier":"fast","weight":"1.5"}}"#
)]
#[case(r#"{"tenant":"acme","meter":"m","amount":1}"#)]
#[case(r#"{"tenant":"acme","meter":"m","amount":"0.5","operation":"o"}"#)]
#[case(r#"{"tenant":"acme","lines":[{"meter":"m","amount":"1"},{"meter":"n","amount":"2"}],"mode":"best_effort"}"#)]
#[case(r#"{"tenant":"acme","operation":"o","subject":null,"metadata":{"a":{"b":[1.5]}},"dry_run":true}"#)]
fn a_sound_reserve_is_read(#[case] text: &str) {
    assert!(reserve(text).is_ok(), "{text}");
}

#[test]
fn a_subject_alone_is_a_user() {
    let request = reserve(r#"{"tenant":"acme","operation":"o","subject":"user-42"}"#).unwrap();
    assert_eq!((request.subjects[0].kind.as_str(), request.subjects[0].id.as_str()), ("user", "user-42"));
}

#[test]
fn metadata_has_at_most_50_keys_and_8_kilobytes() {
    let with = |metadata: Map<String, Value>| {
        reserve(&serde_json::json!({ "tenant": "acme", "operation": "o", "metadata": metadata }).to_string())
    };
    let keys = |count: usize| (0..count).map(|n| (format!("k{n}"), Value::from(n))).collect();
    let text = |length: usize| [("k".to_owned(), Value::from("x".repeat(length)))].into_iter().collect();
    assert!(with(keys(50)).is_ok());
    assert_eq!(pointers(&with(keys(51)).unwrap_err()), ["/metadata"]);
    assert!(with(text(super::metadata::BYTES_MAX - 8)).is_ok());
    assert_eq!(pointers(&with(text(super::metadata::BYTES_MAX - 7)).unwrap_err()), ["/metadata"]);
}

#[rstest]
#[case("1.5")]
#[case("-1")]
#[case("\"60\"")]
#[case("4294967296")]
fn a_ttl_that_cannot_be_is_told_what_it_may_be(#[case] ttl: &str) {
    let body = format!(r#"{{"tenant":"acme","operation":"o","ttl_seconds":{ttl}}}"#);
    let problem = reserve(&body).unwrap_err();
    assert_eq!(pointers(&problem), ["/ttl_seconds"], "{ttl}");
    assert!(problem.to_json("r").escape_ascii().to_string().contains("1 to 86400"), "{ttl}");
}

#[test]
fn a_usage_takes_an_ack_and_no_ttl() {
    let body: UsageBody = json::typed(r#"{"meter":"m","amount":"1","ack":"ledger"}"#).unwrap();
    assert_eq!(body.into_parts().1, Ack::Ledger);
    let problem = json::typed::<UsageBody>(r#"{"meter":"m","amount":"1","ttl_seconds":60}"#).unwrap_err();
    assert_eq!(pointers(&problem), ["/ttl_seconds"]);
}

#[test]
fn totals_come_in_one_form() {
    let totals = |text: &str| json::typed::<ConsumeBody>(text).and_then(ConsumeBody::used);
    assert_eq!(totals("{}").unwrap(), Used::Totals(Totals::Default));
    assert_eq!(totals(r#"{"amount":"0"}"#).unwrap(), Used::Totals(Totals::Single(Amount::ZERO)));
    assert!(matches!(
        totals(r#"{"lines":[{"meter":"m","amount":0}]}"#).unwrap(),
        Used::Totals(Totals::ByMeter(_))
    ));
    assert!(matches!(totals(r#"{"attributes":{"pages":2},"final":false}"#).unwrap(), Used::Attributes(_)));
    for (text, pointer) in [
        (r#"{"amount":"1","lines":[{"meter":"m","amount":"1"}]}"#, ""),
        (r#"{"amount":"1","attributes":{}}"#, ""),
        (r#"{"amount":"-1"}"#, "/amount"),
        (r#"{"lines":[]}"#, "/lines"),
        (r#"{"final":"yes"}"#, "/final"),
        (r#"{"ack":"both"}"#, "/ack"),
        (r#"{"idempotency_key":"k"}"#, "/idempotency_key"),
    ] {
        assert_eq!(pointers(&totals(text).unwrap_err()), [pointer], "{text}");
    }
}

#[test]
fn a_fault_of_a_total_is_where_it_was_sent() {
    let named = |sent: Sent, pointer: &str| {
        let problem = sent.name(Problem::fields(vec![FieldError::new(pointer, "is wrong")]));
        pointers(&problem).remove(0)
    };
    let meters = ["b", "a"].map(|meter| MeterId::parse(meter).unwrap());
    let totals = Sent::AsTotals(meters.to_vec());
    for (pointer, place) in [
        ("/lines/a/amount", "/lines/1/amount"),
        ("/lines/b/meter", "/lines/0/meter"),
        ("/lines/c/amount", "/lines"),
        ("/lines", "/lines"),
        ("/ack", "/ack"),
    ] {
        assert_eq!(named(totals.clone(), pointer), place);
    }
    for field in ["/amount", "/incurred", "/attributes", ""] {
        assert_eq!(named(Sent::As(field), "/lines/a/amount"), field);
    }
}

#[test]
fn a_release_may_say_what_was_used_and_why() {
    let parts = |text: &str| json::typed::<ReleaseBody>(text).and_then(ReleaseBody::into_parts);
    assert_eq!(parts("{}").unwrap(), (Totals::Default, None));
    assert_eq!(parts(r#"{"incurred":"1","reason":"stop"}"#).unwrap().1.as_deref(), Some("stop"));
    for text in [
        r#"{"incurred":"1","lines":[{"meter":"m","amount":"1"}]}"#,
        r#"{"reason":""}"#,
        r#"{"reason":"a\nb"}"#,
        r#"{"amount":"1"}"#,
    ] {
        assert!(parts(text).is_err(), "{text}");
    }
}

#[test]
fn an_extend_lives_1_to_86400_seconds() {
    let ttl = |text: &str| json::typed::<ExtendBody>(text).and_then(ExtendBody::ttl);
    assert_eq!(ttl("{}").unwrap(), None);
    assert_eq!(ttl(r#"{"ttl_seconds":86400}"#).unwrap(), HoldSeconds::new(86_400).ok());
    for text in [r#"{"ttl_seconds":0}"#, r#"{"ttl_seconds":86401}"#, r#"{"ttl_seconds":1.0}"#] {
        assert!(ttl(text).is_err(), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_in_an_id_is_read_or_refused(tenant in "\\PC{0,70}", amount in "\\PC{0,20}") {
        let body = serde_json::json!({ "tenant": tenant, "meter": tenant, "amount": amount });
        if let Err(problem) = reserve(&body.to_string()) {
            proptest::prop_assert_eq!(problem.code(), "validation_failed");
        }
    }
}
