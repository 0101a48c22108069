//! Each script against a real Redis, alone and as a cluster of one node: every status, the state table, the books.

mod boundary;
mod check;
mod checkpoint;
mod concurrency;
mod consume;
mod duplicates;
mod expire;
mod extend;
mod fixed_window;
mod headers;
mod includes;
mod interval;
mod leaky_bucket;
mod record;
mod release;
mod repair;
mod reserve;
mod restore;
mod shadow;
mod sliding_counter;
mod sliding_log;
mod subjects;
mod suspend;
mod together;
mod token_bucket;
mod undo;
