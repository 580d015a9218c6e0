// SPDX-License-Identifier: Apache-2.0
//! Signals as they cross the border: numbers, sets, actions, `siginfo_t` (signal(7), sigaction(2)).

use crate::raw::general as g;

/// Number of signals; they count from 1.
pub const COUNT: u32 = 64;

/// A signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident),* $(,)?) => {
        impl Signal {
            $(
                #[doc = concat!("`", stringify!($name), "` of signal(7).")]
                pub const $name: Self = Self::constant(g::$name);
            )*

            /// The symbolic name; real-time signals have none of their own.
            #[must_use]
            pub fn name(self) -> &'static str {
                match u32::from(self.0) {
                    $(g::$name => stringify!($name),)*
                    _ => "SIGRT",
                }
            }
        }
    };
}

signals! {
    SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE,
    SIGALRM, SIGTERM, SIGSTKFLT, SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGXCPU, SIGXFSZ,
    SIGVTALRM, SIGPROF, SIGWINCH, SIGIO, SIGPWR, SIGSYS,
}

/// What happens by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// Nothing.
    Ignore,
    /// The process ends.
    Terminate,
    /// The process stops.
    Stop,
    /// A stopped process goes on.
    Continue,
}

impl Signal {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "signal numbers are at most 64"
    )]
    const fn constant(number: u32) -> Self {
        assert!(number >= 1 && number <= COUNT);
        Self(number as u8)
    }

    /// The signal with this number, if there is one.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (1..=COUNT)
            .contains(&number)
            .then(|| Self::constant(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its index in tables, counted from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Whether several can be pending.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        self.0 >= 32
    }

    /// Default action.
    #[must_use]
    pub fn default_action(self) -> DefaultAction {
        match self {
            Self::SIGCHLD | Self::SIGURG | Self::SIGWINCH => DefaultAction::Ignore,
            Self::SIGCONT => DefaultAction::Continue,
            Self::SIGSTOP | Self::SIGTSTP | Self::SIGTTIN | Self::SIGTTOU => DefaultAction::Stop,
            _ => DefaultAction::Terminate,
        }
    }

    /// Whether it says that something is broken: those for which Linux writes a core file (signal(7)).
    #[must_use]
    pub fn is_crash(self) -> bool {
        matches!(
            self,
            Self::SIGQUIT
                | Self::SIGILL
                | Self::SIGTRAP
                | Self::SIGABRT
                | Self::SIGBUS
                | Self::SIGFPE
                | Self::SIGSEGV
                | Self::SIGXCPU
                | Self::SIGXFSZ
                | Self::SIGSYS
        )
    }
}

/// A set of signals, bit `n - 1` for signal `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// No signal.
    pub const EMPTY: Self = Self(0);
    /// Those that cannot be blocked, caught or ignored.
    pub const UNBLOCKABLE: Self = Self(1 << Signal::SIGKILL.index() | 1 << Signal::SIGSTOP.index());

    /// The set of one signal.
    #[must_use]
    pub const fn of(signal: Signal) -> Self {
        Self(1 << signal.index())
    }

    /// Whether the signal is in the set.
    #[must_use]
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & 1 << signal.index() != 0
    }

    /// Those in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The signal with the lowest number.
    #[must_use]
    pub fn first(self) -> Option<Signal> {
        (self.0 != 0).then(|| Signal::constant(self.0.trailing_zeros() + 1))
    }
}

/// `struct sigaction` as the system call has it on x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SigAction {
    /// Address of the handler, or `SIG_DFL` (0), or `SIG_IGN` (1).
    pub handler: usize,
    /// `SA_*` flags.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: usize,
    /// Signals that are blocked while the handler runs.
    pub mask: u64,
}

impl SigAction {
    /// `SIG_DFL`
    pub const DEFAULT: usize = 0;
    /// `SIG_IGN`
    pub const IGNORE: usize = 1;

    /// Whether a flag (`SA_*`) is set.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
}

/// `stack_t` of sigaltstack(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AltStack {
    /// First address.
    pub base: usize,
    /// `SS_*` flags.
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
    /// Length in bytes.
    pub len: usize,
}

/// `siginfo_t`: 128 bytes, of which the first words have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SigInfo {
    /// Signal number.
    pub signo: i32,
    /// Not used on Linux.
    pub errno: i32,
    /// Where it comes from: `SI_*` or a code of the signal.
    pub code: i32,
    /// Padding.
    pub pad: i32,
    /// What follows depends on the code.
    pub fields: [u64; 14],
}

const _: () = assert!(size_of::<SigInfo>() == 128);
const _: () = assert!(size_of::<SigAction>() == 32);
const _: () = assert!(size_of::<AltStack>() == 24);

/// `SI_USER`: sent by `kill`.
pub const SI_USER: i32 = 0;
/// `SI_KERNEL`: sent by the kernel.
pub const SI_KERNEL: i32 = 0x80;
/// `SI_QUEUE`: sent by `sigqueue`.
pub const SI_QUEUE: i32 = -1;
/// `SI_TIMER`: a POSIX timer expired.
pub const SI_TIMER: i32 = -2;
/// `SI_TKILL`: sent by `tkill` or `tgkill`.
pub const SI_TKILL: i32 = -6;

impl SigInfo {
    /// A signal with nothing but its code.
    #[must_use]
    pub fn new(signal: Signal, code: i32) -> Self {
        Self {
            signo: crate::convert::signed(signal.number()),
            errno: 0,
            code,
            pad: 0,
            fields: [0; 14],
        }
    }

    /// Sent by a process (`si_pid`, `si_uid`).
    #[must_use]
    pub fn from_process(signal: Signal, code: i32, pid: u32, uid: u32) -> Self {
        let mut info = Self::new(signal, code);
        info.fields[0] = u64::from(uid) << 32 | u64::from(pid);
        info
    }

    /// A fault at an address (`si_addr`).
    #[must_use]
    pub fn fault(signal: Signal, code: i32, address: usize) -> Self {
        let mut info = Self::new(signal, code);
        info.fields[0] = crate::convert::u64_from(address);
        info
    }

    /// A timer expired (`si_timerid`, `si_overrun`, `si_value`).
    #[must_use]
    pub fn timer(signal: Signal, id: u32, overrun: u32, value: u64) -> Self {
        let mut info = Self::new(signal, SI_TIMER);
        info.fields[0] = u64::from(overrun) << 32 | u64::from(id);
        info.fields[1] = value;
        info
    }

    /// The signal.
    #[must_use]
    pub fn signal(&self) -> Option<Signal> {
        u32::try_from(self.signo).ok().and_then(Signal::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_numbers() {
        assert_eq!(Signal::SIGSEGV.number(), 11);
        assert_eq!(Signal::new(0), None);
        assert_eq!(Signal::new(64).map(Signal::name), Some("SIGRT"));
        let set = SignalSet::of(Signal::SIGTERM).union(SignalSet::of(Signal::SIGINT));
        assert_eq!(set.first(), Some(Signal::SIGINT));
        assert!(!set.without(set).contains(Signal::SIGINT));
        assert_eq!(Signal::SIGURG.default_action(), DefaultAction::Ignore);
    }
}
