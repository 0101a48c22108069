use std::error::Error;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

pub struct Tollgate {
    pub http: Client,
    pub url: String,
    pub key: String,
}

impl Tollgate {
    /// A POST, repeated with the same key and body while nothing or 503 is answered: that counts nothing twice.
    pub async fn call(&self, path: &str, key: Option<&str>, body: &Value) -> Answer<(StatusCode, Value)> {
        for attempt in 0..8 {
            let request = self.http.post(format!("{}/v1{path}", self.url)).bearer_auth(&self.key).json(body);
            let request = key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
            let wait_ms = match self.answer(request).await {
                Ok((StatusCode::SERVICE_UNAVAILABLE, problem)) => problem["retry_after_ms"].as_u64().unwrap_or(1_000),
                Ok(answer) => return Ok(answer),
                Err(_) => 100 << attempt, // no answer: it may have been done
            };
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        Err("tollgate does not answer".into())
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> reqwest::Result<(StatusCode, Value)> {
        let answer = request.timeout(Duration::from_secs(10)).send().await?;
        Ok((answer.status(), answer.json().await?))
    }

    pub async fn read_document(&self, job: &str, pages: u32, read_page: impl AsyncFn(u32) -> Answer<()>) -> Answer<String> {
        let ask = |pages: u32| json!({ "tenant": "acme", "subject": "user-42", "operation": "ocr.submit", "attributes": { "pages": pages } });
        let mut reserve = ask(pages);
        reserve["ttl_seconds"] = json!(120);
        let mut attempt = 1;
        let (key, hold) = loop {
            let key = format!("{job}/{attempt}"); // a hold that ended unpaid stays ended: the next attempt has a new key
            let (status, hold) = self.call("/reservations", Some(&key), &reserve).await?;
            match (status.as_u16(), hold["status"].as_str()) {
                (402 | 429, _) => return Ok(format!("refused: {}", hold["detail"])), // 429: ask again after hold["retry_after_seconds"]
                (200 | 201, Some("consumed")) => return Ok("done before".into()),
                (200 | 201, Some("reserved")) => break (key, hold),
                (200, _) => attempt += 1, // "released": it failed; "expired": its service died
                _ => return Err(hold["detail"].to_string().into()), // the call itself is wrong: repeating it does not help
            }
        };
        let mut done = 0;
        let mut worked = Ok(());
        while done < pages && worked.is_ok() {
            worked = read_page(done).await;
            done += u32::from(worked.is_ok());
        }
        // Also when the work failed: what was done is paid, the rest returns.
        let (verb, body) = match (&worked, done) {
            (Ok(()), _) => ("consume", json!({ "amount": done.to_string() })),
            (Err(_), 0) => ("release", json!({})),
            (Err(_), _) => ("release", json!({ "incurred": done.to_string() })),
        };
        let path = format!("/reservations/{}/{verb}", hold["id"].as_str().unwrap_or_default());
        let (mut status, mut paid) = self.call(&path, None, &body).await?;
        if matches!(status.as_u16(), 404 | 410) && done > 0 {
            // Its hold is gone: what was done is recorded by itself.
            (status, paid) = self.call("/usage", Some(&format!("{key}/usage")), &ask(done)).await?;
        }
        if !status.is_success() && done > 0 {
            return Err(paid["detail"].to_string().into());
        }
        worked.map(|()| format!("read {done} pages"))
    }
}

#[tokio::main]
async fn main() -> Answer<()> {
    let url = std::env::var("TOLLGATE_URL").unwrap_or("http://127.0.0.1:8080".into());
    let tollgate = Tollgate { http: Client::new(), url, key: std::env::var("TOLLGATE_ADMIN_KEY")? };
    println!("{}", tollgate.read_document("job-8812", 3, async |_page| Ok(())).await?);
    Ok(())
}
