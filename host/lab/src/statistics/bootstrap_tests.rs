// SPDX-License-Identifier: Apache-2.0

//! Intervals of figures with known answers.

use super::{Rounds, estimate, ratio};
use crate::statistics::Random;

/// A standard normal number (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * random.unit()).cos()
}

/// In how many of 1000 the interval of the median of `n` numbers holds the true median, 100.
fn coverage(n: usize, draw: fn(&mut Random) -> f64) -> u32 {
    let mut random = Random::new(7);
    (0..200_u64)
        .map(|seed| {
            let samples: Rounds = (0..n).map(|_| draw(&mut random)).collect();
            let estimate = estimate(&samples, seed).unwrap();
            u32::from((estimate.low..=estimate.high).contains(&100.0))
        })
        .sum::<u32>()
        * 1000
        / 200
}

#[test]
fn the_interval_holds_the_true_median_as_often_as_it_says() {
    for n in [5, 12] {
        for draw in [
            (|random| 100.0 + 10.0 * normal(random)) as fn(&mut Random) -> f64,
            |random| 100.0 * (0.5 * normal(random)).exp(),
        ] {
            let held = coverage(n, draw);
            assert!((915..=995).contains(&held), "{n} runs: {held} of 1000");
        }
    }
}

#[test]
fn a_ratio_holds_the_true_ratio_and_pairing_takes_shared_noise_out() {
    let (mut held, mut paired_width, mut apart_width) = (0, 0.0, 0.0);
    let mut random = Random::new(3);
    for seed in 0..100 {
        let host: Vec<f64> = (0..10).map(|_| (0.2 * normal(&mut random)).exp()).collect();
        let mut side = |middle: f64| -> Rounds {
            host.iter()
                .map(|host| middle * host * (1.0 + 0.01 * normal(&mut random)))
                .collect()
        };
        let (fast, slow) = (side(184.0), side(100.0));
        let paired = ratio(&fast, &slow, true, seed).unwrap();
        let apart = ratio(&fast, &slow, false, seed).unwrap();
        assert!(paired.paired && !apart.paired);
        held += i32::from((paired.low..=paired.high).contains(&1.84));
        paired_width += paired.width().unwrap();
        apart_width += apart.width().unwrap();
    }
    assert!(held >= 90, "{held} of 100");
    assert!(
        paired_width < apart_width / 3.0,
        "{paired_width} against {apart_width}"
    );
}

#[test]
fn a_round_missing_on_one_side_draws_the_sides_apart() {
    let fast: Rounds = [2.0, 2.1, 1.9, 2.0, 2.2, 2.0].into_iter().collect();
    let mut slow = Rounds::default();
    for round in 1..6 {
        assert!(slow.add(round, 1.0));
    }
    let found = ratio(&fast, &slow, true, 1).unwrap();
    assert!(!found.paired && found.runs == 5 && found.differs());
    assert!((found.ratio - 2.0).abs() < 1e-12);
}

#[test]
fn few_runs_give_their_range_and_decide_nothing() {
    let single = estimate(&[3.0].into_iter().collect(), 1).unwrap();
    assert_eq!(
        (single.median, single.low, single.high, single.runs),
        (3.0, 3.0, 3.0, 1)
    );
    assert!(!single.is_settled(10.0));
    let three: Rounds = [1.0, 3.0, 2.0].into_iter().collect();
    let found = estimate(&three, 1).unwrap();
    assert_eq!(
        (found.median, found.low, found.high, found.runs),
        (2.0, 1.0, 3.0, 3)
    );
    assert!(!found.is_settled(10.0));
    let twice: Rounds = [4.0, 4.1, 4.2].into_iter().collect();
    let found = ratio(&twice, &[2.0, 2.0, 2.0].into_iter().collect(), true, 1).unwrap();
    assert!(!found.differs() && !found.is_settled(1.0));
    assert_eq!(ratio(&[1.0].into_iter().collect(), &three, true, 1), None);
    assert_eq!(estimate(&Rounds::default(), 1), None);
}

#[test]
fn equal_values_are_settled_and_zero_is_no_divisor() {
    let equal: Rounds = [6.0; 5].into_iter().collect();
    let found = estimate(&equal, 9).unwrap();
    assert!(found.is_settled(0.0) && found.width() == Some(0.0));
    let zero: Rounds = [0.0; 5].into_iter().collect();
    assert!(estimate(&zero, 9).unwrap().is_settled(0.1));
    assert_eq!(ratio(&equal, &zero, true, 9), None);
    let found = ratio(&zero, &equal, true, 9).unwrap();
    assert_eq!((found.ratio, found.low, found.high), (0.0, 0.0, 0.0));
    let around_zero: Rounds = [-1.0, 0.0, 1.0, 0.0, 0.0].into_iter().collect();
    assert_eq!(estimate(&around_zero, 9).unwrap().width(), None);
}

#[test]
fn what_is_no_number_is_refused() {
    let mut rounds = Rounds::default();
    assert!(!rounds.add(0, f64::NAN) && !rounds.add(1, f64::INFINITY) && rounds.add(2, 1.0));
    assert_eq!(rounds.values(), [1.0]);
}

#[test]
fn samples_of_one_round_count_together_where_rounds_suffice() {
    let (mut many, mut few) = (Rounds::default(), Rounds::default());
    for round in 0..6 {
        for sample in 0..50 {
            let value = 100.0 + f64::from(round) * 10.0 + f64::from(sample) / 100.0;
            assert!(many.add(round, value));
            if round < 2 {
                assert!(few.add(round, value));
            }
        }
    }
    let found = estimate(&many, 5).unwrap();
    assert_eq!(
        (found.runs, found.samples, found.within_rounds),
        (6, 300, false)
    );
    assert!(
        found.high - found.low > 20.0,
        "what differs from round to round is in it"
    );
    let found = estimate(&few, 5).unwrap();
    assert_eq!(
        (found.runs, found.samples, found.within_rounds),
        (100, 100, true)
    );
}

#[test]
fn the_seed_decides() {
    let samples: Rounds = [1.0, 2.5, 2.0, 4.0, 3.0, 7.0, 5.5].into_iter().collect();
    assert_eq!(estimate(&samples, 4), estimate(&samples, 4));
}
