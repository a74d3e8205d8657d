//! Stories of keys and news.
