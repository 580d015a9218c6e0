// SPDX-License-Identifier: Apache-2.0

//! What a guest says of itself, as figures of a sample.

use std::collections::BTreeMap;

use crate::metric;

/// What a guest's counters say of its boot: `boot.kernel_ms` becomes the figure `boot_kernel_ms`.
pub(super) fn boot(counters: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    counters
        .into_iter()
        .filter(|(name, _)| name.starts_with("boot."))
        .map(|(name, value)| (name.replace(['.', '-'], "_"), value))
        .filter(|(name, _)| metric::unit_of(name).is_some())
        .collect()
}
