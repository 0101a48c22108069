DROP TABLE destructive_calls;
