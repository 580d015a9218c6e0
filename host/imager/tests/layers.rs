// SPDX-License-Identifier: Apache-2.0
//! Layers are applied to each other as container engines do it, and nothing leads out of the image.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::io::Cursor;

use coracle_imager::erofs::{Data, Writer};
use coracle_imager::image::layer::{LayerError, Whiteouts, apply};
use coracle_imager::tree::{InodeId, Kind, Tree};
use tar::EntryType;

/// One entry: path, type, and content or target.
type Line<'a> = (&'a str, EntryType, &'a str);

const FILE: EntryType = EntryType::Regular;
const DIR: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

/// An archive whose names are written as they are, also those that honest tools refuse to write.
fn archive(lines: &[Line<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, kind, content) in lines {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o640);
        header.set_uid(5);
        header.set_gid(6);
        header.set_mtime(7);
        let data = match *kind {
            LINK | HARD => {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
                ""
            }
            _ => content,
        };
        header.set_size(data.len() as u64);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(data.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn tree(layers: &[&[Line<'_>]]) -> Result<Tree<Data>, LayerError> {
    let mut image = Writer::new(Cursor::new(Vec::new())).unwrap();
    let mut tree = Tree::default();
    for layer in layers {
        apply(
            archive(layer).as_slice(),
            Whiteouts::Apply,
            &mut tree,
            &mut image,
        )?;
    }
    // Whatever was accepted can be written.
    image.finish(&tree).unwrap();
    Ok(tree)
}

/// Paths of everything, with what links lead to and how large files are.
fn listing(tree: &Tree<Data>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut todo: Vec<(String, InodeId)> = vec![(String::new(), Tree::<Data>::ROOT)];
    while let Some((path, id)) = todo.pop() {
        for (name, child) in tree.children(id) {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            let text = match &tree.get(child).kind {
                Kind::Directory(_) => "dir".to_owned(),
                Kind::File(data) => data.size().to_string(),
                Kind::Symlink(target) => format!("> {}", String::from_utf8_lossy(target)),
                other => format!("{other:?}"),
            };
            found.insert(path.clone(), text);
            todo.push((path, child));
        }
    }
    found
}

fn expect(layers: &[&[Line<'_>]], expected: &[(&str, &str)]) {
    let pair = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    let expected: BTreeMap<_, _> = expected.iter().map(pair).collect();
    assert_eq!(listing(&tree(layers).unwrap()), expected);
}

#[test]
fn later_layers_replace_and_remove() {
    let lower: &[Line<'_>] = &[
        ("./", DIR, ""),
        ("a/", DIR, ""),
        ("a/one", FILE, "1"),
        ("a/two", FILE, "22"),
        ("b/", DIR, ""),
        ("b/deep/", DIR, ""),
        ("b/deep/file", FILE, "x"),
        ("c", FILE, "ccc"),
    ];
    let upper: &[Line<'_>] = &[
        ("a/.wh.one", FILE, ""),
        ("a/two", FILE, "4444"),
        ("b/new", FILE, "n"),
        ("b/.wh..wh..opq", FILE, ""),
        ("c/", DIR, ""),
        (".wh.missing", FILE, ""),
        (".wh..wh.plnk", FILE, ""),
    ];
    expect(
        &[lower, upper],
        &[
            ("/a", "dir"),
            ("/a/two", "4"),
            ("/b", "dir"),
            ("/b/new", "1"),
            ("/c", "dir"),
        ],
    );
    // A whiteout means earlier layers only, wherever it stands in its own.
    expect(
        &[
            &[("a/x", FILE, "1")],
            &[
                ("a/y", FILE, ""),
                ("a/.wh.y", FILE, ""),
                ("a/.wh.x", FILE, ""),
            ],
        ],
        &[("/a", "dir"), ("/a/y", "0")],
    );
    expect(&[&[("d/x", FILE, "")], &[(".wh.d", FILE, "")]], &[]);
    expect(
        &[
            &[("d/x", FILE, "")],
            &[("d/y", FILE, ""), (".wh.d", FILE, "")],
        ],
        &[("/d", "dir"), ("/d/y", "0")],
    );
}

#[test]
fn folders_keep_their_content_and_take_new_attributes() {
    let tree = tree(&[&[("a/x", FILE, "")], &[("a", DIR, "")]]).unwrap();
    let folder = tree.lookup(b"a", false).unwrap().unwrap();
    let meta = tree.get(folder).meta;
    assert_eq!(
        (meta.permissions, meta.uid, meta.gid, meta.mtime_s),
        (0o640, 5, 6, 7)
    );
    assert!(tree.lookup(b"/a/x", false).unwrap().is_some());
}

#[test]
fn links_are_followed_inside_of_the_image() {
    expect(
        &[
            &[
                ("usr/lib/x", FILE, ""),
                ("lib", LINK, "usr/lib"),
                ("abs", LINK, "/usr/./lib/"),
            ],
            &[
                ("lib/y", FILE, ""),
                ("abs/z", FILE, ""),
                ("lib/.wh.x", FILE, ""),
            ],
        ],
        &[
            ("/usr", "dir"),
            ("/usr/lib", "dir"),
            ("/usr/lib/y", "0"),
            ("/usr/lib/z", "0"),
            ("/lib", "> usr/lib"),
            ("/abs", "> /usr/./lib/"),
        ],
    );
    // Out of the root is the root; a folder a link leads to is made there.
    expect(
        &[&[("out", LINK, "../../../../etc"), ("out/passwd", FILE, "")]],
        &[
            ("/out", "> ../../../../etc"),
            ("/etc", "dir"),
            ("/etc/passwd", "0"),
        ],
    );
    // The last part is not followed: a file replaces a link.
    expect(&[&[("l", LINK, "x"), ("l", FILE, "1")]], &[("/l", "1")]);
}

#[test]
fn hard_links_share_the_file() {
    let tree = tree(&[
        &[("a", FILE, "1")],
        &[("b/c", HARD, "a"), ("d", HARD, "./b/c")],
    ])
    .unwrap();
    let find = |path: &[u8]| tree.lookup(path, false).unwrap().unwrap();
    assert_eq!(find(b"a"), find(b"b/c"));
    assert_eq!(find(b"a"), find(b"d"));
}

#[test]
fn what_is_wrong_is_said_with_its_name() {
    let long = format!("{}/x", "n".repeat(90));
    let cases: &[(&[Line<'_>], &str)] = &[
        (&[("../x", FILE, "")], "\"../x\": the path leads out"),
        (&[("a/../../x", FILE, "")], "leads out"),
        (&[("/../x", DIR, "")], "leads out"),
        (&[("x", HARD, "../../etc/passwd")], "leads out"),
        (&[("x", HARD, "nowhere")], "a file that is not there"),
        (
            &[("d/", DIR, ""), ("x", HARD, "d")],
            "hard link to a folder",
        ),
        (&[("f", FILE, ""), ("f/x", FILE, "")], "not a folder"),
        (
            &[("l", LINK, "l"), ("l/x", FILE, "")],
            "too many symbolic links",
        ),
        (
            &[("l", LINK, ""), (long.as_str(), FILE, "")],
            "a link to nothing",
        ),
        (
            &[("x", EntryType::new(b'Z'), "")],
            "of a kind that is unknown",
        ),
        (&[("", FILE, "")], ""),
    ];
    for (layer, part) in cases {
        match tree(&[layer]) {
            Ok(_) => panic!("{part}: accepted"),
            Err(error) => assert!(error.to_string().contains(part), "{part}: {error}"),
        }
    }
    let whole = archive(&[("x", FILE, "content")]);
    for cut in [1, 511, 515] {
        let mut image = Writer::new(Cursor::new(Vec::new())).unwrap();
        let result = apply(
            &whole[..cut],
            Whiteouts::Apply,
            &mut Tree::default(),
            &mut image,
        );
        assert!(result.is_err(), "cut at {cut}");
    }
}

#[test]
fn depth_is_bounded() {
    // Each link leads deeper than a path could.
    let mut lines = vec![("0".to_owned(), DIR, String::new())];
    let deep = "d/".repeat(40);
    for number in 0..100 {
        lines.push((format!("{number}/{deep}"), DIR, String::new()));
        let target = format!("{number}/{}", deep.trim_end_matches('/'));
        lines.push(((number + 1).to_string(), LINK, target));
    }
    let lines: Vec<Line<'_>> = lines
        .iter()
        .map(|(a, b, c)| (a.as_str(), *b, c.as_str()))
        .collect();
    let error = tree(&[&lines]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("too deep") || text.contains("too many symbolic links"),
        "{text}"
    );
}

/// What GNU tar writes is read with every attribute, in each of its formats.
#[test]
fn archives_of_gnu_tar() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let long = "l".repeat(200);
    std::fs::create_dir_all(root.join(&long).join(&long)).unwrap();
    let file = root.join(&long).join(&long).join("file");
    std::fs::write(&file, vec![1; 10_000]).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4711)).unwrap();
    xattr::set(&file, "user.key", b"value").unwrap();
    std::os::unix::fs::symlink("t".repeat(150), root.join("link")).unwrap();
    std::fs::hard_link(&file, root.join("hard")).unwrap();
    for format in ["gnu", "pax", "posix"] {
        let packed = std::process::Command::new("tar")
            .args([&format!("--format={format}"), "--xattrs", "-cf", "-", "-C"])
            .arg(&root)
            .arg(".")
            .output();
        let packed = packed.unwrap();
        assert!(
            packed.status.success(),
            "{}",
            String::from_utf8_lossy(&packed.stderr)
        );
        let mut image = Writer::new(Cursor::new(Vec::new())).unwrap();
        let mut tree = Tree::default();
        apply(
            packed.stdout.as_slice(),
            Whiteouts::Keep,
            &mut tree,
            &mut image,
        )
        .unwrap();
        let at = tree
            .lookup(format!("{long}/{long}/file").as_bytes(), false)
            .unwrap()
            .unwrap();
        let inode = tree.get(at);
        let meta = file.metadata().unwrap();
        assert_eq!(
            (inode.meta.permissions, inode.meta.uid),
            (0o4711, meta.uid()),
            "{format}"
        );
        assert_eq!(inode.meta.mtime_s, meta.mtime());
        if format != "gnu" {
            assert_eq!(i64::from(inode.meta.mtime_ns), meta.mtime_nsec());
            assert_eq!(
                inode.xattrs.get(b"user.key".as_slice()),
                Some(&b"value".to_vec())
            );
        }
        assert_eq!(tree.lookup(b"hard", false).unwrap(), Some(at));
        let link = tree.lookup(b"link", false).unwrap().unwrap();
        assert_eq!(tree.get(link).kind, Kind::Symlink(vec![b't'; 150]));
    }
}
