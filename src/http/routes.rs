//! Every route on one page: who may call it, and which handler answers.

use actix_web::http::Method;

use super::handlers::Handlers;
use super::{
    adjustments, admin_audit, admin_bans, admin_clock, admin_erasures, admin_gate, admin_grants, admin_jobs,
    admin_keys, admin_load, admin_overrides, admin_policy, admin_policy_file, admin_policy_trial,
    admin_prices, admin_violations, admin_webhooks, batch, decisions, docs, entries, events, health,
    ratelimit, reconciliations, reports, reservations, statements, tenants, upgrades, usage,
};
use crate::operations::requests::{Principal, Role};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Anyone, without a key.
    Open,
    /// The gate's calls.
    Gate,
    /// Reading one reservation or decision by its id, or where one subject stands.
    GateRead,
    /// Reading under `/v1/tenants/{tenant}`; a bound key only under its own.
    TenantRead,
    /// Asking for something under `/v1/tenants/{tenant}`; a bound key only under its own.
    TenantAsk,
    /// Reports; a bound key sees its own tenant only.
    Report,
    /// Reading what administrators set; not for bound keys.
    AdminRead,
    /// Setting it; not for bound keys.
    Admin,
    /// Setting what finance sets too; not for bound keys.
    Finance,
}

impl Access {
    /// The roles that may call.
    pub(super) fn roles(self) -> &'static [Role] {
        match self {
            Self::Open => &[],
            Self::Gate => &[Role::Admin, Role::Service],
            Self::GateRead => &[Role::Admin, Role::Finance, Role::Service],
            Self::TenantRead => &[Role::Admin, Role::Finance, Role::Service, Role::Tenant],
            Self::TenantAsk => &[Role::Admin, Role::Tenant],
            Self::Report | Self::AdminRead | Self::Finance => &[Role::Admin, Role::Finance],
            Self::Admin => &[Role::Admin],
        }
    }

    /// Whether this key may call at all; which tenant it may name is decided where the tenant is read.
    pub(super) fn admits(self, principal: &Principal) -> bool {
        let for_all_tenants_only = matches!(self, Self::AdminRead | Self::Admin | Self::Finance);
        self.roles().contains(&principal.role)
            && !(for_all_tenants_only && principal.tenant.is_some())
            && !(principal.role == Role::Tenant && principal.tenant.is_none())
    }
}

/// On which listener a route is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surface {
    Public,
    Ops,
    Both,
}

/// One method of one path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) method: Method,
    /// A segment in braces matches any one segment; `{tail}` matches all that remain, also none.
    pub(super) pattern: &'static str,
    pub(super) access: Access,
    pub(super) surface: Surface,
    /// Whether it destroys something: a key may call such routes only so often. A policy file that prunes does too; its
    /// handler counts it, since only the body says so.
    pub(super) destroys: bool,
}

const fn route(method: Method, pattern: &'static str, access: Access) -> Route {
    Route { method, pattern, access, surface: Surface::Public, destroys: false }
}

const fn destroying(method: Method, pattern: &'static str, access: Access) -> Route {
    Route { method, pattern, access, surface: Surface::Public, destroys: true }
}

const fn open(pattern: &'static str, surface: Surface) -> Route {
    Route { method: Method::GET, pattern, access: Access::Open, surface, destroys: false }
}

/// All routes, the busiest first. Nothing else is served.
pub(super) static ROUTES: &[Route] = &[
    route(Method::POST, "/v1/reservations", Access::Gate),
    route(Method::POST, "/v1/reservations/{id}/consume", Access::Gate),
    route(Method::POST, "/v1/reservations/{id}/release", Access::Gate),
    route(Method::POST, "/v1/reservations/{id}/extend", Access::Gate),
    route(Method::GET, "/v1/reservations/{id}", Access::GateRead),
    route(Method::POST, "/v1/usage", Access::Gate),
    route(Method::POST, "/v1/events", Access::Gate),
    route(Method::POST, "/v1/batch", Access::Gate),
    route(Method::POST, "/v1/ratelimit/check", Access::Gate),
    route(Method::GET, "/v1/ratelimit/status/{subject}", Access::GateRead),
    route(Method::GET, "/v1/decisions/{id}", Access::GateRead),
    route(Method::GET, "/v1/tenants/{tenant}/quota", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/usage", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/entries", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/reservations", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/notices", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/estimates", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/upgrade-requests", Access::TenantRead),
    route(Method::POST, "/v1/tenants/{tenant}/upgrade-requests", Access::TenantAsk),
    route(Method::GET, "/v1/tenants/{tenant}/statements", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/statements/draft", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/statements/{number}", Access::TenantRead),
    route(Method::GET, "/v1/tenants/{tenant}/statements/{number}/credit-notes", Access::TenantRead),
    route(Method::GET, "/v1/reports/usage", Access::Report),
    route(Method::GET, "/v1/reports/entries", Access::Report),
    route(Method::GET, "/v1/reports/top", Access::Report),
    route(Method::GET, "/v1/reports/leaked", Access::Report),
    route(Method::GET, "/v1/reports/rollover", Access::Report),
    route(Method::GET, "/v1/reports/balances", Access::Report),
    route(Method::GET, "/v1/reports/revenue", Access::Report),
    route(Method::GET, "/v1/reports/reconciliation", Access::Report),
    route(Method::GET, "/v1/reports/adjustments", Access::Report),
    route(Method::POST, "/v1/adjustments", Access::Finance),
    route(Method::GET, "/v1/adjustments", Access::AdminRead),
    route(Method::GET, "/v1/adjustments/{id}", Access::AdminRead),
    route(Method::POST, "/v1/adjustments/{id}/approve", Access::Finance),
    route(Method::POST, "/v1/adjustments/{id}/decline", Access::Finance),
    route(Method::POST, "/v1/reconciliations", Access::Finance),
    route(Method::GET, "/v1/reconciliations", Access::AdminRead),
    route(Method::GET, "/v1/reconciliations/{id}", Access::AdminRead),
    route(Method::GET, "/v1/reconciliations/{id}/results", Access::AdminRead),
    route(Method::POST, "/v1/admin/policy", Access::Admin),
    route(Method::POST, "/v1/admin/policy/test", Access::Admin),
    route(Method::GET, "/v1/admin/tenants", Access::AdminRead),
    route(Method::GET, "/v1/admin/tenants/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/tenants/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/tenants/{id}", Access::Admin),
    destroying(Method::POST, "/v1/admin/tenants/{id}/erasures", Access::Admin),
    route(Method::GET, "/v1/admin/plans", Access::AdminRead),
    route(Method::GET, "/v1/admin/plans/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/plans/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/plans/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/meters", Access::AdminRead),
    route(Method::GET, "/v1/admin/meters/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/meters/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/meters/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/operations", Access::AdminRead),
    route(Method::GET, "/v1/admin/operations/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/operations/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/operations/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/cost_defaults", Access::AdminRead),
    route(Method::GET, "/v1/admin/cost_defaults/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/cost_defaults/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/cost_defaults/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/limits", Access::AdminRead),
    route(Method::GET, "/v1/admin/limits/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/limits/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/limits/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/bans", Access::AdminRead),
    route(Method::GET, "/v1/admin/bans/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/bans/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/bans/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/violations", Access::AdminRead),
    route(Method::GET, "/v1/admin/overrides", Access::AdminRead),
    route(Method::GET, "/v1/admin/overrides/{id}", Access::AdminRead),
    route(Method::PUT, "/v1/admin/overrides/{id}", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/overrides/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/prices", Access::AdminRead),
    route(Method::GET, "/v1/admin/grants", Access::AdminRead),
    route(Method::GET, "/v1/admin/grants/{id}", Access::AdminRead),
    route(Method::POST, "/v1/admin/grants", Access::Finance),
    destroying(Method::POST, "/v1/admin/grants/{id}/void", Access::Finance),
    route(Method::GET, "/v1/admin/upgrade-requests", Access::AdminRead),
    route(Method::POST, "/v1/admin/upgrade-requests/{id}/approve", Access::Admin),
    route(Method::POST, "/v1/admin/upgrade-requests/{id}/decline", Access::Admin),
    route(Method::GET, "/v1/admin/keys", Access::AdminRead),
    route(Method::POST, "/v1/admin/keys", Access::Admin),
    destroying(Method::POST, "/v1/admin/keys/{id}/rotate", Access::Admin),
    destroying(Method::DELETE, "/v1/admin/keys/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/webhooks", Access::AdminRead),
    route(Method::POST, "/v1/admin/webhooks", Access::Admin),
    route(Method::GET, "/v1/admin/webhooks/{id}", Access::AdminRead),
    destroying(Method::DELETE, "/v1/admin/webhooks/{id}", Access::Admin),
    route(Method::GET, "/v1/admin/webhooks/{id}/deliveries", Access::AdminRead),
    route(Method::POST, "/v1/admin/webhooks/{id}/deliveries/{delivery}/replay", Access::Admin),
    route(Method::GET, "/v1/admin/jobs", Access::AdminRead),
    route(Method::POST, "/v1/admin/jobs/{name}/runs", Access::Admin),
    route(Method::GET, "/v1/admin/load", Access::AdminRead),
    route(Method::PUT, "/v1/admin/load/{name}", Access::Admin),
    route(Method::GET, "/v1/admin/audit", Access::AdminRead),
    route(Method::PUT, "/v1/admin/clock", Access::Admin),
    route(Method::POST, "/v1/admin/gate/accept-time", Access::Admin),
    open("/livez", Surface::Both),
    open("/readyz", Surface::Both),
    open("/metrics", Surface::Ops),
    open("/openapi.json", Surface::Public),
    open("/docs/{tail}", Surface::Public),
    open("/", Surface::Public),
];

/// The handlers of the public listener.
pub(super) fn public<C: Handlers>(config: &mut C) {
    config
        .service(reservations::reserve)
        .service(reservations::consume)
        .service(reservations::release)
        .service(reservations::extend)
        .service(reservations::read_reservation)
        .service(usage::record_usage)
        .service(events::record_events)
        .service(batch::batch)
        .service(ratelimit::check)
        .service(ratelimit::read_status)
        .service(decisions::explain)
        .service(tenants::read_quota)
        .service(tenants::list_usage)
        .service(entries::list_entries)
        .service(entries::report_entries)
        .service(reports::report_top)
        .service(reports::report_leaked)
        .service(reports::report_rollover)
        .service(reports::report_balances)
        .service(reports::report_revenue)
        .service(reconciliations::reconcile_bill)
        .service(reconciliations::list_bills)
        .service(reconciliations::get_bill)
        .service(reconciliations::list_findings)
        .service(tenants::list_reservations)
        .service(tenants::list_notices)
        .service(tenants::list_estimates)
        .service(statements::draft_statement)
        .service(statements::list_statements)
        .service(statements::list_credit_notes)
        .service(statements::read_statement)
        .service(reports::report_usage)
        .service(reports::report_reconciliation)
        .service(adjustments::report_adjustments)
        .service(adjustments::post_adjustment)
        .service(adjustments::list_adjustments)
        .service(adjustments::get_adjustment)
        .service(adjustments::approve_adjustment)
        .service(adjustments::decline_adjustment)
        .configure(administration)
        .service(health::livez)
        .service(health::readyz)
        .service(docs::openapi_json)
        .undocumented(docs::browse())
        .undocumented(docs::root());
}

/// The handlers of what administrators and finance set.
fn administration<C: Handlers>(config: &mut C) {
    config
        .service(admin_policy_file::apply_policy)
        .service(admin_policy_trial::try_policy)
        .configure(admin_policy::tenants::configure)
        .configure(admin_policy::plans::configure)
        .configure(admin_policy::meters::configure)
        .configure(admin_policy::operations::configure)
        .configure(admin_policy::cost_defaults::configure)
        .configure(admin_policy::limits::configure)
        .service(admin_erasures::erase_subject)
        .service(admin_bans::list_bans)
        .service(admin_bans::get_ban)
        .service(admin_bans::put_ban)
        .service(admin_bans::delete_ban)
        .service(admin_violations::list_violations)
        .service(admin_overrides::list_overrides)
        .service(admin_overrides::get_override)
        .service(admin_overrides::put_override)
        .service(admin_overrides::delete_override)
        .service(admin_prices::list_prices)
        .service(admin_grants::list_grants)
        .service(admin_grants::get_grant)
        .service(admin_grants::create_grant)
        .service(admin_grants::void_grant)
        .service(upgrades::request_upgrade)
        .service(upgrades::list_own_upgrades)
        .service(upgrades::list_upgrades)
        .service(upgrades::approve_upgrade)
        .service(upgrades::decline_upgrade)
        .service(admin_keys::list_keys)
        .service(admin_keys::create_key)
        .service(admin_keys::rotate_key)
        .service(admin_keys::revoke_key)
        .service(admin_webhooks::list_webhooks)
        .service(admin_webhooks::create_webhook)
        .service(admin_webhooks::get_webhook)
        .service(admin_webhooks::delete_webhook)
        .service(admin_webhooks::list_deliveries)
        .service(admin_webhooks::replay_delivery)
        .service(admin_jobs::list_jobs)
        .service(admin_jobs::run_job)
        .service(admin_load::list_loads)
        .service(admin_load::push_load)
        .service(admin_audit::list_audit)
        .service(admin_clock::set_clock)
        .service(admin_gate::accept_time);
}

/// The handlers of the operator's listener.
pub(super) fn ops<C: Handlers>(config: &mut C) {
    config.service(health::metrics).service(health::livez).service(health::readyz);
}

/// The result of matching a method and path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Route(&'static Route),
    /// The path is served, by these methods only.
    OtherMethods(String),
    Nothing,
}

/// Finds the route of a request on `surface`.
pub(super) fn find(method: &Method, path: &str, surface: Surface) -> Found {
    let mut allowed = Vec::new();
    for route in ROUTES {
        if (route.surface == surface || route.surface == Surface::Both) && matches(route.pattern, path) {
            // HEAD takes the route of GET; its answer has no body.
            let heads = *method == Method::HEAD && route.method == Method::GET;
            if route.method == *method || heads {
                return Found::Route(route);
            }
            allowed.push(route.method.as_str());
            if route.method == Method::GET {
                allowed.push(Method::HEAD.as_str());
            }
        }
    }
    if allowed.is_empty() { Found::Nothing } else { Found::OtherMethods(allowed.join(", ")) }
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut expected, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (expected.next(), given.next()) {
            (None, None) | (Some("{tail}"), _) => return true,
            (Some(part), Some(segment)) if part == segment => {}
            (Some(part), Some(segment)) if part.starts_with('{') && !segment.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;
    use crate::domain::ids::TenantId;

    #[test]
    fn the_table_and_the_documented_paths_are_the_same() {
        let document = serde_json::to_value(crate::http::openapi()).unwrap();
        let documented: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let table: BTreeSet<(String, String)> = ROUTES
            .iter()
            .filter(|route| route.surface != Surface::Ops)
            .filter(|route| !route.pattern.contains("{tail}") && route.pattern != "/")
            .map(|route| (route.method.to_string(), route.pattern.to_owned()))
            .collect();
        assert_eq!(documented, table);
    }

    #[rstest]
    #[case("/v1/reservations", "/v1/reservations", true)]
    #[case("/v1/reservations/{id}", "/v1/reservations/7", true)]
    #[case("/v1/reservations/{id}", "/v1/reservations/", false)]
    #[case("/v1/reservations/{id}", "/v1/reservations/7/", false)]
    #[case("/v1/reservations", "/v1/reservations/", false)]
    #[case("/docs/{tail}", "/docs", true)]
    #[case("/docs/{tail}", "/docs/a/b", true)]
    #[case("/docs/{tail}", "/docsx", false)]
    fn a_pattern_matches_whole_segments(#[case] pattern: &str, #[case] path: &str, #[case] expected: bool) {
        assert_eq!(matches(pattern, path), expected);
    }

    #[test]
    fn metrics_are_not_on_the_public_listener() {
        assert_eq!(find(&Method::GET, "/metrics", Surface::Public), Found::Nothing);
        assert!(matches!(find(&Method::GET, "/metrics", Surface::Ops), Found::Route(_)));
        assert_eq!(find(&Method::GET, "/v1/reports/usage", Surface::Ops), Found::Nothing);
    }

    #[test]
    fn head_is_served_where_get_is() {
        assert!(matches!(find(&Method::HEAD, "/v1/reports/usage", Surface::Public), Found::Route(_)));
        let found = find(&Method::HEAD, "/v1/usage", Surface::Public);
        assert_eq!(found, Found::OtherMethods("POST".into()));
    }

    #[test]
    fn another_method_is_told_which_ones_are_served() {
        let found = find(&Method::PATCH, "/v1/admin/plans/free", Surface::Public);
        assert_eq!(found, Found::OtherMethods("GET, HEAD, PUT, DELETE".into()));
        assert_eq!(find(&Method::GET, "/v1/nothing", Surface::Public), Found::Nothing);
    }

    #[test]
    fn every_deletion_destroys_and_no_read_does() {
        for route in ROUTES {
            assert!(route.destroys || route.method != Method::DELETE, "{}", route.pattern);
            assert!(!route.destroys || route.method != Method::GET, "{}", route.pattern);
        }
    }

    fn principal(role: Role, bound: bool) -> Principal {
        let tenant = bound.then(|| TenantId::parse("acme").unwrap());
        Principal { key_id: "k".into(), role, tenant }
    }

    #[test]
    fn each_role_may_call_what_the_contract_says() {
        for route in ROUTES.iter().filter(|route| route.access != Access::Open) {
            let read = route.method == Method::GET;
            let of_books = ["/v1/reconciliations", "/v1/adjustments"];
            let of_books = of_books.iter().any(|path| route.pattern.starts_with(path));
            let admin_path = route.pattern.starts_with("/v1/admin/") || of_books;
            let tenant_path = route.pattern.starts_with("/v1/tenants/");
            let of_finance = route.pattern.starts_with("/v1/admin/grants") || of_books;
            let report = route.pattern.starts_with("/v1/reports/");
            let asks = tenant_path && !read;
            for (role, bound, expected) in [
                (Role::Admin, false, true),
                (Role::Finance, false, read || of_finance),
                (Role::Finance, true, read && !admin_path),
                (Role::Service, false, !admin_path && !report && !asks),
                (Role::Service, true, !admin_path && !report && !asks),
                (Role::Tenant, true, tenant_path),
                (Role::Tenant, false, false),
            ] {
                let admitted = route.access.admits(&principal(role, bound));
                assert_eq!(
                    admitted, expected,
                    "{role:?} (bound: {bound}) {} {}",
                    route.method, route.pattern
                );
            }
        }
    }
}
