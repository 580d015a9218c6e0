// SPDX-License-Identifier: Apache-2.0
//! `coracle stats`

use std::time::{Duration, Instant};

use coracle_vmm::client::Connection;
use coracle_vmm::{Event, Op, Store};

use crate::args::{Format, StatsArgs};
use crate::error::Failure;
use crate::{folders, output};

/// How long the guest may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks the guest for its counters.
pub(crate) fn stats(args: &StatsArgs) -> Result<u8, Failure> {
    let instance = Store::new(&folders::state()?).open(&args.name)?;
    let name = &instance.name;
    let not_running = || {
        Failure::new(format!(
            "{name} is not running; its last words: coracle logs {name}"
        ))
    };
    let mut connection = Connection::open(&instance).map_err(|_| not_running())?;
    connection.send(Op::Counters).map_err(|_| not_running())?;
    let deadline = Instant::now() + LIMIT;
    let values = loop {
        match connection.next_event(Some(deadline)) {
            Ok(Some(Event::Counters { values, .. })) => break values,
            Ok(Some(_)) => {}
            Ok(None) => return Err(not_running()),
            Err(error) => {
                return Err(Failure::new(format!(
                    "{name}: the guest does not answer ({error})"
                )));
            }
        }
    };
    match args.output {
        Format::Json => output::json(&values)?,
        Format::Name => output::print(
            &values
                .keys()
                .map(|key| format!("{key}\n"))
                .collect::<String>(),
        ),
        Format::Table => {
            let rows = values
                .iter()
                .map(|(key, value)| vec![key.clone(), value.to_string()]);
            output::table(&["COUNTER", "VALUE"], rows.collect());
        }
    }
    Ok(0)
}
