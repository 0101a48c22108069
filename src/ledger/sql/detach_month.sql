SELECT detach_entries_month($1, $2) AS text
