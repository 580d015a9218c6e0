// SPDX-License-Identifier: Apache-2.0
//! The queue by itself; what the name space reports is compared with Linux in `tests/abi/inotify.c`.

use alloc::vec;

use super::*;
use crate::tmpfs::TmpFs;

fn directory() -> Arc<dyn Inode> {
    use crate::vfs::FileSystem;
    TmpFs::new(1 << 20, 0o755).root()
}

fn read(file: &Inotify, room: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; room];
    let got = file.read(&mut IoDst::kernel(&mut out))?;
    out.truncate(got);
    Ok(out)
}

#[test]
fn events_are_read_whole_and_in_order() {
    let (file, inode) = (Inotify::new().unwrap(), directory());
    let number = file
        .watch(inode.clone(), g::IN_CREATE, Existing::Replace)
        .unwrap();
    assert_eq!(read(&file, 100), Err(Errno::EAGAIN));
    file.tell(&inode, g::IN_DELETE, 0, b"not asked for");
    assert_eq!(file.poll(), PollEvents::empty());
    file.tell(&inode, g::IN_CREATE, 0, b"a");
    file.tell(&inode, g::IN_CREATE, 0, b"a");
    file.tell(&inode, g::IN_CREATE, 7, b"sixteen--letters");
    assert_eq!(file.waiting(), 32 + 48);
    assert_eq!(read(&file, 31), Err(Errno::EINVAL));
    let first = read(&file, 79).unwrap();
    assert_eq!(first.len(), 32);
    assert_eq!(first[..4], number.to_ne_bytes());
    assert_eq!(first[12..20], [16, 0, 0, 0, b'a', 0, 0, 0]);
    let second = read(&file, 79).unwrap();
    assert_eq!((second.len(), second[8], second[12]), (48, 7, 32));
}

#[test]
fn a_full_queue_ends_with_one_word_of_it() {
    let (file, inode) = (Inotify::new().unwrap(), directory());
    file.watch(inode.clone(), g::IN_ALL_EVENTS, Existing::Replace)
        .unwrap();
    for i in 0..MAX_EVENTS + 10 {
        file.tell(&inode, g::IN_OPEN, low_u32(u64_from(i)), b"");
    }
    assert_eq!(file.waiting(), (MAX_EVENTS + 1) * HEADER);
}

#[test]
fn watches_are_joined_replaced_and_removed() {
    let (file, inode) = (Inotify::new().unwrap(), directory());
    let number = file
        .watch(inode.clone(), g::IN_CREATE, Existing::Refuse)
        .unwrap();
    let again = |existing| file.watch(inode.clone(), g::IN_DELETE, existing);
    assert_eq!(again(Existing::Refuse), Err(Errno::EEXIST));
    assert_eq!(again(Existing::Add), Ok(number));
    file.tell(&inode, g::IN_CREATE, 0, b"a");
    assert_eq!(again(Existing::Replace), Ok(number));
    file.tell(&inode, g::IN_CREATE, 0, b"b");
    assert_eq!(file.remove(number), Ok(()));
    assert_eq!(file.remove(number), Err(Errno::EINVAL));
    assert_eq!(read(&file, 1000).unwrap().len(), 32 + 16);
}
