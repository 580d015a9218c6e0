// SPDX-License-Identifier: Apache-2.0

//! The lab: runs one image as process, container, Linux VM and unikernel, and compares like with like.
//!
//! An *experiment* is a question with services, workloads and platforms ([`experiment`]). A *run* of it boots each service
//! on each platform in an order drawn from a recorded seed ([`run`]); what is started ([`platform`]) gets a place in the
//! network that is alike for all ([`network`]), is loaded ([`load`]) and watched from outside ([`meter`]). Everything that
//! was seen is a line of a result file ([`record`]); [`statistics`] and [`report`] read only that file.

pub mod error;
pub mod experiment;
pub mod load;
pub mod meter;
pub mod metric;
pub mod network;
pub mod platform;
pub mod record;
pub mod report;
pub mod run;
pub mod statistics;

pub use error::{Error, Result};
