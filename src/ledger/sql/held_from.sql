SELECT max((month + interval '1 month')::timestamp AT TIME ZONE 'UTC') AS held_from FROM openings
