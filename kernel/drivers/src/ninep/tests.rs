// SPDX-License-Identifier: Apache-2.0
//! Messages through a device in memory.

use super::*;
use crate::testing::FakeTransport;

fn message(request: &[u8], room: usize) -> Message {
    Message {
        request: request.to_vec(),
        answer: vec![0; room],
        ..Message::default()
    }
}

fn device(answer: &'static [u8]) -> FakeTransport {
    FakeTransport::new(9, MOUNT_TAG | feature::EVENT_IDX, b"\x04\x00data", &[128]).on_notify(
        move |device, _| {
            if !answer.is_empty() {
                device.queue(0).answer(answer);
            }
        },
    )
}

#[test]
fn an_answer_finds_its_message() {
    let share = VirtioShare::new(Arc::new(device(b"0123456789abcdef"))).unwrap();
    assert_eq!((share.tag(), share.most_pages()), ("data", 32));
    let mut asked = message(b"what", 11);
    asked.received = (vec![Page::zeroed().unwrap()], 5);
    let (answered, written) = share.exchange(asked).unwrap();
    assert_eq!((&answered.answer[..], written), (&b"0123456789a"[..], 16));
    let mut data = [0; 6];
    answered.received.0[0].read(0, &mut data);
    assert_eq!(&data, b"bcdef\0");
}

#[test]
fn what_cannot_be_a_chain_is_refused() {
    let share = VirtioShare::new(Arc::new(device(b"x"))).unwrap();
    let mut long = message(b"m", 1);
    long.sent = (vec![Page::zeroed().unwrap()], 4097);
    for wrong in [message(b"", 1), message(b"m", 0), long] {
        assert!(share.exchange(wrong).is_err());
    }
    assert!(share.post(message(b"m", 1)));
}

#[test]
fn a_lying_device_is_an_error() {
    let transport = Arc::new(device(b""));
    let share = VirtioShare::new(transport.clone()).unwrap();
    std::thread::scope(|s| {
        let asked = s.spawn(|| share.exchange(message(b"m", 4)).map(|_| ()));
        while transport.device().queue(0).pop().is_none() {
            std::thread::yield_now();
        }
        transport.device().queue(0).push_raw(77, 1);
        assert_eq!(asked.join().unwrap(), Err(Errno::EIO));
    });
    assert!(share.exchange(message(b"m", 4)).is_err());
    assert!(!share.post(message(b"m", 4)));
}

#[test]
fn a_device_without_a_name_is_refused() {
    let nameless = FakeTransport::new(9, 0, b"\x04\x00data", &[128]);
    assert!(VirtioShare::new(Arc::new(nameless)).is_err());
    let cut = FakeTransport::new(9, MOUNT_TAG, b"\xff\x00data", &[128]);
    assert!(VirtioShare::new(Arc::new(cut)).is_err());
}
