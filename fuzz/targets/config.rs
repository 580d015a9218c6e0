// SPDX-License-Identifier: Apache-2.0
//! Configurations: what is accepted keeps the promises of `BootConfig`.

use coracle_loader::config::parse;

pub(crate) fn run(data: &[u8]) {
    match parse(data) {
        Ok(config) => {
            assert!(
                config
                    .args
                    .first()
                    .is_some_and(|program| !program.is_empty())
            );
            let strings = || {
                config
                    .args
                    .iter()
                    .chain(&config.env)
                    .chain([&config.cwd, &config.hostname])
            };
            assert!(strings().all(|text| !text.contains('\0')));
            assert!(
                config
                    .env
                    .iter()
                    .all(|text| text.find('=').is_some_and(|at| at > 0))
            );
            assert!(config.cwd.starts_with('/'));
            assert!(config.rlimits.iter().all(|(_, soft, hard)| soft <= hard));
            for network in &config.network {
                assert!(network.ipv4.is_none_or(|(_, prefix)| prefix <= 32));
                assert!(network.ipv6.is_none_or(|(_, prefix)| prefix <= 128));
            }
        }
        Err(error) => assert!(error.to_string().starts_with("config.json: ")),
    }
}
