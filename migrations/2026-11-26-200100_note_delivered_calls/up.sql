-- In which epoch the gate has got a call that waits: no other instance delivers it again there.
ALTER TABLE parked ADD COLUMN delivered_in bigint;
