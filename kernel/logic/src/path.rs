// SPDX-License-Identifier: Apache-2.0
//! Path names cut into components, by the rules of path_resolution(7).
//!
//! Knows nothing of directories: it says what each component asks for, and whether the whole path insists on a
//! directory. Names are bytes, as on Linux.

use coracle_abi::Errno;
use core::fmt;

/// Longest component in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Longest path in bytes with the final NUL (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;
/// How many symbolic links may be followed in one resolution (path_resolution(7)).
pub const LINKS_MAX: u32 = 40;

/// Why a path cannot be resolved, whatever the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// The path has no characters: `ENOENT` unless the call allows it (`AT_EMPTY_PATH`).
    Empty,
    /// The path or one of its components is too long: `ENAMETOOLONG`.
    TooLong,
    /// Too many symbolic links: `ELOOP`.
    Loop,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the path is empty",
            Self::TooLong => "the path or a name in it is too long",
            Self::Loop => "too many levels of symbolic links",
        })
    }
}

impl From<PathError> for Errno {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Empty => Self::ENOENT,
            PathError::TooLong => Self::ENAMETOOLONG,
            PathError::Loop => Self::ELOOP,
        }
    }
}

/// One step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component<'a> {
    /// `.`: stay, but this must be a directory.
    Current,
    /// `..`: go to the parent; the root's parent is the root.
    Parent,
    /// Look this name up.
    Name(&'a [u8]),
}

/// The components of a path, in order. An item is an error if the component is longer than [`NAME_MAX`]: Linux
/// notices that only when the walk gets there.
#[derive(Debug, Clone)]
pub struct Components<'a> {
    absolute: bool,
    rest: &'a [u8],
}

impl<'a> Components<'a> {
    /// Starts a walk of `path` (without the final NUL).
    ///
    /// # Errors
    /// [`PathError::Empty`], or [`PathError::TooLong`] if `path` has [`PATH_MAX`] bytes or more.
    pub fn new(path: &'a [u8]) -> Result<Self, PathError> {
        match path.len() {
            0 => Err(PathError::Empty),
            PATH_MAX.. => Err(PathError::TooLong),
            _ => Ok(Self {
                absolute: path[0] == b'/',
                rest: trim_start(path),
            }),
        }
    }

    /// Whether the walk starts at the root.
    #[must_use]
    pub const fn is_absolute(&self) -> bool {
        self.absolute
    }

    /// Whether no component is left. After an item this says that it was the last one; a path of slashes only has
    /// none at all and means the root.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been walked yet, without leading slashes but with a trailing one.
    #[must_use]
    pub const fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether what remains must end in a directory: it ends with a slash, `.` or `..`, or nothing remains.
    #[must_use]
    pub fn must_be_dir(&self) -> bool {
        let last = self.rest.rsplit(|b| *b == b'/').next().unwrap_or_default();
        matches!(last, b"" | b"." | b"..")
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = Result<Component<'a>, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self
            .rest
            .iter()
            .position(|b| *b == b'/')
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = trim_start(rest);
        Some(match name {
            b"." => Ok(Component::Current),
            b".." => Ok(Component::Parent),
            _ if name.len() > NAME_MAX => Err(PathError::TooLong),
            _ => Ok(Component::Name(name)),
        })
    }
}

/// A path split for the calls that act on a name in a directory (open with `O_CREAT`, mkdir, unlink, rename).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split<'a> {
    /// The directory's path with its slashes; empty if the path had one component (walk from the start directory).
    pub parent: &'a [u8],
    /// The last component; `None` if the path is the root.
    pub last: Option<Component<'a>>,
    /// Whether slashes follow the last component.
    pub trailing_slash: bool,
}

/// Splits off the last component.
///
/// # Errors
/// As [`Components::new`], and [`PathError::TooLong`] for the last component.
pub fn split_last(path: &[u8]) -> Result<Split<'_>, PathError> {
    Components::new(path)?;
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let start = path[..end]
        .iter()
        .rposition(|b| *b == b'/')
        .map_or(0, |at| at + 1);
    let last = Components {
        absolute: false,
        rest: &path[start..end],
    }
    .next()
    .transpose()?;
    // A path of slashes only is its own parent.
    let parent = if last.is_none() { path } else { &path[..start] };
    Ok(Split {
        parent,
        last,
        trailing_slash: end < path.len() && last.is_some(),
    })
}

/// Counts the symbolic links followed in one resolution.
#[derive(Debug, Clone)]
pub struct LinkBudget(u32);

impl Default for LinkBudget {
    fn default() -> Self {
        Self(LINKS_MAX)
    }
}

impl LinkBudget {
    /// Accounts for one more link.
    ///
    /// # Errors
    /// [`PathError::Loop`] at the 41st.
    pub fn follow(&mut self) -> Result<(), PathError> {
        self.0 = self.0.checked_sub(1).ok_or(PathError::Loop)?;
        Ok(())
    }
}

fn trim_start(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    &path[start..]
}

#[cfg(test)]
mod tests {
    use super::Component::{Current, Name, Parent};
    use super::{
        Components, LINKS_MAX, LinkBudget, NAME_MAX, PATH_MAX, PathError, Split, split_last,
    };
    use proptest::prelude::proptest;
    use proptest::{prop_assert, prop_assert_eq};

    fn walk(path: &str) -> Vec<super::Component<'_>> {
        Components::new(path.as_bytes())
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn slashes_and_dots() {
        assert_eq!(
            walk("a//b/./../c"),
            [Name(b"a"), Name(b"b"), Current, Parent, Name(b"c")]
        );
        assert_eq!(walk("///"), []);
        assert_eq!(walk("/etc/"), [Name(b"etc")]);
        assert_eq!(walk("..."), [Name(b"...")]);
        assert!(Components::new(b"/").unwrap().is_absolute());
        assert!(!Components::new(b"a/b").unwrap().is_absolute());
    }

    #[test]
    fn a_directory_is_demanded_by_the_end_of_the_path() {
        let demand = |path: &str| Components::new(path.as_bytes()).unwrap().must_be_dir();
        for path in ["a/", "a/.", "a/..", "/", "."] {
            assert!(demand(path), "{path}");
        }
        for path in ["a", "a/b", "/a", "a/.b", "a/..b"] {
            assert!(!demand(path), "{path}");
        }
        let mut walk = Components::new(b"a/b/").unwrap();
        walk.next();
        assert_eq!(
            (walk.remaining(), walk.must_be_dir(), walk.is_done()),
            (&b"b/"[..], true, false)
        );
    }

    #[test]
    fn limits() {
        assert_eq!(Components::new(b"").err(), Some(PathError::Empty));
        assert!(Components::new(&vec![b'/'; PATH_MAX - 1]).is_ok());
        assert_eq!(
            Components::new(&vec![b'/'; PATH_MAX]).err(),
            Some(PathError::TooLong)
        );
        let long = [b"ok/".to_vec(), vec![b'x'; NAME_MAX + 1]].concat();
        let mut walk = Components::new(&long).unwrap();
        assert_eq!(walk.next(), Some(Ok(Name(b"ok"))));
        assert_eq!(walk.next(), Some(Err(PathError::TooLong)));
        assert_eq!(split_last(&long).err(), Some(PathError::TooLong));
        let mut budget = LinkBudget::default();
        assert!((0..LINKS_MAX).all(|_| budget.follow().is_ok()));
        assert_eq!(budget.follow(), Err(PathError::Loop));
    }

    #[test]
    fn the_last_component() {
        let split = |path: &'static str| split_last(path.as_bytes()).unwrap();
        let expect = |parent: &'static str, last, trailing_slash| Split {
            parent: parent.as_bytes(),
            last,
            trailing_slash,
        };
        assert_eq!(split("f"), expect("", Some(Name(b"f")), false));
        assert_eq!(split("/f"), expect("/", Some(Name(b"f")), false));
        assert_eq!(split("a/b//c//"), expect("a/b//", Some(Name(b"c")), true));
        assert_eq!(split("a/.."), expect("a/", Some(Parent), false));
        assert_eq!(split("//"), expect("//", None, false));
    }

    proptest! {
        #[test]
        fn walking_the_parent_and_the_last_is_walking_all(path in "[a./]{1,20}") {
            let split = split_last(path.as_bytes()).unwrap();
            let mut steps: Vec<_> = match Components::new(split.parent) {
                Ok(parent) => parent.map(Result::unwrap).collect(),
                Err(_) => Vec::new(),
            };
            if split.last.is_some() {
                steps.extend(split.last);
            }
            prop_assert_eq!(steps, walk(&path));
            prop_assert!(!split.trailing_slash || path.ends_with('/'));
        }
    }
}
