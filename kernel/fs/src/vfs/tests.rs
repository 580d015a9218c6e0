// SPDX-License-Identifier: Apache-2.0
//! The rules of the manual pages, as tables.

use super::*;
use crate::Errno;
use crate::tmpfs::TmpFs;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};

const EBUSY: Errno = Errno::EBUSY;
const EEXIST: Errno = Errno::EEXIST;
const EINVAL: Errno = Errno::EINVAL;
const EISDIR: Errno = Errno::EISDIR;
const ELOOP: Errno = Errno::ELOOP;
const ENAMETOOLONG: Errno = Errno::ENAMETOOLONG;
const ENOENT: Errno = Errno::ENOENT;
const ENOTDIR: Errno = Errno::ENOTDIR;
const ENOTEMPTY: Errno = Errno::ENOTEMPTY;
const ENXIO: Errno = Errno::ENXIO;
const EPERM: Errno = Errno::EPERM;
const EROFS: Errno = Errno::EROFS;
const EXDEV: Errno = Errno::EXDEV;

const RDONLY: u32 = g::O_RDONLY;
const WRONLY: u32 = g::O_WRONLY;
const RDWR: u32 = g::O_RDWR;
const CREAT: u32 = g::O_CREAT;

fn node(kind: NewKind<'_>) -> NewNode<'_> {
    NewNode {
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
    }
}

struct Fixture(Vfs);

impl Fixture {
    /// `/d/`, `/d/sub/`, `/d/f` ("hello"), `/l -> d/f`, `/dl -> d`, `/dangling -> nothing`, `/loop -> loop`,
    /// `/m/` (a mount with `/m/inner`), `/ro/` (a read-only mount with `/ro/f`, `/ro/d/`), `/fifo`, `/sock`.
    fn new() -> Self {
        let vfs = Vfs::new(TmpFs::new(1 << 20, 0o755), MountOptions::default());
        let this = Self(vfs);
        for path in ["/d", "/d/sub", "/m", "/ro"] {
            this.create(path, NewKind::Directory).unwrap();
        }
        this.create("/d/f", NewKind::File).unwrap();
        let file = this.open("/d/f", WRONLY, 0).unwrap();
        file.write(&mut IoSrc::kernel(b"hello")).unwrap();
        for (name, target) in [
            ("/l", "d/f"),
            ("/dl", "d"),
            ("/dangling", "nothing"),
            ("/loop", "loop"),
        ] {
            this.create(name, NewKind::Symlink(target.as_bytes()))
                .unwrap();
        }
        this.create("/fifo", NewKind::Fifo).unwrap();
        this.create("/sock", NewKind::Socket).unwrap();
        let inner = TmpFs::new(1 << 20, 0o755);
        inner.root().create(b"inner", &node(NewKind::File)).unwrap();
        this.0
            .mount(&this.at("/m").unwrap(), inner, MountOptions::default())
            .unwrap();
        let read_only = TmpFs::new(1 << 20, 0o755);
        read_only.root().create(b"f", &node(NewKind::File)).unwrap();
        read_only
            .root()
            .create(b"d", &node(NewKind::Directory))
            .unwrap();
        let options = MountOptions { read_only: true };
        this.0
            .mount(&this.at("/ro").unwrap(), read_only, options)
            .unwrap();
        this
    }

    fn at(&self, path: &str) -> Result<Place> {
        self.0.resolve(self.0.root(), path.as_bytes(), Follow::Yes)
    }

    fn create(&self, path: &str, kind: NewKind<'_>) -> Result<Place> {
        self.0.create(self.0.root(), path.as_bytes(), &node(kind))
    }

    fn open(&self, path: &str, flags: u32, mode: u32) -> Result<Arc<OpenFile>> {
        let request = OpenRequest {
            mode,
            ..OpenRequest::new(flags)
        };
        self.0.open(self.0.root(), path.as_bytes(), &request)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        self.0.unlink(self.0.root(), path.as_bytes())
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        self.0.remove_directory(self.0.root(), path.as_bytes())
    }

    fn rename(&self, from: &str, to: &str, how: Rename) -> Result<()> {
        let root = self.0.root();
        self.0
            .rename((root, from.as_bytes()), (root, to.as_bytes()), how)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let target = self.0.resolve(self.0.root(), from.as_bytes(), Follow::No)?;
        self.0.link(&target, self.0.root(), to.as_bytes())
    }

    fn path_of(&self, path: &str) -> String {
        String::from_utf8(self.at(path).unwrap().directory_path().unwrap()).unwrap()
    }
}

fn read_all(file: &OpenFile) -> Vec<u8> {
    let mut out = [0; 64];
    let n = file.read(&mut IoDst::kernel(&mut out)).unwrap();
    out[..n].to_vec()
}

#[track_caller]
fn same<T>(got: Result<T>, want: Result<(), Errno>, what: &str) {
    assert_eq!(got.map(|_| ()), want, "{what}");
}

#[test]
fn walking() {
    let f = Fixture::new();
    for (path, want) in [
        ("", Err(ENOENT)),
        ("/", Ok(())),
        ("//d/./sub/..//f", Ok(())),
        ("/d/f/", Err(ENOTDIR)),
        ("/d/f/.", Err(ENOTDIR)),
        ("/d/f/..", Err(ENOTDIR)),
        ("/d/f/x", Err(ENOTDIR)),
        ("/nothing", Err(ENOENT)),
        ("/nothing/x", Err(ENOENT)),
        ("/l", Ok(())),
        ("/l/", Err(ENOTDIR)),
        ("/dl/sub", Ok(())),
        ("/dl/", Ok(())),
        ("/dangling", Err(ENOENT)),
        ("/loop", Err(ELOOP)),
        ("/loop/x", Err(ELOOP)),
        ("/../../d/f", Ok(())),
        ("/m/inner", Ok(())),
        ("/m/../d/f", Ok(())),
    ] {
        same(f.at(path), want, path);
    }
    let long = format!("/d/{}", "x".repeat(256));
    same(f.at(&long), Err(ENAMETOOLONG), "a name of 256 bytes");
    same(
        f.at(&"/".repeat(4096)),
        Err(ENAMETOOLONG),
        "a path of 4096 bytes",
    );
    let last = |p: &str| {
        f.0.resolve(f.0.root(), p.as_bytes(), Follow::No)
            .unwrap()
            .inode
            .kind()
    };
    assert_eq!(last("/l"), Kind::Symlink);
    assert_eq!(last("/dl/"), Kind::Directory);
    assert_eq!(f.path_of("/m/../dl/sub"), "/d/sub");
    assert_eq!(f.path_of("/m"), "/m");
    assert_eq!(f.path_of("/"), "/");
}

#[test]
fn forty_links_are_followed_and_not_more() {
    let f = Fixture::new();
    f.create("/n0", NewKind::File).unwrap();
    for i in 1..=41 {
        let target = format!("n{}", i - 1);
        f.create(&format!("/n{i}"), NewKind::Symlink(target.as_bytes()))
            .unwrap();
    }
    same(f.at("/n40"), Ok(()), "40 links");
    same(f.at("/n41"), Err(ELOOP), "41 links");
    same(f.open("/n40", RDONLY, 0), Ok(()), "open through 40 links");
    same(
        f.open("/n41", CREAT | RDWR, 0o600),
        Err(ELOOP),
        "open through 41 links",
    );
}

#[test]
fn opening() {
    let f = Fixture::new();
    let (excl, trunc, dir) = (g::O_EXCL, g::O_TRUNC, g::O_DIRECTORY);
    let (nofollow, path) = (g::O_NOFOLLOW, g::O_PATH);
    for (name, flags, want) in [
        ("/d/f", RDONLY, Ok(())),
        ("/d/f", dir, Err(ENOTDIR)),
        ("/d", RDONLY | dir, Ok(())),
        ("/d", RDONLY, Ok(())),
        ("/d", WRONLY, Err(EISDIR)),
        ("/d", RDONLY | trunc, Err(EISDIR)),
        ("/d", RDONLY | CREAT, Err(EISDIR)),
        ("/d/.", RDONLY, Ok(())),
        ("/", RDONLY, Ok(())),
        ("/d/new/", RDWR | CREAT, Err(EISDIR)),
        ("/d/.", RDWR | CREAT, Err(EISDIR)),
        ("/d/f", RDWR | CREAT | excl, Err(EEXIST)),
        ("/l", RDWR | CREAT | excl, Err(EEXIST)),
        ("/dangling", RDWR | CREAT | excl, Err(EEXIST)),
        ("/l", RDONLY | nofollow, Err(ELOOP)),
        ("/l", RDONLY | nofollow | path, Ok(())),
        ("/l", RDONLY | nofollow | dir, Err(ENOTDIR)),
        ("/dl/", RDONLY | nofollow, Ok(())),
        ("/x/y", RDWR | CREAT, Err(ENOENT)),
        ("/d/f/y", RDWR | CREAT, Err(ENOTDIR)),
        ("/d", CREAT | dir, Err(EINVAL)),
        ("/sock", RDONLY, Err(ENXIO)),
        ("/sock", path, Ok(())),
        ("/fifo", WRONLY | g::O_NONBLOCK, Err(ENXIO)),
        ("/fifo", RDONLY | g::O_NONBLOCK, Ok(())),
        ("/ro/f", RDONLY, Ok(())),
        ("/ro/f", RDWR, Err(EROFS)),
        ("/ro/f", RDONLY | trunc, Err(EROFS)),
        ("/ro/f", RDONLY | CREAT, Ok(())),
        ("/ro/new", RDONLY | CREAT, Err(EROFS)),
        ("/d", g::O_TMPFILE | RDWR, Ok(())),
        ("/d", g::O_TMPFILE | RDONLY, Err(EINVAL)),
        ("/ro", g::O_TMPFILE | RDWR, Err(EROFS)),
        ("", RDONLY, Err(ENOENT)),
        ("/loop", RDONLY, Err(ELOOP)),
    ] {
        same(
            f.open(name, flags, 0o600),
            want,
            &format!("{name} {flags:#o}"),
        );
    }
}

#[test]
fn a_dangling_link_is_created_through() {
    let f = Fixture::new();
    f.open("/dangling", CREAT | RDWR, 0o640).unwrap();
    let made = f.at("/nothing").unwrap().inode.metadata().unwrap();
    assert_eq!(made.mode, g::S_IFREG | 0o640);
}

#[test]
fn truncation_and_append() {
    let f = Fixture::new();
    let file = f.open("/d/f", RDWR | g::O_APPEND, 0).unwrap();
    file.write(&mut IoSrc::kernel(b"!")).unwrap();
    assert_eq!(*file.position().lock(), 6);
    let other = f.open("/l", RDONLY, 0).unwrap();
    assert_eq!(read_all(&other), b"hello!");
    f.open("/d/f", WRONLY | g::O_TRUNC, 0).unwrap();
    assert_eq!(f.at("/d/f").unwrap().inode.metadata().unwrap().size, 0);
    assert_eq!(read_all(&other), b"");
}

#[test]
fn unlinked_files_live_on() {
    let f = Fixture::new();
    let file = f.open("/d/f", RDWR, 0).unwrap();
    let name = |file: &OpenFile| {
        let vnode = file.downcast::<VnodeFile>().unwrap();
        String::from_utf8(vnode.path()).unwrap()
    };
    assert_eq!(name(&file), "/d/f");
    f.unlink("/d/f").unwrap();
    assert_eq!(name(&file), "/d/f (deleted)");
    assert_eq!(file.file().metadata().unwrap().links, 0);
    assert_eq!(read_all(&file), b"hello");
}

#[test]
fn removing() {
    let f = Fixture::new();
    for (name, want) in [
        ("/d", Err(EISDIR)),
        ("/d/.", Err(EISDIR)),
        ("/", Err(EISDIR)),
        ("/d/f/", Err(ENOTDIR)),
        ("/none", Err(ENOENT)),
        ("/ro/f", Err(EROFS)),
        ("/l", Ok(())),
        ("/l", Err(ENOENT)),
        ("/d/f", Ok(())),
    ] {
        same(f.unlink(name), want, name);
    }
    for (name, want) in [
        ("/d", Err(ENOTEMPTY)),
        ("/d/.", Err(EINVAL)),
        ("/d/..", Err(ENOTEMPTY)),
        ("/", Err(EBUSY)),
        ("/m", Err(EBUSY)),
        ("/dl", Err(ENOTDIR)),
        ("/fifo", Err(ENOTDIR)),
        ("/ro/d", Err(EROFS)),
        ("/d/sub/", Ok(())),
        ("/d", Ok(())),
        ("/d", Err(ENOENT)),
    ] {
        same(f.rmdir(name), want, name);
    }
}

#[test]
fn a_removed_directory_takes_nothing_more() {
    let f = Fixture::new();
    let gone = f.at("/d/sub").unwrap();
    f.rmdir("/d/sub").unwrap();
    let made = f.0.create(&gone, b"x", &node(NewKind::File));
    same(made, Err(ENOENT), "create in a removed directory");
    assert_eq!(gone.directory_path(), Err(ENOENT));
    assert_eq!(gone.inode.metadata().unwrap().links, 0);
}

#[test]
fn creating() {
    let f = Fixture::new();
    for (name, kind, want) in [
        ("/d", NewKind::Directory, Err(EEXIST)),
        ("/d/.", NewKind::Directory, Err(EEXIST)),
        ("/", NewKind::Directory, Err(EEXIST)),
        ("/dangling", NewKind::Directory, Err(EEXIST)),
        ("/x/y", NewKind::Directory, Err(ENOENT)),
        ("/d/f/y", NewKind::Directory, Err(ENOTDIR)),
        ("/ro/d", NewKind::Directory, Err(EEXIST)),
        ("/ro/new", NewKind::Directory, Err(EROFS)),
        ("/new/", NewKind::Directory, Ok(())),
        ("/newfile/", NewKind::File, Err(ENOENT)),
        ("/newlink", NewKind::Symlink(b"t"), Ok(())),
        ("/newlink", NewKind::Symlink(b"t"), Err(EEXIST)),
    ] {
        same(f.create(name, kind), want, name);
    }
    assert_eq!(f.at("/").unwrap().inode.metadata().unwrap().links, 2 + 4);
}

#[test]
fn linking() {
    let f = Fixture::new();
    for (from, to, want) in [
        ("/d", "/x", Err(EPERM)),
        ("/d/f", "/m/x", Err(EXDEV)),
        ("/d/f", "/l", Err(EEXIST)),
        ("/d/f", "/x/", Err(ENOENT)),
        ("/ro/f", "/ro/g", Err(EROFS)),
        ("/none", "/x", Err(ENOENT)),
        ("/d/f", "/x", Ok(())),
        ("/l", "/y", Ok(())),
    ] {
        same(f.link(from, to), want, &format!("{from} {to}"));
    }
    let a = f.at("/d/f").unwrap().inode.metadata().unwrap();
    let b = f.at("/x").unwrap().inode.metadata().unwrap();
    assert_eq!((a.inode, a.links), (b.inode, 2));
}

#[test]
fn renaming() {
    use super::Rename::{Exchange, NoReplace, Replace};
    let f = Fixture::new();
    f.create("/g", NewKind::File).unwrap();
    f.create("/empty", NewKind::Directory).unwrap();
    for (from, to, how, want) in [
        ("/none", "/x", Replace, Err(ENOENT)),
        ("/d/f", "/x/y", Replace, Err(ENOENT)),
        ("/d/f", "/empty", Replace, Err(EISDIR)),
        ("/d", "/g", Replace, Err(ENOTDIR)),
        ("/d", "/d/sub/x", Replace, Err(EINVAL)),
        ("/d/sub", "/d", Replace, Err(ENOTEMPTY)),
        ("/empty", "/d", Replace, Err(ENOTEMPTY)),
        ("/d/f", "/m/f", Replace, Err(EXDEV)),
        ("/ro/f", "/ro/g", Replace, Err(EROFS)),
        ("/d/.", "/x", Replace, Err(EBUSY)),
        ("/d/f", "/", Replace, Err(EBUSY)),
        ("/m", "/x", Replace, Err(EBUSY)),
        ("/d/f/", "/x", Replace, Err(ENOTDIR)),
        ("/d/f", "/x/", Replace, Err(ENOTDIR)),
        ("/d/f", "/g", NoReplace, Err(EEXIST)),
        ("/d/f", "/x", Exchange, Err(ENOENT)),
        ("/d", "/d/sub", Exchange, Err(EINVAL)),
        ("/d/f", "/g", Exchange, Ok(())),
        ("/d/f", "/d/f", Replace, Ok(())),
        ("/g", "/d/h", NoReplace, Ok(())),
        ("/d/sub", "/empty", Replace, Ok(())),
        ("/d/h", "/d/f", Replace, Ok(())),
        ("/d", "/e", Replace, Ok(())),
    ] {
        same(
            f.rename(from, to, how),
            want,
            &format!("{from} {to} {how:?}"),
        );
    }
    assert_eq!(read_all(&f.open("/e/f", RDONLY, 0).unwrap()), b"hello");
    assert_eq!(f.path_of("/e"), "/e");
    assert_eq!(f.at("/e").unwrap().inode.metadata().unwrap().links, 2);
    same(f.at("/d"), Err(ENOENT), "the old name");
}

#[test]
fn exchanged_directories_know_their_new_places() {
    let f = Fixture::new();
    f.create("/a", NewKind::Directory).unwrap();
    f.create("/a/one", NewKind::Directory).unwrap();
    f.rename("/a/one", "/d/sub", Rename::Exchange).unwrap();
    assert_eq!(
        (f.path_of("/a/one"), f.path_of("/d/sub/../sub")),
        ("/a/one".into(), "/d/sub".into())
    );
    let root_links = f.at("/a").unwrap().inode.metadata().unwrap().links;
    assert_eq!(root_links, 3);
}

#[test]
fn directories_list_their_entries_while_they_change() {
    let f = Fixture::new();
    let list = |from: u64, at_most: usize| {
        let dir = f.open("/d", RDONLY, 0).unwrap();
        let mut names = Vec::new();
        let mut next = from;
        dir.file()
            .read_directory(from, &mut |entry| {
                if names.len() == at_most {
                    return false;
                }
                names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                next = entry.next;
                true
            })
            .unwrap();
        (names, next)
    };
    assert_eq!(list(0, 9).0, [".", "..", "sub", "f"]);
    let (_, position) = list(0, 3);
    f.rmdir("/d/sub").unwrap();
    f.create("/d/late", NewKind::File).unwrap();
    assert_eq!(list(position, 9).0, ["f", "late"]);
}

#[test]
fn device_numbers_are_packed_as_in_makedev() {
    for (major, minor, number) in [
        (1, 3, 0x103),
        (259, 7, 0x1_0307),
        (0, 300, 0x10_002c),
        (4097, 0, 0x1000_0000_0100),
    ] {
        let packed = device_number(major, minor);
        assert_eq!(packed, number);
        assert_eq!((device_major(packed), device_minor(packed)), (major, minor));
    }
}
