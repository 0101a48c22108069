DROP INDEX audit_log_by_time;
DROP INDEX audit_log_by_actor;
DROP INDEX audit_log_by_kind;
DROP INDEX audit_log_by_object;
