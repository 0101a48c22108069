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
        let ask = json!({ "tenant": "acme", "subject": "user-42", "operation": "ocr.submit", "attributes": { "pages": pages }, "ttl_seconds": 120 });
        let (status, hold) = self.call("/reservations", Some(job), &ask).await?;
        match status.as_u16() {
            200 | 201 if hold["status"] != "reserved" => return Ok("done before".into()), // a repeat of a job that has ended
            200 | 201 => {}
            402 | 429 => return Ok(format!("refused: {}", hold["detail"])), // 429: ask again after hold["retry_after_seconds"]
            _ => return Err(hold["detail"].to_string().into()), // the call itself is wrong: repeating it does not help
        }
        let mut done = 0;
        let mut worked = Ok(());
        while done < pages && worked.is_ok() {
            worked = read_page(done).await;
            done += u32::from(worked.is_ok());
        }
        // Also when the work failed: what was done is paid, the rest returns.
        let id = hold["id"].as_str().unwrap_or_default();
        self.call(&format!("/reservations/{id}/consume"), None, &json!({ "amount": done.to_string() })).await?;
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
