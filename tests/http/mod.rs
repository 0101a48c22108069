//! The API from outside, as its callers meet it: a running service, real servers behind it.

mod admin;
mod authorisation;
mod batch;
mod calendars;
mod connections;
mod counters;
mod decisions;
mod documents;
mod edge;
mod framing;
mod health;
mod hostile;
mod in_use;
mod instances;
mod made_up_keys;
mod metrics;
mod movements;
mod periods;
mod policy_changes;
mod policy_document;
mod policy_file;
mod precedence;
mod proxies;
mod repeats;
mod reports;
mod reservations;
mod retries;
mod state_table;
mod subjects;
mod tenants;
mod usage;

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub use crate::support::app::Answered as Answer;
use crate::support::app::{TestApp, answered, spawn_app};

/// One key's way to the service.
#[derive(Clone)]
pub struct Caller {
    client: reqwest::Client,
    url: String,
    key: Option<String>,
}

impl Caller {
    /// An administrator's way.
    pub fn admin(app: &TestApp) -> Self {
        Self {
            client: app.client().clone(),
            url: app.url().to_string(),
            key: Some(app.admin_key().to_string()),
        }
    }

    /// The key itself.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// The same way with another key, or none.
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    /// The same way to another instance.
    pub fn at(&self, url: String) -> Self {
        Self { url, ..self.clone() }
    }

    /// The same way from another address of this machine.
    pub fn at_address(&self, address: [u8; 4]) -> Self {
        let client =
            reqwest::Client::builder().no_proxy().local_address(IpAddr::from(address)).build().unwrap();
        Self { client, ..self.clone() }
    }

    /// Sends bytes as they are on a connection of their own, and reads the answer's status line.
    pub async fn send_raw(&self, bytes: &[u8]) -> String {
        let address = self.url.trim_start_matches("http://");
        let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
        stream.write_all(bytes).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// A request that can still be changed.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request and reads its answer.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        answered(request.send().await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    /// A post with an idempotency key.
    pub async fn post_keyed(&self, path: &str, key: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).header("idempotency-key", key).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Makes a key and answers with the way it opens.
    pub async fn make_key(&self, role: &str, tenant: Option<&str>) -> Self {
        let made = self.post("/v1/admin/keys", json!({ "name": role, "role": role, "tenant": tenant })).await;
        assert_eq!(made.status, 201, "{made:?}");
        self.with_key(made.body["key"].as_str())
    }
}

/// A running service with an administrator's key, and names that no other test uses.
pub struct World {
    pub admin: Caller,
    name: String,
    _app: TestApp,
}

impl World {
    /// A service without policy of this test's own.
    pub async fn empty() -> Self {
        let app = spawn_app().await;
        let admin = Caller::admin(&app);
        Self { admin, name: uuid::Uuid::now_v7().simple().to_string(), _app: app }
    }

    /// A service with a meter, an operation, a plan of 100 a day and two tenants on it.
    pub async fn with_policy() -> Self {
        let world = Self::empty().await;
        let (meter, plan) = (world.meter(), world.plan());
        let limit = json!({ "id": world.limit(), "meter": meter, "algorithm": "calendar", "window": "day", "capacity": "100" });
        world.put("meters", &meter, json!({ "id": meter, "unit": "page", "decimals": 0 })).await;
        let costs =
            json!([{ "meter": meter, "weights": { "pages": "1" }, "factors": { "handwriting": "2" } }]);
        world.put("operations", &world.operation(), json!({ "id": world.operation(), "costs": costs })).await;
        world.put("plans", &plan, json!({ "id": plan, "limits": [limit] })).await;
        for tenant in [world.tenant(), world.other_tenant()] {
            world.put("tenants", &tenant, json!({ "id": tenant, "plan": plan })).await;
        }
        world
    }

    async fn put(&self, kind: &str, id: &str, definition: Value) {
        let made = self.admin.put(&format!("/v1/admin/{kind}/{id}"), definition).await;
        assert_eq!(made.status, 201, "{made:?}");
        assert!(!made.header("etag").is_empty());
    }

    pub fn meter(&self) -> String {
        format!("m-{}", self.name)
    }
    pub fn operation(&self) -> String {
        format!("o-{}", self.name)
    }
    pub fn plan(&self) -> String {
        format!("p-{}", self.name)
    }
    pub fn limit(&self) -> String {
        format!("l-{}", self.name)
    }
    pub fn tenant(&self) -> String {
        format!("t-{}", self.name)
    }
    pub fn other_tenant(&self) -> String {
        format!("u-{}", self.name)
    }

    /// The body of a reserve of `amount` for the tenant.
    pub fn hold(&self, amount: &str) -> Value {
        json!({ "tenant": self.tenant(), "meter": self.meter(), "amount": amount })
    }

    /// Holds `amount` and answers with the reservation's id.
    pub async fn reserve(&self, amount: &str) -> String {
        let held = self.admin.post("/v1/reservations", self.hold(amount)).await;
        assert_eq!(held.status, 201, "{held:?}");
        held.body["id"].as_str().unwrap().to_owned()
    }
}

/// Asks again until the answer is as expected, at most a minute.
pub async fn until<F: Future<Output = Answer>>(
    ask: impl Fn() -> F,
    is_expected: impl Fn(&Answer) -> bool,
) -> Answer {
    let asked = async {
        loop {
            let answer = ask().await;
            if is_expected(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.expect("the expected answer within a minute")
}
