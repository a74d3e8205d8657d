//! Timing that is fair on a busy machine.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

/// Times `baseline` and `ours` alternately, `rounds` times each, and returns the median seconds
/// of both.
///
/// Alternating spreads load peaks over both; the order changes every round, so that neither
/// always benefits from the caches of the other. One call of each is a warm-up.
pub fn interleaved<A, B>(
    rounds: usize,
    mut baseline: impl FnMut() -> A,
    mut ours: impl FnMut() -> B,
) -> (f64, f64) {
    let baseline = || Ok::<_, Infallible>(baseline());
    let ours = || Ok::<_, Infallible>(ours());
    let Ok(medians) = try_interleaved(rounds, baseline, ours);
    medians
}

/// The same for calls that can fail; returns the first error.
pub fn try_interleaved<A, B, E>(
    rounds: usize,
    mut baseline: impl FnMut() -> Result<A, E>,
    mut ours: impl FnMut() -> Result<B, E>,
) -> Result<(f64, f64), E> {
    timed(&mut baseline)?;
    timed(&mut ours)?;
    let (mut baselines, mut all_ours) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        if round % 2 == 0 {
            baselines.push(timed(&mut baseline)?);
            all_ours.push(timed(&mut ours)?);
        } else {
            all_ours.push(timed(&mut ours)?);
            baselines.push(timed(&mut baseline)?);
        }
    }
    Ok((median(baselines), median(all_ours)))
}

fn timed<T, E>(call: &mut impl FnMut() -> Result<T, E>) -> Result<f64, E> {
    let start = Instant::now();
    black_box(call()?);
    Ok(start.elapsed().as_secs_f64())
}

/// The middle value, or the mean of the two middle values.
pub fn median(mut times: Vec<f64>) -> f64 {
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
    fn calls_alternate_and_the_order_changes_every_round() {
        let calls = RefCell::new(Vec::new());
        let call = |name| calls.borrow_mut().push(name);
        interleaved(2, || call("baseline"), || call("ours"));
        let (warm_up, first, second) = (
            ["baseline", "ours"],
            ["baseline", "ours"],
            ["ours", "baseline"],
        );
        assert_eq!(calls.into_inner(), [warm_up, first, second].concat());
    }

    #[test]
    fn error_ends_the_measurement() {
        let mut left = 2;
        let ours = || {
            left -= 1;
            if left > 0 { Ok(()) } else { Err("broken") }
        };
        assert_eq!(try_interleaved(9, || Ok(()), ours), Err("broken"));
    }

    #[test]
    fn median_is_the_middle_value_or_the_mean_of_two() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 9.0, 2.0]) - 3.0).abs() < 1e-9);
    }
}
