//! Body-log frames in, hourly JSONL out.
