//! `lillux time`

use super::super::report::{Failure, Report};

pub(crate) fn run() -> Result<Report, Failure> {
    Ok(Report::new(lillux::time::now()))
}
