-- A key that is noted twice does no harm.
SELECT 1;
