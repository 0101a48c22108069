//! Authentication and authorisation: keys, roles and tenants. Denies by default, in the same words whether a tenant
//! exists or not.

use std::future::{Ready, ready};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use actix_web::dev::{Payload, ServiceRequest};
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::problem::{Code, Problem, cut};
use super::routes::{Access, Route};
use super::source;
use super::state::State;
use crate::domain::ids::TenantId;
use crate::operations::Recognised;
use crate::operations::requests::Principal;

/// Bad keys from one source before it has to wait.
const FAILURES_BURST: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// Bad keys a second from one source that are answered 401 in the long run.
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN;

/// The most sources remembered at once, and how often idle ones are dropped at that number.
const SOURCES_MAX: usize = 10_000;
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// Limits how often one source may try bad keys. A good key that this instance knows is never counted.
pub(super) struct FailedKeys {
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    forgot_at: Mutex<Instant>,
}

impl FailedKeys {
    pub(super) fn new() -> Self {
        let quota = Quota::per_second(FAILURES_PER_SECOND).allow_burst(FAILURES_BURST);
        Self { limiter: RateLimiter::keyed(quota), forgot_at: Mutex::new(Instant::now()) }
    }

    /// Counts one more try from `source`; an error when there were too many.
    fn count(&self, source: IpAddr) -> Result<(), Problem> {
        self.limiter.check_key(&self.counted_as(source)).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            Problem::new(Code::RateLimited, "Too many keys that do not work came from this address.")
                .retry_after_ms(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).max(1))
        })
    }

    /// The answer to one more bad key from `source`.
    fn refuse(&self, source: IpAddr) -> Problem {
        self.count(source).err().unwrap_or_else(Problem::unauthenticated)
    }

    /// At the most sources, all are counted as one until idle ones are dropped: memory and work stay bounded.
    fn counted_as(&self, source: IpAddr) -> IpAddr {
        if self.limiter.len() < SOURCES_MAX {
            return network(source);
        }
        if let Ok(mut forgot_at) = self.forgot_at.try_lock()
            && forgot_at.elapsed() >= FORGET_EVERY
        {
            self.limiter.retain_recent();
            *forgot_at = Instant::now();
        }
        if self.limiter.len() < SOURCES_MAX { network(source) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
    }
}

/// A source is an IPv4 address or an IPv6 network of 64 bits, because a caller can use any address within it.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

/// What this instance knows about the request's key, without asking the ledger.
pub(super) fn recognise(request: &ServiceRequest, state: &State, route: &Route) -> Recognised {
    match bearer(request.headers()) {
        Some(key) if route.access != Access::Open => state.operations.keys.recognise(key),
        _ => Recognised::Bad,
    }
}

/// Admits a request with a good key of the right role, and stores the principal for the handler.
pub(super) async fn authorise(
    request: &ServiceRequest,
    state: &State,
    route: &Route,
    recognised: Recognised,
) -> Result<(), Problem> {
    if route.access == Access::Open {
        return Ok(());
    }
    let principal = match recognised {
        Recognised::Good(principal) => principal,
        Recognised::Bad => {
            return Err(state.failed_keys.refuse(source::of(request, &state.options.trusted_proxies)));
        }
        Recognised::Unknown => Box::pin(authenticate(request, state)).await?,
    };
    if !route.access.admits(&principal) {
        let why = match route.access.roles().contains(&principal.role) && principal.tenant.is_some() {
            true => "This call is not for keys that are bound to a tenant.",
            false => "This key's role does not allow this call.",
        };
        return Err(Problem::new(Code::Forbidden, why));
    }
    if route.destroys {
        count_destructive(state, &principal, &format!("{} {}", route.method, request.path())).await?;
    }
    request.extensions_mut().insert(Caller(principal));
    Ok(())
}

/// Counts a call that destroys something; an error when its key has made too many. `asked` is what it calls for.
pub(super) async fn count_destructive(
    state: &State,
    principal: &Principal,
    asked: &str,
) -> Result<(), Problem> {
    let calls_max = state.options.destructive_calls_per_minute;
    let asked = cut(asked.to_owned());
    let counted = state.operations.keys.count_destructive(&principal.key_id, calls_max, &asked);
    let Some(wait_ms) = state.read(counted).await? else { return Ok(()) };
    let detail = format!("This key may make {calls_max} calls that destroy something in a minute.");
    Err(Problem::new(Code::RateLimited, detail).retry_after_ms(wait_ms))
}

/// The principal of a key that only the ledger may know. The try is counted before the ledger is asked.
async fn authenticate(request: &ServiceRequest, state: &State) -> Result<Principal, Problem> {
    state.failed_keys.count(source::of(request, &state.options.trusted_proxies))?;
    let key = bearer(request.headers()).unwrap_or_default();
    let known = state.read(state.operations.keys.authenticate(key)).await?;
    let principal = known.ok_or_else(Problem::unauthenticated)?;
    tracing::Span::current().record("key_id", principal.key_id.as_str());
    Ok(principal)
}

/// The text after `Bearer` in the only `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

/// The principal of the key that the request came with.
#[derive(Debug, Clone)]
pub(super) struct Caller(pub Principal);

impl Caller {
    /// The tenant a call is for: the one it names, if the key may, or the key's own.
    pub(super) fn tenant(&self, named: Option<TenantId>) -> Result<Option<TenantId>, Problem> {
        match (&self.0.tenant, named) {
            (None, named) => Ok(named),
            (Some(own), Some(named)) if *own != named => Err(Problem::other_tenant()),
            (Some(own), _) => Ok(Some(own.clone())),
        }
    }

    /// Who acts, as the audit log names it.
    pub(super) fn actor(&self) -> &str {
        &self.0.key_id
    }

    /// The tenant the key is bound to.
    pub(super) fn bound(&self) -> Option<TenantId> {
        self.0.tenant.clone()
    }
}

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned();
        ready(caller.ok_or_else(Problem::unauthenticated))
    }
}

/// The `{tenant}` of the path, which the caller's key may read.
#[derive(Debug, Clone)]
pub(super) struct TenantInPath(pub TenantId);

impl FromRequest for TenantInPath {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get("tenant").unwrap_or_default();
        let bound = request.extensions().get::<Caller>().map(Caller::bound);
        ready(match bound {
            None => Err(Problem::unauthenticated()),
            Some(Some(own)) if own.as_str() != text => Err(Problem::other_tenant()),
            Some(_) => TenantId::parse(text)
                .map(Self)
                .map_err(|_| Problem::new(Code::NotFound, "There is no such tenant.")),
        })
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;
    use crate::operations::requests::Role;

    #[test]
    fn a_source_that_guesses_is_told_to_wait_and_others_are_not() {
        let failed = FailedKeys::new();
        let guesser: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::ffff".parse().unwrap();
        let codes: Vec<_> = (0..1000).map(|_| failed.refuse(guesser).code()).collect();
        assert_eq!(codes[0], "unauthenticated");
        assert_eq!(codes[999], "rate_limited");
        assert_eq!(failed.refuse(neighbour).code(), "rate_limited");
        assert_eq!(failed.refuse("192.0.2.1".parse().unwrap()).code(), "unauthenticated");
    }

    #[test]
    fn only_one_bearer_key_is_read() {
        let with = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(with(&["Bearer tg_1_x"]).as_deref(), Some("tg_1_x"));
        assert_eq!(with(&["bearer tg_1_x"]).as_deref(), Some("tg_1_x"));
        for bad in [&[][..], &["tg_1_x"], &["Basic eA=="], &["Bearer "], &["Bearer a", "Bearer b"]] {
            assert_eq!(with(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_bound_key_may_leave_its_tenant_out_and_name_no_other() {
        let tenant = |text: &str| TenantId::parse(text).unwrap();
        let bound =
            Caller(Principal { key_id: "k".into(), role: Role::Service, tenant: Some(tenant("acme")) });
        assert_eq!(bound.tenant(None).unwrap(), Some(tenant("acme")));
        assert_eq!(bound.tenant(Some(tenant("acme"))).unwrap(), Some(tenant("acme")));
        assert_eq!(bound.tenant(Some(tenant("other"))).unwrap_err().code(), "forbidden");
        let unbound = Caller(Principal { tenant: None, ..bound.0 });
        assert_eq!(unbound.tenant(None).unwrap(), None);
    }
}
