DROP TABLE repeats, quarantine, gaps, leases, cursors, epochs;
