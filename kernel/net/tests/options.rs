// SPDX-License-Identifier: Apache-2.0
//! Names, options and requests: who may bind what, what can be set and read back, and what is refused.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use common::*;
use coracle_core::file::File;
use coracle_core::{Errno, PollEvents};
use coracle_net::{Shutdown, SocketAddress, SocketFile};
use std::net::Ipv4Addr;

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

#[test]
fn ports_are_shared_by_agreement_only() {
    let world = World::plain();
    // (first reuses address, port), (second ...), first listens; may the second bind?
    let cases = [
        ((0, 0), (0, 0), false, false),
        ((1, 0), (1, 0), false, true),
        ((1, 0), (1, 0), true, false),
        ((1, 0), (0, 0), false, false),
        ((0, 1), (0, 1), true, true),
        ((0, 1), (0, 0), true, false),
    ];
    for (n, (one, two, listens, allowed)) in cases.into_iter().enumerate() {
        let port = 1000 + n as u16;
        let sockets = [tcp(&world.a), tcp(&world.a)];
        for (socket, (address, share)) in sockets.iter().zip([one, two]) {
            set(socket, 1, 2, address);
            set(socket, 1, 15, share);
        }
        sockets[0].bind(&v4(ANY, port)).unwrap();
        if listens {
            sockets[0].listen(1).unwrap();
        }
        let second = sockets[1].bind(&v4(A, port));
        assert_eq!(second.is_ok(), allowed, "case {n}: {second:?}");
        if !allowed {
            assert_eq!(second, Err(Errno::EADDRINUSE));
            sockets[0].on_release();
            assert_eq!(
                sockets[1].bind(&v4(A, port)),
                Ok(()),
                "case {n} after close"
            );
        }
    }
    let socket = tcp(&world.a);
    assert_eq!(
        socket.bind(&v4(Ipv4Addr::new(9, 9, 9, 9), 1)),
        Err(Errno::EADDRNOTAVAIL)
    );
    assert_eq!(
        socket.bind(&SocketAddress::Unspecified),
        Err(Errno::EAFNOSUPPORT)
    );
    socket.bind(&v4(A, 0)).unwrap();
    assert_eq!(socket.bind(&v4(A, 0)), Err(Errno::EINVAL));
    let SocketAddress::V4(name) = socket.local_address().unwrap() else {
        panic!("an IPv4 name");
    };
    assert!((32_768..61_000).contains(&name.port()) && *name.ip() == A);
}

#[test]
fn a_shared_port_spreads_connections() {
    let world = World::plain();
    let listeners: Vec<_> = (0..4)
        .map(|_| {
            let listener = tcp(&world.b);
            set(&listener, 1, 15, 1);
            listener.bind(&v4(ANY, 80)).unwrap();
            listener.listen(128).unwrap();
            listener
        })
        .collect();
    let clients: Vec<_> = (0..200).map(|_| tcp(&world.a)).collect();
    for client in &clients {
        assert_eq!(client.connect(&v4(B, 80)), Err(Errno::EINPROGRESS));
    }
    assert!(world.run_until(5 * SECOND, || {
        clients.iter().all(|c| c.poll().contains(PollEvents::OUT))
    }));
    world.run_for(100 * MS);
    let counts = listeners
        .iter()
        .map(|l| std::iter::from_fn(|| l.accept().ok()).count());
    let counts: Vec<usize> = counts.collect();
    assert_eq!(counts.iter().sum::<usize>(), 200);
    assert!(counts.iter().all(|c| *c >= 25), "{counts:?}");
}

#[test]
fn options_read_back_what_linux_would_say() {
    let world = World::plain();
    let socket = tcp(&world.a);
    // (level, name, default, value, read back)
    let cases = [
        (1, 2, 0, 1, 1),                  // SO_REUSEADDR
        (1, 15, 0, 7, 1),                 // SO_REUSEPORT
        (1, 9, 0, 1, 1),                  // SO_KEEPALIVE
        (1, 8, 131_072, 50_000, 100_000), // SO_RCVBUF
        (1, 7, 131_072, 1, 2304),         // SO_SNDBUF: not below the least
        (6, 1, 0, 1, 1),                  // TCP_NODELAY
        (6, 3, 0, 1, 1),                  // TCP_CORK
        (6, 4, 7200, 60, 60),             // TCP_KEEPIDLE
        (6, 5, 75, 6, 6),                 // TCP_KEEPINTVL
        (6, 6, 9, 3, 3),                  // TCP_KEEPCNT
        (6, 18, 0, 5000, 5000),           // TCP_USER_TIMEOUT
        (0, 2, 64, 12, 12),               // IP_TTL
        (0, 1, 0, 16, 16),                // IP_TOS
    ];
    for (level, name, default, value, back) in cases {
        assert_eq!(
            get(&socket, level, name),
            default,
            "default of {level}/{name}"
        );
        set(&socket, level, name, value);
        assert_eq!(get(&socket, level, name), back, "{level}/{name}");
    }
    assert_eq!(get(&socket, 1, 3), 1); // SO_TYPE
    assert_eq!(get(&socket, 1, 38), 6); // SO_PROTOCOL
    assert_eq!(get(&socket, 1, 39), 2); // SO_DOMAIN
    assert_eq!(get(&socket, 1, 30), 0); // SO_ACCEPTCONN
    assert_eq!(socket.set_option(6, 1, &[1]), Err(Errno::EINVAL));
    assert_eq!(
        socket.set_option(6, 4, &0i32.to_ne_bytes()),
        Err(Errno::EINVAL)
    );
    assert_eq!(socket.set_option(1, 9999, &[0; 4]), Err(Errno::ENOPROTOOPT));
    assert_eq!(
        socket.get_option(77, 1, &mut [0; 4]),
        Err(Errno::ENOPROTOOPT)
    );
    // A time-out: half a second, and microseconds out of range.
    let timeval = |s: i64, us: i64| [s.to_ne_bytes(), us.to_ne_bytes()].concat();
    socket.set_option(1, 20, &timeval(0, 500_000)).unwrap();
    assert_eq!(socket.receive_timeout_ns(), Some(500_000_000));
    assert_eq!(
        socket.set_option(1, 21, &timeval(0, 1_000_000)),
        Err(Errno::EDOM)
    );
    assert_eq!(socket.send_timeout_ns(), None);
    let mut info = [0; 104];
    assert_eq!(socket.get_option(6, 11, &mut info), Ok(104));
    assert_eq!(info[0], 7); // TCP_CLOSE
}

#[test]
fn calls_in_the_wrong_state_are_refused_as_on_linux() {
    let world = World::plain();
    let fresh = tcp(&world.a);
    assert_eq!(receive(&fresh, 1), Err(Errno::ENOTCONN));
    assert_eq!(send(&fresh, b"x"), Err(Errno::EPIPE));
    assert_eq!(fresh.accept().err(), Some(Errno::EINVAL));
    assert_eq!(fresh.peer_address(), Err(Errno::ENOTCONN));
    let both = Shutdown {
        read: true,
        write: true,
    };
    assert_eq!(fresh.shutdown(both), Err(Errno::ENOTCONN));
    let listener = listen(&world.a, 80);
    assert_eq!(listener.connect(&v4(B, 1)), Err(Errno::EISCONN));
    assert_eq!(receive(&listener, 1), Err(Errno::ENOTCONN));
    assert_eq!(listener.accept().err(), Some(Errno::EAGAIN));
    listener.shutdown(both).unwrap();
    assert_eq!(listener.accept().err(), Some(Errno::EINVAL));
    let datagrams = udp(&world.a);
    assert_eq!(send(&datagrams, b"x"), Err(Errno::EDESTADDRREQ));
    assert_eq!(datagrams.listen(1), Err(Errno::EOPNOTSUPP));
    assert_eq!(datagrams.accept().err(), Some(Errno::EOPNOTSUPP));
    assert_eq!(
        send_to(&datagrams, &[0; 65_508], &v4(B, 1)),
        Err(Errno::EMSGSIZE)
    );
    assert_eq!(send_to(&datagrams, b"x", &v4(B, 0)), Err(Errno::EINVAL));
    let new = |d, k, p| SocketFile::new(&world.a, d, k, p).err();
    assert_eq!(new(99, 1, 0), Some(Errno::EAFNOSUPPORT));
    assert_eq!(new(2, 11, 0), Some(Errno::EINVAL));
    assert_eq!(new(2, 1, 17), Some(Errno::EPROTONOSUPPORT));
    assert_eq!(new(2, 4, 0), Some(Errno::ESOCKTNOSUPPORT));
}

#[test]
fn requests_about_interfaces() {
    let world = World::plain();
    let socket = udp(&world.a);
    let ask = |command: u32, name: &[u8]| {
        let mut request = [0u8; 40];
        request[..name.len()].copy_from_slice(name);
        let result = socket.ioctl(command, request.as_mut_ptr() as usize);
        (result, request)
    };
    let (result, answer) = ask(0x8915, b"eth0"); // SIOCGIFADDR
    assert_eq!(
        (result, &answer[16..24]),
        (Ok(0), &[2, 0, 0, 0, 10, 0, 0, 1][..])
    );
    let (_, answer) = ask(0x891b, b"eth0"); // SIOCGIFNETMASK
    assert_eq!(answer[20..24], [255, 255, 255, 0]);
    let (_, answer) = ask(0x8933, b"eth0"); // SIOCGIFINDEX
    assert_eq!(answer[16..20], 2i32.to_ne_bytes());
    let (_, answer) = ask(0x8913, b"lo"); // SIOCGIFFLAGS
    assert_eq!(answer[16..18], 0x49u16.to_ne_bytes());
    let (_, answer) = ask(0x8927, b"eth0"); // SIOCGIFHWADDR
    assert_eq!(answer[16..24], [1, 0, 2, 0, 0, 0, 0, 1]);
    assert_eq!(ask(0x8915, b"eth7").0, Err(Errno::ENODEV));
    assert_eq!(ask(0x1234, b"").0, Err(Errno::ENOTTY));
    // FIONREAD
    let server = udp(&world.b);
    server.bind(&v4(B, 7)).unwrap();
    send_to(&socket, b"12345", &v4(B, 7)).unwrap();
    assert!(world.run_until(SECOND, || server.poll().contains(PollEvents::IN)));
    let mut count = 0i32;
    assert_eq!(server.ioctl(0x541b, &raw mut count as usize), Ok(0));
    assert_eq!(count, 5);
}
