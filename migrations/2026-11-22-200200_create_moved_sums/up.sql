-- Sums travel as whole rows too, and only those that an event of the gate can move.
CREATE TYPE moved_balance AS (
    tenant text,
    meter text,
    period_start timestamptz,
    period_end timestamptz,
    available numeric,
    reserved numeric,
    consumed numeric
);
CREATE TYPE moved_usage AS (
    tenant text,
    meter text,
    hour_at timestamptz,
    operation text,
    subject bigint,
    consumed numeric,
    count bigint,
    excess numeric,
    late numeric
);
