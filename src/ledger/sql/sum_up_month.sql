SELECT sum_up_month($1, $2)
