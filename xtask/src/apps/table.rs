// SPDX-License-Identifier: Apache-2.0

//! The applications: what is run, when it is ready, and how it is loaded. A new one is a row here and a recipe in
//! `images/`.

use crate::demo::probe::Ready;

/// An application that is compared.
pub(crate) struct App {
    pub(crate) name: &'static str,
    /// The recipe in `images/` whose root is used.
    pub(crate) image: &'static str,
    /// The program, as the image's entry point names it.
    pub(crate) program: &'static str,
    /// Its arguments, in the place of the image's command.
    pub(crate) arguments: &'static [&'static str],
    /// The port it listens on.
    pub(crate) port: u16,
    pub(crate) ready: Ready,
    /// The most a boot to the first answer may take; `None` where there is no goal, or only one against Linux.
    pub(crate) boot_goal_s: Option<f64>,
    pub(crate) loads: &'static [Load],
}

/// A load and what is wanted.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) tool: Tool,
    /// The least ratio to the Linux VM on one vCPU; `None` where there is no goal.
    pub(crate) goal: Option<f64>,
}

/// What makes the load.
pub(crate) enum Tool {
    /// `redis-benchmark -t TEST`; an empty name stands for all its tests, each a figure of its own.
    Redis {
        test: &'static str,
        connections: u32,
        pipeline: u32,
        requests: u32,
    },
    /// `wrk` on a path.
    Wrk {
        path: &'static str,
        connections: u32,
    },
}

/// Length of one run of wrk, seconds.
pub(crate) const WRK_SECONDS: u32 = 2;

/// All applications.
pub(crate) const APPS: &[App] = &[
    App {
        name: "redis",
        image: "redis",
        program: "/usr/bin/redis-server",
        arguments: REDIS_ARGUMENTS,
        port: 6379,
        ready: REDIS_READY,
        boot_goal_s: Some(0.4),
        loads: &[
            redis("set", 1, 1, 5_000, Some(2.0)),
            redis("get", 1, 1, 5_000, Some(2.0)),
            redis("set", 10, 1, 15_000, Some(1.7)),
            redis("get", 10, 1, 15_000, Some(1.7)),
            redis("set", 50, 1, 20_000, Some(1.8)),
            redis("get", 50, 1, 20_000, Some(1.8)),
            redis("set", 10, 10, 60_000, Some(1.3)),
            redis("get", 10, 10, 60_000, Some(1.3)),
        ],
    },
    App {
        name: "redis-all",
        image: "redis",
        program: "/usr/bin/redis-server",
        arguments: REDIS_ARGUMENTS,
        port: 6379,
        ready: REDIS_READY,
        boot_goal_s: None,
        loads: &[redis("", 10, 10, 10_000, None)],
    },
    App {
        name: "nginx",
        image: "nginx-bench",
        program: "/usr/sbin/nginx",
        arguments: &["-g", "daemon off; master_process off;"],
        port: 80,
        ready: Ready::Http("/64"),
        boot_goal_s: Some(0.4),
        loads: NGINX_LOADS,
    },
    // The same without sendfile and tcp_nopush.
    App {
        name: "nginx-plain",
        image: "nginx-bench",
        program: "/usr/sbin/nginx",
        arguments: &[
            "-g",
            "daemon off; master_process off;",
            "-c",
            "/etc/nginx/nginx-plain.conf",
        ],
        port: 80,
        ready: Ready::Http("/64"),
        boot_goal_s: Some(0.4),
        loads: NGINX_LOADS,
    },
    App {
        name: "todo-flask",
        image: "todo-python",
        program: "/usr/bin/python3",
        arguments: &[
            "/usr/bin/gunicorn",
            "-c",
            "/srv/todo/gunicorn.conf.py",
            "--chdir",
            "/srv/todo",
            "todo.with_flask:app",
        ],
        port: 8080,
        ready: Ready::Http("/todos"),
        boot_goal_s: None,
        loads: TODO_LOADS,
    },
    App {
        name: "todo-falcon",
        image: "todo-python",
        program: "/usr/bin/python3",
        arguments: &[
            "/usr/bin/gunicorn",
            "-c",
            "/srv/todo/gunicorn.conf.py",
            "--chdir",
            "/srv/todo",
            "todo.with_falcon:app",
        ],
        port: 8080,
        ready: Ready::Http("/todos"),
        boot_goal_s: None,
        loads: TODO_LOADS,
    },
    App {
        name: "todo-node",
        image: "todo-node",
        program: "/usr/local/bin/node",
        arguments: &["/app/main.js"],
        port: 8080,
        ready: Ready::Http("/todos"),
        boot_goal_s: None,
        loads: COMPILED_TODO_LOADS,
    },
    App {
        name: "todo-java",
        image: "todo-java",
        program: "/usr/lib/jvm/java-17-openjdk-amd64/bin/java",
        arguments: &["-jar", "/app/todo-java.jar"],
        port: 8080,
        ready: Ready::Http("/todos"),
        boot_goal_s: None,
        loads: COMPILED_TODO_LOADS,
    },
];

/// The to-do service on a run-time that compiles what runs often: some loads before those that have a goal, so that it
/// has done so.
const COMPILED_TODO_LOADS: &[Load] = &[
    wrk("GET /todos, first", "/todos", 10, None),
    wrk("GET /todos, second", "/todos", 10, None),
    wrk("GET /todos, third", "/todos", 10, None),
    wrk("GET /todos, fourth", "/todos", 10, None),
    wrk("GET /todos", "/todos", 1, Some(1.1)),
    wrk("GET /todos", "/todos", 10, Some(1.1)),
];

/// The to-do service in any language.
const TODO_LOADS: &[Load] = &[
    wrk("GET /todos", "/todos", 1, Some(1.1)),
    wrk("GET /todos", "/todos", 10, Some(1.1)),
];

const REDIS_ARGUMENTS: &[&str] = &["--protected-mode", "no", "--save", ""];

const REDIS_READY: Ready = Ready::Says {
    ask: "PING\r\n",
    answer: "+PONG\r\n",
};

/// The files of `images/nginx-bench` have their sizes as names.
const NGINX_LOADS: &[Load] = &[
    wrk("64 B", "/64", 1, Some(1.5)),
    wrk("64 B", "/64", 10, Some(3.0)),
    wrk("64 B", "/64", 40, Some(3.0)),
    wrk("256 B", "/256", 10, None),
    wrk("1 KiB", "/1024", 10, None),
    wrk("4 KiB", "/4096", 10, None),
    wrk("16 KiB", "/16384", 10, None),
    wrk("64 KiB", "/65536", 1, Some(1.5)),
    wrk("64 KiB", "/65536", 10, Some(1.5)),
    wrk("64 KiB", "/65536", 40, Some(1.5)),
    wrk("256 KiB", "/262144", 1, None),
    wrk("256 KiB", "/262144", 10, None),
];

const fn redis(
    test: &'static str,
    connections: u32,
    pipeline: u32,
    requests: u32,
    goal: Option<f64>,
) -> Load {
    Load {
        name: test,
        tool: Tool::Redis {
            test,
            connections,
            pipeline,
            requests,
        },
        goal,
    }
}

const fn wrk(name: &'static str, path: &'static str, connections: u32, goal: Option<f64>) -> Load {
    Load {
        name,
        tool: Tool::Wrk { path, connections },
        goal,
    }
}
