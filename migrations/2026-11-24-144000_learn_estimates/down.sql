DROP TABLE estimate_marks, usage_estimates;
