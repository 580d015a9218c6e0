// SPDX-License-Identifier: Apache-2.0
//! `coracle run`

use coracle_vmm::boot;
use coracle_vmm::command::shell_line;
use coracle_vmm::instance::now_s;
use coracle_vmm::supervise::{Mode, supervise};
use coracle_vmm::{Endpoint, Exit, Instance, Reason, State, Status, Store, command::Streams};

use crate::args::RunArgs;
use crate::error::Failure;
use crate::plan::{Plan, plan};
use crate::{bundle, detach, folders, output, volumes};

/// How often a random name may be taken before that is an error.
const NAME_TRIES: u32 = 8;

/// Runs the program; answers with its exit code, or 0 when detached.
pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let mut plan = plan(args)?;
    if let Some(warning) = &plan.accel_warning {
        eprintln!("coracle: warning: {warning}");
    }
    if args.dry_run {
        return dry_run(&mut plan);
    }
    let store = Store::new(&folders::state()?);
    let instance = take_name(&store, args, &mut plan)?;
    let volumes = plan.volumes.clone();
    let result = launch(&instance, plan, args);
    if result.is_err() {
        let _ = instance.remove();
        for volume in volumes {
            let _ = volume.remove(); // or it was not made yet
        }
    }
    result
}

fn take_name(store: &Store, args: &RunArgs, plan: &mut Plan) -> Result<Instance, Failure> {
    let mut tries = 1;
    loop {
        match store.create(&plan.spec.name) {
            Err(coracle_vmm::instance::StoreError::NameInUse { .. })
                if args.name.is_none() && tries < NAME_TRIES =>
            {
                tries += 1;
                plan.spec.name = crate::plan::random_name(&plan.bundle.config.process.args[0]);
            }
            other => return Ok(other?),
        }
    }
}

fn launch(instance: &Instance, mut plan: Plan, args: &RunArgs) -> Result<u8, Failure> {
    volumes::link_files(&mut plan.spec.shares, &instance.shares())?;
    plan.spec.bundle = bundle::write(&plan, &instance.bundle())?;
    for volume in &plan.volumes {
        volume.make_anonymous()?;
    }
    boot::prepare(&mut plan.spec, &instance.boot_rom())?;
    let mut state = State {
        status: Status::Created,
        image: plan.image,
        stop_signal: plan.stop_signal,
        command: plan.bundle.config.process.args,
        created_s: now_s(),
        started_s: None,
        finished_s: None,
        remove: args.rm,
        volumes: plan.volumes,
        read_only: args.read_only,
        accel_warning: plan.accel_warning,
        monitor: coracle_vmm::process::ProcessId::current(),
        vmm: None,
        boot_ns: None,
        boot_laps: Vec::new(),
        exit: None,
        spec: plan.spec,
    };
    instance.save(&state)?;
    if args.detach {
        detach::start(instance)?;
        output::line(&instance.name);
        return Ok(0);
    }
    let exit = supervise(instance, &mut state, Mode::Foreground, &mut || {})?;
    tell(&instance.name, &exit, args.trace);
    Ok(exit.code)
}

/// Says on standard error what an exit code alone does not say: the report of a crash, and last the reason in one line.
/// The trace has shown the report already.
fn tell(name: &str, exit: &Exit, is_traced: bool) {
    if exit.reason != Reason::Exit || exit.detail.is_some() {
        let is_new = |line: &&String| !is_traced && exit.detail.as_ref() != Some(line);
        for line in exit.report.iter().filter(is_new) {
            eprintln!("{line}");
        }
        let detail = exit.detail.as_deref().unwrap_or("no details");
        eprintln!("coracle: {name}: {}: {detail}", exit.reason);
    }
}

/// Writes the bundle into the cache and prints a command line that runs it from a terminal.
fn dry_run(plan: &mut Plan) -> Result<u8, Failure> {
    let dir = folders::dry_run()?;
    std::fs::create_dir_all(&dir)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", dir.display())))?;
    volumes::link_files(&mut plan.spec.shares, &dir.join("shares"))?;
    let _ = std::fs::remove_dir_all(dir.join("volumes"));
    for volume in &plan.volumes {
        volume.make_anonymous()?;
    }
    plan.spec.bundle = bundle::write(plan, &dir.join("bundle.cpio"))?;
    boot::prepare(&mut plan.spec, &dir.join("boot.rom"))?;
    let streams = Streams {
        console: Endpoint::Stdio,
        control: Endpoint::Listen(dir.join("control.sock")),
        serial: Endpoint::File(dir.join("serial.log")),
    };
    output::line(&shell_line(&plan.spec.qemu, &plan.spec.arguments(&streams)));
    Ok(0)
}
