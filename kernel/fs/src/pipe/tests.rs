// SPDX-License-Identifier: Apache-2.0
//! pipe(7), line by line.

use super::*;
use coracle_core::file::OpenFile;

fn read(end: &PipeEnd, len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; len];
    let n = end.read(&mut IoDst::kernel(&mut out))?;
    out.truncate(n);
    Ok(out)
}

fn write(end: &PipeEnd, bytes: &[u8]) -> Result<usize> {
    end.write(&mut IoSrc::kernel(bytes))
}

const IN: PollEvents = PollEvents::IN.union(PollEvents::RDNORM);
const OUT: PollEvents = PollEvents::OUT.union(PollEvents::WRNORM);

#[test]
fn bytes_pass_and_the_ends_notice_each_other() {
    let (reader, writer) = Pipe::pair();
    let (r, w) = (
        OpenFile::new(reader.clone(), g::O_RDONLY),
        OpenFile::new(writer.clone(), g::O_WRONLY),
    );
    assert_eq!((reader.poll(), writer.poll()), (PollEvents::empty(), OUT));
    assert_eq!(read(&reader, 5), Err(Errno::EAGAIN));
    assert_eq!(read(&reader, 0), Ok(vec![]));
    assert_eq!(write(&writer, b"hello"), Ok(5));
    assert_eq!((reader.poll(), reader.waiting()), (IN, 5));
    assert_eq!(read(&reader, 3), Ok(b"hel".to_vec()));
    drop(w);
    assert_eq!(reader.poll(), IN | PollEvents::HUP);
    assert_eq!(read(&reader, 9), Ok(b"lo".to_vec()));
    assert_eq!(
        (read(&reader, 9), reader.poll()),
        (Ok(vec![]), PollEvents::HUP)
    );
    drop(r);
    let (reader, writer) = Pipe::pair();
    drop(OpenFile::new(reader, g::O_RDONLY));
    assert_eq!(write(&writer, b"x"), Err(Errno::EPIPE));
    assert!(writer.poll().contains(PollEvents::ERR));
}

#[test]
fn small_writes_are_whole_and_large_ones_may_be_short() {
    let (reader, writer) = Pipe::pair();
    assert_eq!(write(&writer, &[1; 100_000]), Ok(DEFAULT_CAPACITY));
    assert_eq!(write(&writer, b"x"), Err(Errno::EAGAIN));
    assert_eq!(writer.poll(), PollEvents::empty());
    read(&reader, 100).unwrap();
    assert_eq!(write(&writer, &[2; 101]), Err(Errno::EAGAIN));
    assert_eq!(write(&writer, &[2; PIPE_BUF]), Err(Errno::EAGAIN));
    assert_eq!(write(&writer, &[2; PIPE_BUF + 1]), Ok(100));
    read(&reader, PIPE_BUF).unwrap();
    assert_eq!(writer.poll(), OUT);
    assert_eq!(write(&writer, &[3; PIPE_BUF]), Ok(PIPE_BUF));
}

#[test]
fn capacity_changes() {
    let (reader, writer) = Pipe::pair();
    assert_eq!(writer.capacity(), 65536);
    assert_eq!(writer.set_capacity(5000), Ok(8192));
    assert_eq!(write(&writer, &[0; 9000]), Ok(8192));
    assert_eq!(writer.set_capacity(1), Err(Errno::EBUSY));
    assert_eq!(reader.set_capacity(MAX_CAPACITY), Ok(MAX_CAPACITY));
    assert_eq!(reader.set_capacity(MAX_CAPACITY + 1), Err(Errno::EPERM));
    assert_eq!(write(&writer, &[0; 9000]), Ok(9000));
    assert_eq!(read(&reader, 20_000).unwrap().len(), 8192 + 9000);
    assert_eq!(writer.set_capacity(0), Ok(4096));
}

#[test]
fn named_pipes_wait_for_both_ends() {
    let pipe = Pipe::new();
    let end = |flags| {
        let file = pipe.open_named(flags).unwrap();
        OpenFile::new(file, flags)
    };
    let came = |open: &OpenFile| open.downcast::<PipeEnd>().unwrap().peer_came();
    assert!(matches!(
        pipe.open_named(g::O_WRONLY | g::O_NONBLOCK),
        Err(Errno::ENXIO)
    ));
    let reader = end(g::O_RDONLY);
    assert!(!came(&reader));
    // Nobody has written yet: the end of the file, but no hang-up.
    assert_eq!(reader.read(&mut IoDst::kernel(&mut [0])), Ok(0));
    assert_eq!(reader.file().poll(), PollEvents::empty());
    let writer = end(g::O_WRONLY);
    assert!(came(&reader) && came(&writer));
    writer.write(&mut IoSrc::kernel(b"lost")).unwrap();
    drop(writer);
    assert!(came(&reader), "a writer that came and left is enough");
    assert!(reader.file().poll().contains(PollEvents::HUP));
    drop(reader);
    let both = end(g::O_RDWR);
    assert!(came(&both));
    assert_eq!(both.read(&mut IoDst::kernel(&mut [0])), Err(Errno::EAGAIN));
}

#[test]
fn bytes_arrive_in_order_between_cpus() {
    let (reader, writer) = Pipe::pair();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut sent = 0u32;
            while sent < 50_000 {
                match write(&writer, &sent.to_ne_bytes()) {
                    Ok(_) => sent += 1,
                    Err(_) => std::thread::yield_now(),
                }
            }
        });
        let mut expected = 0u32;
        while expected < 50_000 {
            // Multiples of four in, so whole numbers out.
            let Ok(bytes) = read(&reader, 1000) else {
                std::thread::yield_now();
                continue;
            };
            for number in bytes.chunks(4) {
                assert_eq!(number, expected.to_ne_bytes());
                expected += 1;
            }
        }
    });
}
