DROP TRIGGER keys_are_never_truncated ON api_keys;
DROP TRIGGER keys_are_never_deleted ON api_keys;
DROP TRIGGER key_changes_are_numbered ON api_keys;
DROP FUNCTION refuse_key_removal();
DROP FUNCTION number_key_change();
ALTER TABLE api_keys DROP COLUMN change;
DROP TABLE key_changes;
