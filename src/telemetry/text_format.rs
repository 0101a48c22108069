//! The older Prometheus text format (0.0.4), for readers that do not know OpenMetrics.

/// Converts OpenMetrics text to the older format: counters are named with `_total`, an info is a gauge, and there are
/// neither units nor an end mark.
pub(super) fn older(open_metrics: &str) -> String {
    let mut older = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, words)) = help.take() {
                older.push_str(&format!("# HELP {name}{suffix} {words}\n"));
            }
            older.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            older.push_str(line);
            older.push('\n');
        }
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_as_the_older_format_has_them() {
        let open_metrics = "# HELP a_calls Calls.\n# TYPE a_calls counter\na_calls_total{x=\"y\"} 1\n\
                            # HELP a_build Version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                            # HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 0.5\n# EOF\n";
        assert_eq!(
            older(open_metrics),
            "# HELP a_calls_total Calls.\n# TYPE a_calls_total counter\na_calls_total{x=\"y\"} 1\n\
             # HELP a_build_info Version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
             # HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_sum 0.5\n"
        );
    }
}
