// SPDX-License-Identifier: Apache-2.0
//! IP in both versions: what arrives is checked and given to its protocol, what leaves gets a route and a header.

mod input;
mod multicast;
mod output;
mod reassembly;

pub(crate) use input::IpMeta;
pub(crate) use multicast::{Groups, MLD_QUERY};
pub(crate) use output::{IpHeader, checksum_in_place};
pub(crate) use reassembly::Reassembly;
