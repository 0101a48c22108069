-- Up to which epoch the rest of an outbox is given up: nobody may wait for events that will never be booked.
ALTER TABLE cursors ADD COLUMN given_up bigint NOT NULL DEFAULT 0 CONSTRAINT given_up_epoch_is_not_negative CHECK (given_up >= 0);
