use super::*;
use crate::domain::amount::Amount;
use crate::domain::counter::Counter;
use crate::domain::limit::{Kind, Limit};
use crate::domain::period::WindowKind;
use crate::domain::policy::resolve::{Level, TooManyCounters};
use crate::domain::tenant::{OverrideLevel, TenantDefinition};
use proptest::prelude::*;

/// (limit id, capacity, level, subject index), sorted.
fn summary(resolved: &Resolved) -> Vec<(String, i64, Level, Option<usize>)> {
    let mut limits: Vec<_> = resolved
        .limits()
        .map(|each| (each.name(), each.capacity.get(), each.level(), each.subject_index()))
        .collect();
    limits.sort();
    limits
}

fn with_tenant(changes: Value) -> Definitions {
    let mut world = demo();
    for (field, value) in changes.as_object().unwrap() {
        world["tenants"][0][field] = value.clone();
    }
    defined(world)
}

fn row(id: &str, capacity: i64, level: Level, subject: Option<usize>) -> (String, i64, Level, Option<usize>) {
    (id.to_owned(), capacity, level, subject)
}

#[test]
fn a_request_falls_under_the_limits_of_its_meter_operation_and_subjects() {
    let definitions = defined(demo());
    let user = [subject("user", "u1"), subject("device", "d1")];
    let found = resolve(&definitions, &["page"], &user, Some("ocr"));
    let expected = [
        row("ocr-week", 900, Level::Default, None),
        row("page-day", 100, Level::Plan, None),
        row("user-hour", 20, Level::Default, Some(0)),
    ];
    assert_eq!(summary(&found), expected);
    let quotas: Vec<_> = found.quotas().collect();
    assert_eq!(quotas.len(), 1);
    assert_eq!(quotas[0].capacity.get(), 1000);
    let berlin = calendar(&definitions);
    assert_eq!(quotas[0].window(), Some(berlin.window(WindowKind::Period, NOW_MS)));
    let week = found.limits().find(|each| each.name() == "ocr-week").unwrap();
    assert_eq!(week.window(), Some(berlin.window(WindowKind::Week, NOW_MS)));
    let by_lines = resolve(&definitions, &["page"], &[], None);
    assert_eq!(
        summary(&by_lines),
        [row("page-day", 100, Level::Plan, None)],
        "a limit on operations counts those"
    );
}

#[test]
fn an_overview_shows_the_limits_of_every_meter_and_operation() {
    let definitions = with_tenant(json!({ "limits": [
        { "id": "own", "meter": "token", "operations": ["ocr"], "window": "month", "capacity": "0.25" },
    ] }));
    let tenant = tenant_policy(&definitions, "acme");
    let found = tenant.overview(&[subject("user", "u1")], NOW_MS, &calendar(&definitions).windows(NOW_MS));
    let expected = [
        row("ocr-week", 900, Level::Default, None),
        row("own", 25, Level::Tenant, None),
        row("page-day", 100, Level::Plan, None),
        row("user-hour", 20, Level::Default, Some(0)),
    ];
    assert_eq!(summary(&found), expected);
    assert_eq!(tenant.meters().into_iter().collect::<Vec<_>>(), [&meter("page"), &meter("token")]);
    assert_eq!((found.quotas().count(), found.without.len()), (1, 0));
}

#[test]
fn a_line_that_nothing_counts_is_named() {
    let definitions = defined(demo());
    let found = resolve(&definitions, &["page", "token"], &[], None);
    assert_eq!(found.without, [1]);
    assert_eq!(found.counters.iter().map(Counter::line).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn a_subjects_plan_gives_its_subject_scoped_limits_only() {
    let definitions =
        with_tenant(json!({ "subjects": [{ "kind": "user", "id": "vip", "plan": "premium" }] }));
    let users = [subject("user", "vip"), subject("user", "u1")];
    let expected = [
        row("page-day", 100, Level::Plan, None),
        row("user-hour", 20, Level::Default, Some(1)),
        row("user-hour", 200, Level::Subject, Some(0)),
    ];
    assert_eq!(summary(&resolve(&definitions, &["page"], &users, None)), expected);
}

#[test]
fn overrides_come_in_their_order_and_end() {
    let each = |id: &str, level: &str, how: Value| {
        let mut each = json!({ "id": id, "level": level, "limit": "page-day" });
        how.as_object().unwrap().iter().for_each(|(field, value)| each[field] = value.clone());
        each
    };
    let day = |overrides: Value| {
        let definitions = with_tenant(json!({ "overrides": overrides }));
        let found = resolve(&definitions, &["page"], &[], None);
        (found.counters[0].capacity.get(), found.counters[0].level())
    };
    let tenant = each("t", "tenant", json!({ "capacity": "55" }));
    let factor = each("e", "emergency", json!({ "factor": "1.5" }));
    let over = each("e", "emergency", json!({ "capacity": "9", "until": "2026-07-15T12:30:00Z" }));
    assert_eq!(day(json!([tenant])), (55, Level::Tenant));
    assert_eq!(day(json!([tenant, factor])), (82, Level::Emergency), "82.5 is rounded down");
    assert_eq!(day(json!([factor])), (150, Level::Emergency));
    assert_eq!(day(json!([over, tenant])), (55, Level::Tenant), "the emergency ended at this instant");
}

#[test]
fn more_counters_than_one_decision_may_touch_are_refused() {
    let limits = |count: usize| -> Value {
        (0..count)
            .map(|n| json!({ "id": format!("l{n}"), "meter": "page", "window": "day", "capacity": 1 }))
            .collect()
    };
    let count = |limits: Value| {
        let definitions = with_tenant(json!({ "limits": limits }));
        let tenant = tenant_policy(&definitions, "acme");
        let windows = calendar(&definitions).windows(NOW_MS);
        let resolved = tenant.resolve(&[meter("page")], &[], None, NOW_MS, &windows);
        resolved.map(|resolved| resolved.limits().count())
    };
    assert_eq!(count(limits(30)), Ok(31), "30 and the plan's; with the quota 32 counters");
    assert_eq!(count(limits(31)), Err(TooManyCounters(33)));
}

#[test]
fn a_tenant_that_does_not_fit_the_snapshot_is_an_error_and_never_unlimited() {
    let definitions = defined(demo());
    let mut tenant = definitions.tenants.values().next().unwrap().as_ref().clone();
    tenant.plan = Some(crate::domain::ids::PlanId::parse("gone").unwrap());
    let error = TenantPolicy::new(&policy(&definitions), &tenant, &Resets::default()).unwrap_err();
    assert_eq!(error.to_string(), "tenant `acme` names the plan `gone`, which does not exist");
}

/// The rules as DESIGN words them, one question at a time, without any precomputation.
struct Naive<'a> {
    definitions: &'a Definitions,
    tenant: &'a TenantDefinition,
    at_ms: i64,
}

impl Naive<'_> {
    fn plan_limits(&self, plan: Option<&crate::domain::ids::PlanId>) -> Vec<Limit> {
        let limits = plan.map(|plan| self.definitions.plans[plan].limits.clone()).unwrap_or_default();
        limits.iter().map(|limit| limit.as_ref().clone()).collect()
    }

    /// The limit `id` as the subject (or the tenant) sees it: the definition, its capacity in smallest units, the level
    /// and the kind; none that is off.
    fn see(&self, id: &str, subject: Option<&Subject>) -> Option<(Limit, i64, Level, Kind)> {
        let mut definitions: Vec<(Level, Limit)> = Vec::new();
        if let Some(subject) = subject {
            let own = self.tenant.subjects.iter().find(|named| named.subject() == *subject);
            for limit in self.plan_limits(own.map(|named| &named.plan)) {
                if limit.subject_kind.as_ref() == Some(&subject.kind) {
                    definitions.push((Level::Subject, limit));
                }
            }
        }
        definitions.extend(self.tenant.limits.iter().map(|limit| (Level::Tenant, limit.as_ref().clone())));
        definitions.extend(self.plan_limits(self.tenant.plan.as_ref()).into_iter().map(|l| (Level::Plan, l)));
        let defaults = self.definitions.limits.values();
        definitions.extend(defaults.map(|limit| (Level::Default, limit.as_ref().clone())));
        let holds = |limit: &Limit| {
            let begun = limit.from.is_none_or(|from| self.at_ms >= from.ms());
            let over = limit.until.is_some_and(|until| self.at_ms >= until.ms());
            limit.id.as_str() == id && begun && !over
        };
        let (defined_at, limit) = definitions.into_iter().find(|(_, limit)| holds(limit))?;
        let decimals = self.definitions.meters[limit.limited.meters().next().unwrap()].decimals;
        let scale = 10_i64.pow(u32::from(decimals.count()));
        let whole = |amount: Amount| i64::try_from(amount.decimal().mantissa()).unwrap() * scale;
        let (mut capacity, mut level, mut kind) = (whole(limit.capacity), defined_at, limit.kind);
        let levels = [
            (OverrideLevel::Tenant, Level::Tenant),
            (OverrideLevel::Subject, Level::Subject),
            (OverrideLevel::Emergency, Level::Emergency),
        ];
        for (override_level, as_level) in levels.into_iter().filter(|(_, as_level)| *as_level <= defined_at) {
            let found = self.tenant.overrides.iter().find(|each| {
                let for_this = each.for_subject().is_none() || each.for_subject().as_ref() == subject;
                let over = each.until.is_some_and(|until| self.at_ms >= until.ms());
                each.level == override_level && each.limit.as_str() == id && for_this && !over
            });
            let Some(found) = found else { continue };
            level = as_level;
            kind = found.kind.unwrap_or(kind);
            capacity = match (found.capacity, found.factor) {
                (Some(named), _) => whole(named),
                (None, Some(factor)) => {
                    let product = i128::from(capacity) * factor.decimal().mantissa();
                    i64::try_from(product / 10_i128.pow(factor.decimal().scale())).unwrap()
                }
                (None, None) => capacity,
            };
        }
        (kind != Kind::Off).then_some((limit, capacity, level, kind))
    }
}

type Row = (String, i64, Level, Kind, Option<usize>, usize);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn resolution_agrees_with_the_naive_rules(
        world in worlds::any_world(),
        at_ms in prop::sample::select(vec![0_i64, 99, 100, 150, 200, 299, 300, 1000]),
        has_operation in any::<bool>(),
    ) {
        let definitions = world.definitions();
        let tenant = definitions.tenants.values().next().unwrap();
        let naive = Naive { definitions: &definitions, tenant, at_ms };
        let subjects = [subject("user", "vip"), subject("user", "u1"), subject("device", "d1"), subject("device", "d2")];
        let meters = [meter("whole"), meter("cents")];
        let operation = has_operation.then(|| OperationId::parse("job").unwrap());

        let mut expected: Vec<Row> = Vec::new();
        for id in ["a", "b"] {
            for (line, meter) in meters.iter().enumerate() {
                let views = std::iter::once(None).chain((0..subjects.len()).map(Some));
                for index in views {
                    let viewer = index.map(|index| &subjects[index]);
                    let Some((limit, capacity, level, limit_kind)) = naive.see(id, viewer) else { continue };
                    let kind = viewer.map(|subject| &subject.kind);
                    let operation_fits = limit.operations.is_none() || has_operation;
                    if limit.limited.meters().any(|each| each == meter) && limit.subject_kind.as_ref() == kind && operation_fits {
                        expected.push((id.to_owned(), capacity, level, limit_kind, index, line));
                    }
                }
            }
        }
        let built = TenantPolicy::new(&policy(&definitions), tenant, &Resets::default()).unwrap();
        let windows = tenant.calendar().windows(at_ms);
        let resolved = built.resolve(&meters, &subjects, operation.as_ref(), at_ms, &windows).unwrap();
        let mut found: Vec<Row> = resolved.limits().map(|each| {
            (each.name(), each.capacity.get(), each.level(), each.kind, each.subject_index(), each.line())
        }).collect();
        expected.sort();
        found.sort();
        prop_assert_eq!(&found, &expected);

        let has_quota = tenant.plan.as_ref().is_some_and(|plan| !definitions.plans[plan].quotas.is_empty());
        prop_assert_eq!(resolved.quotas().count(), usize::from(has_quota));
        for line in 0..2 {
            let is_counted = expected.iter().any(|row| row.5 == line) || (line == 0 && has_quota);
            prop_assert_eq!(resolved.without.contains(&line), !is_counted);
        }
    }
}
