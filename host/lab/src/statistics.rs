// SPDX-License-Identifier: Apache-2.0

//! Medians, intervals and ratios of samples.
