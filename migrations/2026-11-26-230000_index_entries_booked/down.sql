DROP INDEX entries_booked, entries_of_money;
