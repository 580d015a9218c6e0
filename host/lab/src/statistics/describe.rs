// SPDX-License-Identifier: Apache-2.0

//! Descriptions of plain lists of numbers.

/// The median: of an even number of values, the mean of the middle two. None of no value.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    median_of(&mut values)
}

/// As [`median`], without a copy; the order of `values` changes.
pub(super) fn median_of(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if !even {
        return Some(*upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, *upper))
}

/// The value below which a share of `at` (0 to 1) lies, with the neighbours weighted between them (type 7 of Hyndman and
/// Fan, the default of R and NumPy). None of no value.
#[must_use]
pub fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    // A rank of a list in memory is exact in a double; the share is kept within 0 and 1.
    #[expect(clippy::cast_precision_loss)]
    let rank = at.clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let index = rank.floor() as usize;
    let (low, high) = (sorted[index.min(last)], sorted[(index + 1).min(last)]);
    Some(low + (high - low) * rank.fract())
}

/// The values from the `low` quantile to the `high` quantile, both included. Study 003 trims to 0.02 and 0.98.
#[must_use]
pub fn trimmed(values: &[f64], low: f64, high: f64) -> Vec<f64> {
    let (Some(low), Some(high)) = (quantile(values, low), quantile(values, high)) else {
        return Vec::new();
    };
    values
        .iter()
        .copied()
        .filter(|value| (low..=high).contains(value))
        .collect()
}

/// Mean, and standard deviation of the sample (n-1), as study 000 prints them; the deviation of one value is None.
#[must_use]
pub fn mean_and_deviation(values: &[f64]) -> Option<(f64, Option<f64>)> {
    if values.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss)]
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
    Some((mean, deviation))
}

#[cfg(test)]
mod tests {
    use super::{mean_and_deviation, median, quantile, trimmed};

    #[test]
    fn medians_of_few_and_of_equal_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[5.0; 8]), Some(5.0));
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    #[test]
    fn quantiles_are_those_of_r() {
        // quantile(c(1,2,3,4,10), c(0, .02, .25, .5, .9, 1))
        let values = [10.0, 2.0, 3.0, 4.0, 1.0];
        for (at, wanted) in [
            (0.0, 1.0),
            (0.02, 1.08),
            (0.25, 2.0),
            (0.5, 3.0),
            (0.9, 7.6),
            (1.0, 10.0),
        ] {
            let got = quantile(&values, at).unwrap();
            assert!((got - wanted).abs() < 1e-12, "{at}: {got}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn trimming_takes_both_ends() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let kept = trimmed(&values, 0.02, 0.98);
        assert_eq!((kept[0], kept[kept.len() - 1], kept.len()), (3.0, 98.0, 96));
        assert_eq!(trimmed(&[4.0], 0.02, 0.98), [4.0]);
        assert!(trimmed(&[], 0.02, 0.98).is_empty());
    }

    #[test]
    fn deviation_divides_by_one_less() {
        let (mean, deviation) =
            mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!(
            (mean - 5.0).abs() < 1e-12
                && (deviation.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12
        );
        assert_eq!(mean_and_deviation(&[3.0]), Some((3.0, None)));
        assert_eq!(mean_and_deviation(&[]), None);
    }
}
