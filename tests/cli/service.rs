//! A stand-in for the service that misbehaves on command: it answers the calls of a replay from memory, and drops
//! connections, answers 503 or loses units when a test asks for it. Other tests replay against the real service.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Answered,
    /// The connection breaks before it is carried out.
    LostBefore,
    /// The connection breaks after it was carried out.
    LostAfter,
    /// It is answered 503.
    Busy,
}

/// How the service behaves.
#[derive(Clone, Copy)]
pub struct Manners {
    /// What happens to the call of this number, from 1.
    pub fate: fn(u64) -> Fate,
    /// A tenant that is always refused.
    pub refused_tenant: &'static str,
    /// Whether the ledger forgets one output token of each tenant.
    pub loses_units: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self { fate: |_| Fate::Answered, refused_tenant: "", loses_units: false }
    }
}

#[derive(Default)]
struct Books {
    calls: u64,
    reservations: HashMap<String, Reservation>,
}

struct Reservation {
    request: Value,
    consumed: Option<Vec<Value>>,
}

/// Starts one; it lives as long as the test process.
pub fn start(manners: Manners) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let books = Arc::new(Mutex::new(Books::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let books = books.clone();
            std::thread::spawn(move || serve(stream, &books, manners));
        }
    });
    url
}

fn serve(mut stream: TcpStream, books: &Mutex<Books>, manners: Manners) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let call = read_call(&mut reader)?;
        let is_gate_call = call.method == "POST";
        let mut books = books.lock().unwrap();
        books.calls += u64::from(is_gate_call);
        let fate = if is_gate_call { (manners.fate)(books.calls) } else { Fate::Answered };
        let (status, body) = match fate {
            Fate::LostBefore => return None,
            Fate::Busy => (503, json!({ "code": "gate_unavailable", "retry_after_ms": 1 })),
            Fate::Answered | Fate::LostAfter => books.answer(&call, manners),
        };
        drop(books);
        if fate == Fate::LostAfter {
            return None;
        }
        let body = body.to_string();
        write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok()?;
    }
}

struct Call {
    method: String,
    path: String,
    key: String,
    body: Value,
}

fn read_call(reader: &mut BufReader<TcpStream>) -> Option<Call> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        match header.trim().split_once(": ") {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?
            }
            Some((name, value)) if name.eq_ignore_ascii_case("idempotency-key") => key = value.to_owned(),
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Call { method, path, key, body })
}

impl Books {
    fn answer(&mut self, call: &Call, manners: Manners) -> (u16, Value) {
        let steps: Vec<&str> = call.path.split(['/', '?']).collect();
        match (call.method.as_str(), steps.as_slice()) {
            ("POST", ["", "v1", "reservations"]) => self.reserve(&call.key, &call.body, manners),
            ("POST", ["", "v1", "reservations", id, "consume"]) => self.consume(id, &call.body),
            ("POST", ["", "v1", "batch"]) => {
                let items = call.body["items"].as_array().unwrap().clone();
                let results: Vec<Value> = items.iter().map(|item| self.item(item, manners)).collect();
                (200, json!({ "results": results }))
            }
            ("GET", ["", "v1", "tenants", tenant, "usage", _]) => (200, self.usage(tenant, manners)),
            ("GET", ["", "v1", "admin", _, id]) => (200, json!({ "id": id, "version": 1 })),
            _ => (404, json!({ "code": "not_found" })),
        }
    }

    fn item(&mut self, item: &Value, manners: Manners) -> Value {
        let key = item["idempotency_key"].as_str().unwrap();
        let (status, body) = match item["call"].as_str().unwrap() {
            "reserve" => self.reserve(key, &item["body"], manners),
            _ => self.consume(item["id"].as_str().unwrap(), &item["body"]),
        };
        json!({ "status": status, "body": body })
    }

    fn reserve(&mut self, key: &str, request: &Value, manners: Manners) -> (u16, Value) {
        if request["tenant"] == manners.refused_tenant {
            return (429, json!({ "code": "quota_exceeded", "refused_by": [] }));
        }
        let is_new = !self.reservations.contains_key(key);
        let known = self
            .reservations
            .entry(key.to_owned())
            .or_insert_with(|| Reservation { request: request.clone(), consumed: None });
        assert_eq!(&known.request, request, "one key, one meaning");
        (
            if is_new { 201 } else { 200 },
            json!({ "id": key, "status": "reserved", "lines": request["lines"] }),
        )
    }

    fn consume(&mut self, id: &str, request: &Value) -> (u16, Value) {
        let Some(reservation) = self.reservations.get_mut(id) else { return (404, json!({})) };
        let is_replay = reservation.consumed.is_some();
        let held = reservation.request["lines"].as_array().unwrap();
        let amount = |line: &Value| line["amount"].as_str().unwrap().parse::<u64>().unwrap();
        let line = |line: &Value| {
            let held = held.iter().find(|held| held["meter"] == line["meter"]).map(amount).unwrap();
            let (meter, consumed) = (&line["meter"], amount(line));
            let excess = consumed.saturating_sub(held);
            json!({ "meter": meter, "consumed": consumed.to_string(), "excess": excess.to_string() })
        };
        let lines: Vec<Value> = request["lines"].as_array().unwrap().iter().map(line).collect();
        reservation.consumed = Some(lines.clone());
        (200, json!({ "id": id, "status": "consumed", "lines": lines, "replayed": is_replay }))
    }

    /// A row a line: a client has to add them up.
    fn usage(&self, tenant: &str, manners: Manners) -> Value {
        let of_tenant = self.reservations.values().filter(|it| it.request["tenant"] == tenant);
        let mut rows = Vec::new();
        for reservation in of_tenant {
            for line in reservation.consumed.iter().flatten() {
                let mut row = line.clone();
                row["subject"] =
                    json!({ "kind": "session", "id": reservation.request["subjects"]["session"] });
                rows.push(row.clone());
                // The same usage without a subject, as a report over tenants has it: not to be added again.
                row["subject"] = Value::Null;
                rows.push(row);
            }
        }
        if manners.loses_units {
            rows.pop();
            rows.pop();
        }
        json!({ "data": rows, "next_cursor": null, "has_more": false })
    }
}
