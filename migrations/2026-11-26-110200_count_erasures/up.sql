-- How many names of a partition's subjects were erased: who remembers numbers of names sees it before it books.
ALTER TABLE cursors ADD COLUMN erasures bigint NOT NULL DEFAULT 0;
