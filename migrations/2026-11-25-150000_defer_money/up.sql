-- What was sold and is not earned yet, and what of it lapsed before it was used.
ALTER TYPE account ADD VALUE IF NOT EXISTS 'deferred';
ALTER TYPE account ADD VALUE IF NOT EXISTS 'breakage';
