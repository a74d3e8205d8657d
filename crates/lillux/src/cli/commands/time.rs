//! `lillux time`

use crate::cli::report::Report;

pub(crate) fn run() -> Report {
    Report::new(lillux::time::now())
}
