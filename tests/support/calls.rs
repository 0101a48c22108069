//! Short names for what tests define and call often: tenant `acme` on plan `plan`, its pages and reservations.

use serde_json::{Value, json};

use super::app::TestApp;
use super::caller::Answered;

/// Where reservations are made.
pub const RESERVATIONS: &str = "/v1/reservations";
/// Where usage is recorded.
pub const USAGE: &str = "/v1/usage";

/// So many pages of tenant `acme`, to be held or used.
pub fn pages(amount: impl ToString) -> Value {
    json!({ "tenant": "acme", "meter": "page", "amount": amount.to_string() })
}

/// Further fields of a body.
pub trait Body {
    /// One more field.
    fn with(self, field: &str, value: impl Into<Value>) -> Value;

    /// Of this tenant.
    fn of(self, tenant: impl Into<Value>) -> Value
    where
        Self: Sized,
    {
        self.with("tenant", tenant)
    }

    /// For this user.
    fn by(self, user: impl Into<Value>) -> Value
    where
        Self: Sized,
    {
        self.with("subject", user)
    }

    /// Held for so many seconds.
    fn lasting(self, ttl_seconds: u32) -> Value
    where
        Self: Sized,
    {
        self.with("ttl_seconds", ttl_seconds)
    }
}

impl Body for Value {
    fn with(mut self, field: &str, value: impl Into<Value>) -> Value {
        self[field] = value.into();
        self
    }
}

/// The limit `day`: so many pages a day.
pub fn day_of(capacity: &str) -> Value {
    json!({ "id": "day", "meter": "page", "window": "day", "capacity": capacity })
}

/// A quota of so many pages a month.
pub fn quota_of(included: &str) -> Value {
    json!({ "meter": "page", "included": included })
}

/// The path of a call of a reservation.
pub fn reservation(id: &str, verb: &str) -> String {
    format!("{RESERVATIONS}/{id}/{verb}")
}

impl TestApp {
    /// Puts an object of the policy; it must succeed.
    pub async fn define(&self, path: &str, definition: Value) -> Answered {
        let answer = self.put(&format!("/v1/admin/{path}"), definition).await;
        assert!(matches!(answer.status, 200 | 201), "{path}: {answer:?}");
        answer
    }

    /// Writes a small policy: meters `page` and `token`, plan `plan` with the given limits and quotas, tenant `acme` on
    /// it.
    pub async fn with_plan(&self, limits: Value, quotas: Value) {
        for meter in ["page", "token"] {
            let definition = json!({ "unit": meter, "without_limit": "unlimited" });
            self.define(&format!("meters/{meter}"), definition).await;
        }
        self.define("plans/plan", json!({ "limits": limits, "quotas": quotas })).await;
        self.define("tenants/acme", json!({ "plan": "plan" })).await;
    }

    /// The small policy without limits and quotas.
    pub async fn without_limits(&self) {
        self.with_plan(json!([]), json!([])).await;
    }

    /// The small policy with a limit of so many pages a day.
    pub async fn with_day_of(&self, capacity: &str) {
        self.with_plan(json!([day_of(capacity)]), json!([])).await;
    }

    /// Makes a reservation; it must succeed. Its id.
    pub async fn held(&self, body: Value) -> String {
        self.post(RESERVATIONS, body).await.expect(201).text("/id").to_owned()
    }

    /// Holds so many pages; the reservation's id.
    pub async fn hold(&self, amount: impl ToString) -> String {
        self.held(pages(amount)).await
    }

    /// Calls `consume`, `release` or `extend` of a reservation.
    pub async fn resolve(&self, id: &str, verb: &str, body: Value) -> Answered {
        self.post(&reservation(id, verb), body).await
    }

    /// Consumes so much of a reservation, which ends it.
    pub async fn consume(&self, id: &str, amount: &str) -> Answered {
        self.resolve(id, "consume", json!({ "amount": amount })).await
    }

    /// Releases a reservation.
    pub async fn release(&self, id: &str) -> Answered {
        self.resolve(id, "release", json!({})).await
    }

    /// Reads a reservation.
    pub async fn read(&self, id: &str) -> Answered {
        self.get(&format!("{RESERVATIONS}/{id}")).await
    }

    /// Reads the quotas and limits of `acme`.
    pub async fn quota(&self) -> Answered {
        self.get("/v1/tenants/acme/quota").await.expect(200)
    }

    /// Uses so many pages under this key.
    pub async fn use_pages(&self, key: &str, amount: impl ToString) -> Answered {
        self.post_keyed(USAGE, key, pages(amount)).await
    }
}
