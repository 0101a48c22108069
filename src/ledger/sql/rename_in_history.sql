SELECT replace_subject_in_history($1, $2, $3, $4)
