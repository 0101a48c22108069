//! Each script against a real Redis, alone and as a cluster of one node: every status, the state table, the books.

mod checkpoint;
mod consume;
mod expire;
mod extend;
mod fixed_window;
mod headers;
mod includes;
mod record;
mod release;
mod repair;
mod reserve;
mod restore;
mod sliding_counter;
mod subjects;
mod suspend;
mod token_bucket;
mod undo;
