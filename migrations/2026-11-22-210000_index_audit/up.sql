-- The audit log is read by what was changed and by who changed it, newest first.
CREATE INDEX audit_log_by_object ON audit_log (object, number);
CREATE INDEX audit_log_by_kind ON audit_log (split_part(object, ' ', 1), number);
CREATE INDEX audit_log_by_actor ON audit_log (actor, number);
CREATE INDEX audit_log_by_time ON audit_log (at);
