SELECT detach_summed_month($1, $2) AS text
