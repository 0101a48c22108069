DO $$
BEGIN
    IF EXISTS (SELECT FROM adjustments WHERE carried_hold IS NOT NULL) THEN
        RAISE EXCEPTION 'use of carried holds was corrected: without these notes it would be billed twice';
    END IF;
END
$$;

ALTER TABLE corrections DROP COLUMN paid_before;
DROP INDEX adjustments_of_carried_holds;
ALTER TABLE adjustments DROP COLUMN paid_before, DROP COLUMN carried_hold;
