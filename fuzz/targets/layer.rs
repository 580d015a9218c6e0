// SPDX-License-Identifier: Apache-2.0
//! Layers of images, compressed or not: whatever is accepted can be written as a root, and every file of that root is read
//! back as long as the layer said.

use std::io::{Cursor, Read};

use coracle_imager::erofs::{Data, Writer};
use coracle_imager::image::decompress::decompress;
use coracle_imager::image::layer::{Whiteouts, apply};
use coracle_imager::tree::{Kind, Tree};

/// Most bytes that are taken out of the input: a few bytes can stand for many.
const UNCOMPRESSED_MAX: u64 = 1 << 20;

pub(crate) fn run(data: &[u8]) {
    let mut image = Writer::new(Cursor::new(Vec::new())).expect("memory takes everything");
    let mut tree = Tree::default();
    // The second time everything is there already.
    for _ in 0..2 {
        let Ok(from) = decompress(data) else { return };
        let from = from.take(UNCOMPRESSED_MAX);
        if apply(from, Whiteouts::Apply, &mut tree, &mut image).is_err() {
            return;
        }
    }
    // Nothing in the tree has a name that leads elsewhere, and no file is larger than the input.
    let mut todo = vec![Tree::<Data>::ROOT];
    while let Some(folder) = todo.pop() {
        for (name, child) in tree.children(folder) {
            assert!(!name.is_empty() && name != b"." && name != b"..");
            assert!(!name.contains(&b'/') && !name.contains(&0) && name.len() <= 255);
            match &tree.get(child).kind {
                Kind::Directory(_) => todo.push(child),
                Kind::File(content) => assert!(content.size() <= UNCOMPRESSED_MAX),
                _ => {}
            }
        }
    }
    let (image, size) = image.finish(&tree).expect("memory takes everything");
    assert_eq!(image.into_inner().len() as u64, size);
}
