use super::*;

fn text(metrics: &Metrics) -> String {
    metrics.encode().unwrap()
}

#[test]
fn what_every_instance_knows_is_there_from_the_start_under_our_name_and_the_text_ends_as_openmetrics_demands()
{
    let text = text(&Metrics::new());
    for line in [
        "tollgate_decisions_total{call=\"reserve\",outcome=\"admitted\"} 0",
        "tollgate_decisions_total{call=\"usage\",outcome=\"unavailable\"} 0",
        "tollgate_gate_call_seconds_bucket{le=\"0.0001\",script=\"reserve\"} 0",
        "tollgate_gate_call_seconds_bucket{le=\"5.0\",script=\"publish\"} 0",
        "# UNIT tollgate_gate_call_seconds seconds",
        "tollgate_outbox_entries 0",
        "tollgate_outbox_oldest_age_seconds 0.0",
        "tollgate_writer_batch_events_count 0",
        "tollgate_events_booked_total 0",
        "tollgate_events_quarantined_total 0",
        "tollgate_outbox_gaps_total 0",
        "tollgate_events_lost_total 0",
        "tollgate_acknowledged_events_lost_total 0",
        "tollgate_restores_total{kind=\"tenant\"} 0",
        "tollgate_restore_seconds_count{kind=\"counter\"} 0",
        "tollgate_key_asks_total{found=\"new\"} 0",
        "tollgate_key_filter_bytes 0",
        "tollgate_breaker_state{server=\"redis\"} 0",
        "tollgate_gate_clock_trusted 0",
        "tollgate_gate_clock_difference_seconds 0.0",
        "tollgate_alarms_total{alarm=\"memory\"} 0",
        "tollgate_checkpoints_total{result=\"clean\"} 0",
        "tollgate_drift_total{kind=\"consumed_more\"} 0",
        "tollgate_repairs_total{outcome=\"done\"} 0",
        "tollgate_epoch_changes_total 0",
        "tollgate_holds_expired_total 0",
        "tollgate_fallback_total{policy=\"deny\"} 0",
        "tollgate_policy_version 0",
        concat!("tollgate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert!(!text.lines().any(|line| !line.starts_with('#') && !line.starts_with("tollgate_")));
}

#[test]
fn what_only_some_instances_look_up_is_absent_until_they_have_also_where_it_is_zero_then() {
    let metrics = Metrics::new();
    let lines = [
        "tollgate_writer_lag_events 0",
        "tollgate_quarantine_open_events 0",
        "tollgate_damaged_items 0",
        "tollgate_parked_waiting_calls 0",
        "tollgate_parked_conflicting_calls 0",
        "tollgate_job_success_age_seconds{job=\"restore\"} 0.0",
    ];
    let before = text(&metrics);
    for line in lines {
        let name = line.split([' ', '{']).next().unwrap();
        assert!(!before.contains(name), "{name} is there in\n{before}");
    }
    metrics.writer_lag(0);
    metrics.quarantine_open(0);
    metrics.damaged_items(0);
    metrics.parked(0, 0);
    metrics.job_succeeded_before(Job::Restore, Duration::ZERO);
    let after = text(&metrics);
    for line in lines {
        assert!(after.lines().any(|found| found == line), "{line} is missing in\n{after}");
    }
    assert!(!after.contains("job=\"close\""), "a job that was not looked at");
}

#[test]
fn what_is_observed_is_found_in_the_text() {
    let metrics = Metrics::new();
    let clone = metrics.clone();
    clone.decision(Call::Consume, Outcome::Replayed);
    clone.gate_call(Script::Peek, Duration::from_micros(150));
    clone.http_request(Some("/v1/reservations/{id}"), 404, Duration::from_millis(3));
    clone.http_request(None, 404, Duration::from_millis(3));
    clone.outbox(7, 2_100, Duration::from_millis(1_500));
    clone.batch_booked(20);
    clone.gap(3);
    clone.restored(Restored::Subject, Duration::from_millis(2));
    clone.breaker(Guarded::Redis, BreakerState::Open);
    clone.limit_refused("quota", "calendar", "reserved", "quota_exceeded");
    clone.near_limit("day");
    clone.gate_failed(Script::Check, Fault::Timeout);
    clone.remaining("calendar", 7);
    let text = text(&metrics);
    for line in [
        "tollgate_decisions_total{call=\"consume\",outcome=\"replayed\"} 1",
        "tollgate_gate_call_seconds_bucket{le=\"0.0001\",script=\"peek\"} 0",
        "tollgate_gate_call_seconds_bucket{le=\"0.0002\",script=\"peek\"} 1",
        "tollgate_http_request_seconds_count{route=\"/v1/reservations/{id}\",status=\"4xx\"} 1",
        "tollgate_http_request_seconds_count{route=\"unmatched\",status=\"4xx\"} 1",
        "tollgate_outbox_entries 7",
        "tollgate_outbox_oldest_age_seconds 1.5",
        "tollgate_writer_batch_events_bucket{le=\"20.0\"} 1",
        "tollgate_events_booked_total 20",
        "tollgate_outbox_gaps_total 1",
        "tollgate_events_lost_total 3",
        "tollgate_restores_total{kind=\"subject\"} 1",
        "tollgate_breaker_state{server=\"redis\"} 2",
        concat!(
            "tollgate_limits_refused_total{kind=\"quota\",algorithm=\"calendar\",cause=\"reserved\",",
            "code=\"quota_exceeded\"} 1"
        ),
        "tollgate_limits_near_total{limit=\"day\"} 1",
        "tollgate_gate_errors_total{script=\"check\",error=\"timeout\"} 1",
        "tollgate_limits_remaining_percent_bucket{le=\"5.0\",algorithm=\"calendar\"} 0",
        "tollgate_limits_remaining_percent_bucket{le=\"10.0\",algorithm=\"calendar\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn what_is_left_is_observed_of_the_first_admission_and_of_every_sixteenth_after_it() {
    let metrics = Metrics::new();
    let turns: Vec<_> = (0..40).filter(|_| metrics.samples_remaining()).collect();
    assert_eq!(turns, [0, 16, 32]);
}
