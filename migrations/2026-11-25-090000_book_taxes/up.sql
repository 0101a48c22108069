-- Taxes on statements are owed on, and no revenue.
ALTER TYPE account ADD VALUE IF NOT EXISTS 'tax';
