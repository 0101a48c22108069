DROP VIEW held_up_ends;
