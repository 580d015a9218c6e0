// SPDX-License-Identifier: Apache-2.0
//! Options of the level `SOL_TCP` (`tcp(7)`).

use coracle_abi::convert::{u64_from, usize_from_u32};
use coracle_abi::raw::net as n;
use coracle_core::{Errno, Result};

use super::file::{Kind, SocketFile};
use super::options::{give, give_int, int, ranged};

impl SocketFile {
    pub(super) fn set_tcp_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let Kind::Tcp(_) = &self.kind else {
            return Err(Errno::EOPNOTSUPP);
        };
        let on = || int(value).map(|v| v != 0);
        match name {
            n::TCP_NODELAY => {
                let on = on()?;
                self.change_tcp(|o| o.no_delay = on)
            }
            n::TCP_CORK => {
                let on = on()?;
                self.change_tcp(|o| o.cork = on)
            }
            n::TCP_QUICKACK => {
                let on = on()?;
                self.change_tcp(|o| o.quick_ack = on)
            }
            n::TCP_KEEPIDLE => {
                let seconds = ranged(value, 1, 32_767)?;
                self.change_tcp(|o| o.keep_idle_s = seconds)
            }
            n::TCP_KEEPINTVL => {
                let seconds = ranged(value, 1, 32_767)?;
                self.change_tcp(|o| o.keep_interval_s = seconds)
            }
            n::TCP_KEEPCNT => {
                let count = ranged(value, 1, 127)?;
                self.change_tcp(|o| o.keep_count = count)
            }
            n::TCP_SYNCNT => {
                let count = ranged(value, 1, 127)?;
                self.change_tcp(|o| o.syn_retries = count)
            }
            n::TCP_USER_TIMEOUT => {
                let ms = ranged(value, 0, i32::MAX)?;
                self.change_tcp(|o| o.user_timeout_ms = ms)
            }
            n::TCP_MAXSEG => {
                let size = ranged(value, 88, 32_767)?;
                let size = u16::try_from(size).map_err(|_| Errno::EINVAL)?;
                self.change_tcp(|o| o.max_segment = Some(size))
            }
            n::TCP_NOTSENT_LOWAT => {
                let bytes = usize_from_u32(int(value)?.cast_unsigned());
                self.change_tcp(|o| o.not_sent_low = bytes)
            }
            n::TCP_LINGER2 => {
                let seconds = u32::try_from(int(value)?).unwrap_or(0).min(60);
                self.change_tcp(|o| o.fin_timeout_s = seconds)
            }
            // Waiting for data before `accept` is a hint: the connection is reported when it is complete.
            n::TCP_DEFER_ACCEPT => {
                let seconds = u32::try_from(int(value)?).unwrap_or(0);
                self.change_tcp(|o| o.defer_accept_s = seconds)
            }
            n::TCP_CONGESTION => {
                let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
                if &value[..end] == b"reno" {
                    Ok(())
                } else {
                    Err(Errno::ENOENT)
                }
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    pub(super) fn get_tcp_option(&self, name: u32, out: &mut [u8]) -> Result<usize> {
        let Kind::Tcp(socket) = &self.kind else {
            return Err(Errno::EOPNOTSUPP);
        };
        match name {
            n::TCP_CONGESTION => return Ok(give(out, b"reno\0\0\0\0\0\0\0\0\0\0\0\0")),
            n::TCP_INFO => return Ok(give(out, &socket.info(self.stack.now()))),
            n::TCP_MAXSEG => return Ok(give_int(out, socket.segment_size())),
            _ => {}
        }
        let value = socket.options(|o| match name {
            n::TCP_NODELAY => Some(u64::from(o.no_delay)),
            n::TCP_CORK => Some(u64::from(o.cork)),
            n::TCP_QUICKACK => Some(u64::from(o.quick_ack)),
            n::TCP_KEEPIDLE => Some(u64::from(o.keep_idle_s)),
            n::TCP_KEEPINTVL => Some(u64::from(o.keep_interval_s)),
            n::TCP_KEEPCNT => Some(u64::from(o.keep_count)),
            n::TCP_SYNCNT => Some(u64::from(o.syn_retries)),
            n::TCP_USER_TIMEOUT => Some(u64::from(o.user_timeout_ms)),
            n::TCP_NOTSENT_LOWAT => Some(u64_from(o.not_sent_low).min(u64::from(u32::MAX))),
            n::TCP_LINGER2 => Some(u64::from(o.fin_timeout_s)),
            n::TCP_DEFER_ACCEPT => Some(u64::from(o.defer_accept_s)),
            _ => None,
        });
        let value = u32::try_from(value.ok_or(Errno::ENOPROTOOPT)?).unwrap_or(u32::MAX);
        Ok(give(out, &value.to_ne_bytes()))
    }
}
