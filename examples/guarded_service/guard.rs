//! Asks Tollgate whether a call of an endpoint may be served.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Client;
use serde::Deserialize;
use serde_json::json;

/// Headers of Tollgate's answer that the caller of the endpoint may see.
const PASSED_ON: [&str; 3] = ["ratelimit", "ratelimit-policy", "retry-after"];

/// What is done with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is served, and its answer carries these headers.
    Serve(Vec<(&'static str, String)>),
    /// It is answered with 429, these headers and this text.
    Refuse(Vec<(&'static str, String)>, String),
    /// It is answered with 503: it was not decided.
    Unavailable,
}

/// One per service: it keeps its connections.
pub(crate) struct Guard {
    http: Client,
    url: String,
    key: String,
    tenant: String,
    /// Whether calls are served while Tollgate does not answer; one that it does not accept never is.
    is_open_without_answer: bool,
}

#[derive(Deserialize)]
struct Check {
    allowed: bool,
    #[serde(default)]
    refused_by: Vec<Refusing>,
}

#[derive(Deserialize)]
struct Refusing {
    message: String,
}

impl Guard {
    /// A guard that asks the service at `url` for `tenant`, and waits for it no longer than a caller would.
    pub(crate) fn new(
        url: &str,
        key: &str,
        tenant: &str,
        is_open_without_answer: bool,
    ) -> reqwest::Result<Self> {
        let http = Client::builder().timeout(Duration::from_millis(500)).build()?;
        let [url, key, tenant] = [url, key, tenant].map(str::to_owned);
        Ok(Self { http, url, key, tenant, is_open_without_answer })
    }

    /// Whether this call of an endpoint may be served; then it is counted.
    pub(crate) async fn verdict(&self, method: &str, path: &str, address: Option<IpAddr>) -> Verdict {
        match self.check(method, path, address).await {
            Ok(verdict) => verdict,
            Err(_) if self.is_open_without_answer => Verdict::Serve(Vec::new()),
            Err(_) => Verdict::Unavailable,
        }
    }

    async fn check(&self, method: &str, path: &str, address: Option<IpAddr>) -> reqwest::Result<Verdict> {
        let mut check = json!({ "tenant": self.tenant, "method": method, "endpoint": path });
        if let Some(address) = address {
            check["subjects"] = json!({ "ip": address.to_string() });
        }
        let request = self.http.post(format!("{}/v1/ratelimit/check", self.url)).bearer_auth(&self.key);
        let answer = request.json(&check).send().await?;
        // What Tollgate does not accept is counted nowhere: a path may be too long, or the key revoked.
        if answer.status().is_client_error() {
            return Ok(Verdict::Unavailable);
        }
        let answer = answer.error_for_status()?;
        let passed_on = |name: &'static str| {
            let value = answer.headers().get(name)?.to_str().ok()?;
            Some((name, value.to_owned()))
        };
        let headers = PASSED_ON.into_iter().filter_map(passed_on).collect();
        let check: Check = answer.json().await?;
        if check.allowed {
            return Ok(Verdict::Serve(headers));
        }
        let messages: Vec<String> = check.refused_by.into_iter().map(|limit| limit.message).collect();
        Ok(Verdict::Refuse(headers, messages.join("\n")))
    }
}
