-- What was booked since an instant is taken off the current balances. Money has no balances, only its entries.
-- Booking waits while the indexes are built, about a second for a million entries; the gate goes on.
CREATE INDEX entries_booked ON entries USING brin (booked_at) WITH (autosummarize = on);
CREATE INDEX entries_of_money ON entries (tenant, meter) WHERE meter LIKE 'money:%';
