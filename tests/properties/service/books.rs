//! The books at the end of a sequence: equal to the model, to the unit, and proven.

use tollgate::domain::reservation::ReservationState;

use super::tenant::Tenant;
use super::world::World;
use crate::ledger::rows;
use crate::support::process::PATIENCE;

/// The balances of a tenant's meter: consumed, reserved, available.
type Sums = [i64; 3];

/// Checks that the books contain exactly what the tenants' models do, nothing twice and nothing else.
pub(super) async fn hold(world: &World, tenants: &[Tenant]) {
    world.app.drained().await;
    for tenant in tenants {
        reservations(world, tenant).await;
        sums(world, tenant).await;
    }
    nothing_is_wrong(world).await;
    world.app.check_books().await;
}

async fn reservations(world: &World, tenant: &Tenant) {
    for (number, _) in tenant.account.model.holds() {
        let booked = tokio::time::timeout(PATIENCE, tenant.booked(number)).await;
        booked.unwrap_or_else(|_| panic!("reservation {number} of {} is not booked", tenant.account.name));
    }
    let query = format!("SELECT count(*) AS n FROM reservations WHERE tenant = '{}'", tenant.account.name);
    let known = tenant.account.model.holds().count();
    assert_eq!(rows(&world.app.database, &query).await, [known.to_string()], "{}", tenant.account.name);
}

/// Balances and entries, each by itself.
async fn sums(world: &World, tenant: &Tenant) {
    let name = &tenant.account.name;
    let balances = format!(
        "SELECT meter, consumed::bigint AS c, reserved::bigint AS r, available::bigint AS a FROM balances \
         WHERE tenant = '{name}' AND (consumed, reserved, available) <> (0, 0, 0) ORDER BY meter"
    );
    let moved = |account: &str| {
        format!("coalesce(sum(amount) FILTER (WHERE account = '{account}'), 0)::bigint AS {account}")
    };
    let entries = format!(
        "SELECT * FROM (SELECT meter, {}, {}, {} \
                        FROM (SELECT meter, debit AS account, amount FROM entries WHERE tenant = '{name}' \
                              UNION ALL SELECT meter, credit, -amount FROM entries WHERE tenant = '{name}') moves \
                        GROUP BY meter) sums \
         WHERE (consumed, reserved, available) <> (0, 0, 0) ORDER BY meter",
        moved("consumed"),
        moved("reserved"),
        moved("available")
    );
    let expected: Vec<_> = (0..2)
        .map(|line| (&tenant.account.meters[line], sums_of(tenant, line)))
        .filter(|(_, sums)| *sums != [0; 3])
        .map(|(meter, [consumed, reserved, available])| format!("{meter} {consumed} {reserved} {available}"))
        .collect();
    assert_eq!(rows(&world.app.database, &balances).await, expected, "{name}");
    assert_eq!(rows(&world.app.database, &entries).await, expected, "{name}");
}

fn sums_of(tenant: &Tenant, line: usize) -> Sums {
    let included = if line == 0 { tenant.account.plan.quota.unwrap_or(0) } else { 0 };
    let mut sums = [0, 0, included];
    for (_, hold) in tenant.account.model.holds() {
        let units = hold.lines[line];
        let open = hold.state == ReservationState::Reserved;
        let held = if open { units.outstanding().get() } else { 0 };
        sums[0] += units.consumed.get();
        sums[1] += held;
        sums[2] -= units.consumed.get() + held;
    }
    sums
}

/// No event is in quarantine or missing, no call conflicts with the gate, no comparison found a difference.
async fn nothing_is_wrong(world: &World) {
    let query = "SELECT (SELECT count(*) FROM quarantine) AS quarantined, (SELECT count(*) FROM gaps) AS gaps, \
                 (SELECT count(*) FROM parked WHERE state <> 'done') AS parked, \
                 (SELECT count(*) FROM reconciliations WHERE state <> 'clean') AS different";
    assert_eq!(rows(&world.app.database, query).await, ["0 0 0 0"]);
    // What a call had done in a memory that was emptied, and did again when it was repeated, is reported as lost.
    let lost = rows(&world.app.database, "SELECT DISTINCT tenant FROM losses").await;
    assert!(lost.iter().all(|tenant| world.forgotten.contains(tenant)), "{lost:?} of {:?}", world.forgotten);
}
