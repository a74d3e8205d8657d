//! `lillux time`

use super::super::report::Report;

pub(crate) fn run() -> Report {
    Report::new(lillux::time::now())
}
