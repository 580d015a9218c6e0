// SPDX-License-Identifier: Apache-2.0
//! `coracle inspect`

use std::os::unix::fs::PermissionsExt;

use coracle_vmm::{Instance, State, Status, Store};
use serde::Serialize;

use crate::args::{Format, InspectArgs};
use crate::error::Failure;
use crate::ps::View;
use crate::{folders, images, output};

/// Shows instances, and images for names that no instance has.
pub(crate) fn inspect(args: &InspectArgs) -> Result<u8, Failure> {
    let store = Store::new(&folders::state()?);
    let mut views = Vec::new();
    let mut securities = Vec::new();
    let mut images = Vec::new();
    for name in &args.names {
        let instance = match store.open(name) {
            Ok(instance) => instance,
            Err(error) => {
                let image = (!args.security).then(|| images::view(name));
                let image = image.transpose()?.flatten();
                images.push(image.ok_or(error)?);
                continue;
            }
        };
        let state = instance.load()?;
        if args.security {
            securities.push(Security::of(&instance, &state));
        }
        views.push(View {
            name: instance.name,
            dir: instance.dir,
            state,
        });
    }
    match (args.output, args.security) {
        (Format::Name, _) => output::print(
            &args
                .names
                .iter()
                .map(|name| format!("{name}\n"))
                .collect::<String>(),
        ),
        (Format::Json, true) => output::json(&securities)?,
        (Format::Json, false) if images.is_empty() => output::json(&views)?,
        (Format::Json, false) if views.is_empty() => output::json(&images)?,
        (Format::Json, false) => output::json(&(views, images))?,
        (Format::Table, true) => print_table(&securities)?,
        (Format::Table, false) => {
            print_table(&views)?;
            print_table(&images)?;
        }
    }
    Ok(0)
}

/// What keeps guest and host apart. What can be read from the running VMM is read there.
#[derive(Debug, Serialize)]
struct Security {
    name: String,
    /// Whether QEMU's system-call filter is in force; `None` when it does not run.
    vmm_seccomp: Option<bool>,
    /// Whether the VMM can gain privileges by executing a program.
    vmm_no_new_privileges: Option<bool>,
    /// User the VMM runs as.
    vmm_user: Option<u32>,
    /// Permission bits of the control socket, octal.
    control_socket_mode: Option<String>,
    /// Permission bits of the instance's folder, octal.
    folder_mode: Option<String>,
    /// Whether the VMM dies with the process that watches it.
    vmm_bound_to_monitor: bool,
    /// Whether the guest may change its root; the changes are gone with the instance in any case.
    guest_root_read_only: bool,
    /// What the kernel does in every guest.
    guest_kernel: [&'static str; 4],
    /// Interfaces of the guest.
    networks: Vec<String>,
    /// Host ports that lead into the guest.
    ports: Vec<String>,
}

impl Security {
    fn of(instance: &Instance, state: &State) -> Self {
        let running = (state.status == Status::Running)
            .then_some(state.vmm)
            .flatten();
        let proc = running
            .and_then(|vmm| std::fs::read_to_string(format!("/proc/{}/status", vmm.pid)).ok());
        let field = |name: &str| {
            let line = proc
                .as_ref()?
                .lines()
                .find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u32>().ok()
        };
        let mode = |path: &std::path::Path| {
            let mode = path.metadata().ok()?.permissions().mode();
            Some(format!("{:04o}", mode & 0o7777))
        };
        Self {
            name: instance.name.clone(),
            vmm_seccomp: field("Seccomp:").map(|mode| mode == 2),
            vmm_no_new_privileges: field("NoNewPrivs:").map(|set| set == 1),
            vmm_user: field("Uid:"),
            control_socket_mode: mode(&instance.control_socket()),
            folder_mode: mode(&instance.dir),
            vmm_bound_to_monitor: true,
            guest_root_read_only: state.read_only,
            guest_kernel: [
                "address space layout randomised",
                "no page writable and executable (W^X)",
                "guard pages below stacks",
                "null page unmapped",
            ],
            networks: state
                .spec
                .networks
                .iter()
                .map(ToString::to_string)
                .collect(),
            ports: state.spec.ports.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The same as the JSON, one line a value.
fn print_table(values: &[impl Serialize]) -> Result<(), Failure> {
    for value in values {
        let value = serde_json::to_value(value).map_err(Failure::new)?;
        let mut rows = Vec::new();
        flatten("", &value, &mut rows);
        output::table(&["KEY", "VALUE"], rows);
    }
    Ok(())
}

fn flatten(prefix: &str, value: &serde_json::Value, rows: &mut Vec<Vec<String>>) {
    let below = |key: &str| {
        if prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{prefix}.{key}")
        }
    };
    match value {
        serde_json::Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| flatten(&below(key), value, rows)),
        serde_json::Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                flatten(&below(&at.to_string()), value, rows);
            }
        }
        serde_json::Value::Null => {}
        serde_json::Value::String(text) => rows.push(vec![prefix.to_owned(), text.clone()]),
        other => rows.push(vec![prefix.to_owned(), other.to_string()]),
    }
}
