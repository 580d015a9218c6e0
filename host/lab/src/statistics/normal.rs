// SPDX-License-Identifier: Apache-2.0

//! What the levels of an interval need of the normal and Student's distribution.

/// The share of a standard normal distribution below `-x`, for `x >= 0`.
///
/// Abramowitz and Stegun, 26.2.17; the error is below 7.5e-8.
pub(super) fn tail(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x);
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let sum = [
        1.330_274_429,
        -1.821_255_978,
        1.781_477_937,
        -0.356_563_782,
        0.319_381_530,
    ]
    .into_iter()
    .fold(0.0, |sum, factor| (sum + factor) * t);
    density * sum
}

/// The 97.5 % point of Student's t with `degrees` of freedom.
///
/// Up to 10 from the table (Abramowitz and Stegun, 26.10), above by the Cornish-Fisher expansion (26.7.5), which is right
/// to 3e-3 there.
pub(super) fn student_975(degrees: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    const Z: f64 = 1.959_963_985;
    if let Some(value) = degrees.checked_sub(1).and_then(|index| TABLE.get(index)) {
        return *value;
    }
    if degrees == 0 {
        return f64::INFINITY;
    }
    // Runs are counted in thousands at most.
    #[expect(clippy::cast_precision_loss)]
    let v = degrees as f64;
    let (z3, z5) = (Z.powi(3), Z.powi(5));
    Z + (z3 + Z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * v * v)
}

#[cfg(test)]
mod tests {
    use super::{student_975, tail};

    #[test]
    fn tails_are_those_of_the_tables() {
        for (x, share) in [
            (0.0, 0.5),
            (1.0, 0.158_655_25),
            (1.96, 0.024_997_90),
            (3.0, 0.001_349_90),
        ] {
            assert!((tail(x) - share).abs() < 1e-7, "{x}: {}", tail(x));
        }
        assert!(tail(40.0) >= 0.0 && tail(40.0) < 1e-12);
    }

    #[test]
    fn students_points_are_those_of_the_tables() {
        for (degrees, value) in [
            (1, 12.706),
            (4, 2.776),
            (11, 2.201),
            (20, 2.086),
            (60, 2.000),
            (1000, 1.962),
        ] {
            assert!(
                (student_975(degrees) - value).abs() < 3e-3,
                "{degrees}: {}",
                student_975(degrees)
            );
        }
        assert!(student_975(0).is_infinite());
    }
}
