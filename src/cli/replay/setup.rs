//! Makes the meters and tenants of a replay, if the key may.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::job::{METERS, tenant_id};
use crate::cli::client::{Client, Reply, parse};
use crate::cli::failure::Failure;
use crate::cli::policy::as_defined;
use crate::cli::problem;
use crate::domain::ids::PlanId;

/// How long a new policy may take to reach the instance that answers.
const LIVE_TRIES: u32 = 50;

/// Makes what is missing and puts the tenants on `plan`, if one is named. What exists otherwise stays as it is. Without
/// a plan a key without that right is accepted: the service is taken as prepared.
pub(super) async fn prepare(client: &Client, tenants: u16, plan: Option<&PlanId>) -> Result<(), Failure> {
    let mut is_changed = false;
    for meter in METERS {
        match find(client, "meters", meter).await? {
            Found::There(_) => {}
            Found::NotAllowed(failure) if plan.is_some() => {
                return Err(
                    failure.remedy("--plan needs an admin key; without it the tenants stay on their plans")
                );
            }
            Found::NotAllowed(_) => {
                eprintln!(
                    "this key is not an admin's: the service's meters and tenants are taken as they are"
                );
                return Ok(());
            }
            Found::Missing => {
                put(
                    client,
                    "meters",
                    meter,
                    &json!({ "id": meter, "unit": unit(meter), "without_limit": "unlimited" }),
                )
                .await?;
                is_changed = true;
            }
        }
    }
    for number in 1..=tenants {
        is_changed |= prepare_tenant(client, &tenant_id(number), plan).await?;
    }
    if is_changed { wait_until_live(client, &tenant_id(tenants)).await } else { Ok(()) }
}

async fn prepare_tenant(client: &Client, tenant: &str, plan: Option<&PlanId>) -> Result<bool, Failure> {
    let (mut definition, is_new) = match find(client, "tenants", tenant).await? {
        Found::There(definition) => (definition, false),
        Found::Missing => (json!({ "id": tenant }), true),
        Found::NotAllowed(failure) => return Err(failure),
    };
    let other_plan = plan.filter(|plan| definition["plan"] != plan.as_str());
    if !is_new && other_plan.is_none() {
        return Ok(false);
    }
    if let Some(plan) = other_plan {
        definition["plan"] = plan.as_str().into();
    }
    put(client, "tenants", tenant, &definition).await?;
    Ok(true)
}

enum Found {
    There(Value),
    Missing,
    NotAllowed(Failure),
}

async fn find(client: &Client, list: &str, id: &str) -> Result<Found, Failure> {
    let path = format!("/v1/admin/{list}/{id}");
    let Reply { status, body, .. } = client.reply(Method::GET, &path, None, None).await?;
    match status {
        200 => {
            let mut definition: Value = parse(&path, &body)?;
            as_defined(&mut definition);
            Ok(Found::There(definition))
        }
        404 => Ok(Found::Missing),
        403 => Ok(Found::NotAllowed(problem::failure(&format!("GET {path}"), status, &body))),
        _ => Err(problem::failure(&format!("GET {path}"), status, &body)),
    }
}

async fn put(client: &Client, list: &str, id: &str, definition: &Value) -> Result<(), Failure> {
    let path = format!("/v1/admin/{list}/{id}");
    client.call(Method::PUT, &path, None, Some(definition.to_string())).await.map(drop)
}

fn unit(meter: &str) -> &'static str {
    if meter == METERS[0] { "request" } else { "token" }
}

/// Asks with a dry run until the last tenant that was made is known to the instance that answers.
async fn wait_until_live(client: &Client, tenant: &str) -> Result<(), Failure> {
    let lines: Vec<Value> = METERS.iter().map(|meter| json!({ "meter": meter, "amount": "1" })).collect();
    let body = json!({ "tenant": tenant, "lines": lines, "dry_run": true }).to_string();
    for _ in 0..LIVE_TRIES {
        let reply = client.reply(Method::POST, "/v1/reservations", None, Some(body.clone())).await?;
        if reply.status != 422 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Failure::new(format!("the tenant {tenant} was made, but the service does not know it after 5 s"))
        .remedy("`tollgate status` says whether the service reads its policy"))
}
