DROP INDEX quarantine_open_in_order;
