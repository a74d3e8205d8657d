//! Fair timing on a machine that others use too.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

/// Times `floor` and `ours` in turn, `rounds` times each, and gives the median
/// seconds of one call of each.
///
/// Taking turns lets a busy moment fall on both; which goes first changes every
/// round, so that neither always inherits the other's warm caches. One call of
/// each before the first round is not counted.
pub fn interleaved<A, B>(
    rounds: usize,
    mut floor: impl FnMut() -> A,
    mut ours: impl FnMut() -> B,
) -> (f64, f64) {
    let floor = || Ok::<_, Infallible>(floor());
    let ours = || Ok::<_, Infallible>(ours());
    let Ok(medians) = try_interleaved(rounds, floor, ours);
    medians
}

/// The same for calls that can fail; the first failure ends it.
pub fn try_interleaved<A, B, E>(
    rounds: usize,
    mut floor: impl FnMut() -> Result<A, E>,
    mut ours: impl FnMut() -> Result<B, E>,
) -> Result<(f64, f64), E> {
    timed(&mut floor)?;
    timed(&mut ours)?;
    let (mut floors, mut all_ours) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        if round % 2 == 0 {
            floors.push(timed(&mut floor)?);
            all_ours.push(timed(&mut ours)?);
        } else {
            all_ours.push(timed(&mut ours)?);
            floors.push(timed(&mut floor)?);
        }
    }
    Ok((median(floors), median(all_ours)))
}

fn timed<T, E>(call: &mut impl FnMut() -> Result<T, E>) -> Result<f64, E> {
    let start = Instant::now();
    black_box(call()?);
    Ok(start.elapsed().as_secs_f64())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    if times.len() % 2 == 1 {
        times[middle]
    } else {
        f64::midpoint(times[middle - 1], times[middle])
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_two_take_turns_and_the_first_changes_every_round() {
        let calls = RefCell::new(Vec::new());
        let call = |name| calls.borrow_mut().push(name);
        interleaved(2, || call("floor"), || call("ours"));
        let (warm_up, first, second) = (["floor", "ours"], ["floor", "ours"], ["ours", "floor"]);
        assert_eq!(calls.into_inner(), [warm_up, first, second].concat());
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let mut left = 2;
        let ours = || {
            left -= 1;
            if left > 0 { Ok(()) } else { Err("broken") }
        };
        assert_eq!(try_interleaved(9, || Ok(()), ours), Err("broken"));
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 9.0, 2.0]) - 3.0).abs() < 1e-9);
    }
}
