DROP TYPE moved_usage;
DROP TYPE moved_balance;
