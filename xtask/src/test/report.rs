// SPDX-License-Identifier: Apache-2.0

//! Counting what passed and failed, and saying it at the end.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::sh;

/// The count so far.
#[derive(Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
    /// What failed, a line each.
    failures: Vec<String>,
}

impl Report {
    /// Runs a step that counts as one test; says how it went. Returns whether it passed.
    ///
    /// # Errors
    /// Only when the user interrupted: a step that fails is counted.
    pub(crate) fn step(&mut self, name: &str, run: impl FnOnce() -> Result<()>) -> Result<bool> {
        print!("{name} ... ");
        std::io::stdout().flush()?;
        let started = Instant::now();
        let outcome = run();
        sh::check_interrupt()?;
        let took = started.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                println!("ok ({took:.1} s)");
                self.passed += 1;
                Ok(true)
            }
            Err(error) => {
                println!("FAILED ({took:.1} s)\n{error:#}\n");
                self.fail(name);
                Ok(false)
            }
        }
    }

    /// Counts the results of a group of tests and prints them.
    pub(crate) fn add(&mut self, name: &str, passed: usize, failed: usize) {
        println!("{name}: {passed} passed, {failed} failed");
        self.passed += passed;
        self.failed += failed;
        if failed > 0 {
            self.failures.push(format!("{name}: {failed}"));
        }
    }

    /// Counts one failure.
    pub(crate) fn fail(&mut self, name: &str) {
        self.failed += 1;
        self.failures.push(name.to_owned());
    }

    /// The closing line; an error if something failed, or if nothing was tested.
    pub(crate) fn finish(self) -> Result<()> {
        if !self.failures.is_empty() {
            println!("\nfailed:\n  {}", self.failures.join("\n  "));
        }
        println!("\n{} passed, {} failed", self.passed, self.failed);
        if self.failed > 0 || self.passed == 0 {
            bail!("the tests did not pass");
        }
        Ok(())
    }
}
