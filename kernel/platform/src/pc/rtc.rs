// SPDX-License-Identifier: Apache-2.0
//! The wall clock (MC146818), read once at boot.

use coracle_arch::port;

fn register(number: u8) -> u8 {
    // SAFETY: the clock's index and data ports; the kernel is their only user.
    unsafe {
        port::write8(0x70, number);
        port::read8(0x71)
    }
}

fn raw() -> [u8; 7] {
    [0, 2, 4, 7, 8, 9, 0x32].map(register)
}

/// Seconds since 1970 (UTC), or `None` if there is no clock or it shows nonsense.
#[must_use]
pub fn read() -> Option<u64> {
    // Two equal readings outside an update are a time; a clock that never agrees with itself is none.
    let values = (0..1000).find_map(|_| {
        let first = raw();
        (register(10) & 0x80 == 0 && raw() == first).then_some(first)
    })?;
    let mode = register(11);
    let value = |byte: u8| {
        u64::from(if mode & 4 != 0 {
            byte
        } else {
            (byte >> 4) * 10 + (byte & 15)
        })
    };
    let [second, minute, hour, day, month, year, century] = values;
    let afternoon = mode & 2 == 0 && hour & 0x80 != 0;
    let mut hour = value(hour & 0x7f);
    if mode & 2 == 0 {
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    let century = match value(century) {
        c @ 19..=21 => c,
        _ => 20,
    };
    let (year, month, day) = (century * 100 + value(year), value(month), value(day));
    let (minute, second) = (value(minute), value(second));
    let sane = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    sane.then(|| days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March, so that the leap day is the last of the year.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    days - 719_468
}
