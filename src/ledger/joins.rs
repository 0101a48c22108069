//! Which tables a typed query may join although no foreign key relates them.

use diesel::allow_tables_to_appear_in_same_query;

use super::schema::*;

allow_tables_to_appear_in_same_query!(quarantine, reservations_archive);
allow_tables_to_appear_in_same_query!(adjustment_grants, grants);
allow_tables_to_appear_in_same_query!(cursors, epochs);
allow_tables_to_appear_in_same_query!(cuts, due_cuts, grants);
allow_tables_to_appear_in_same_query!(cuts, quota_changes);
allow_tables_to_appear_in_same_query!(job_runs, jobs);
allow_tables_to_appear_in_same_query!(period_closures, quota_periods);
allow_tables_to_appear_in_same_query!(quarantine, reservations);
