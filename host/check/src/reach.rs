// SPDX-License-Identifier: Apache-2.0
//! From the entry point through all libraries: what can be called, and by which way.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::code::CodeMap;
use crate::object_file::ObjectFile;

/// One file of the program with its code.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) path: String,
    pub(crate) object: ObjectFile,
    pub(crate) code: CodeMap,
}

impl Loaded {
    /// File and function, for people.
    fn describe(&self, address: u64) -> String {
        let file = self.path.rsplit('/').next().unwrap_or(&self.path);
        match self.object.names.get(&address) {
            Some(name) => format!("{file}: {name}"),
            None => format!("{file}: {address:#x}"),
        }
    }
}

/// A function: index of the file, and its address.
pub(crate) type Place = (usize, u64);

/// Everything that can be reached.
#[derive(Debug)]
pub(crate) struct Reached {
    from: HashMap<Place, Option<Place>>,
    /// System calls, each with the functions that make it.
    pub(crate) numbers: BTreeMap<u32, Vec<Place>>,
    /// Functions that other files have and that are called by name: the name, the first caller.
    pub(crate) symbols: BTreeMap<String, Place>,
}

impl Reached {
    /// Follows the calls from the entry points and from whatever data points to.
    pub(crate) fn from(files: &[Loaded]) -> Self {
        let mut this = Self {
            from: HashMap::new(),
            numbers: BTreeMap::new(),
            symbols: BTreeMap::new(),
        };
        let mut queue = VecDeque::new();
        for (index, file) in files.iter().enumerate() {
            let mut roots: Vec<u64> = file.object.pointers.iter().copied().collect();
            if !file.object.position_independent {
                roots.extend(pointers_in_data(file));
            }
            roots.push(file.object.entry);
            for address in roots {
                if file.object.is_code(address)
                    && let Some((start, _)) = file.code.at(address)
                    && this.from.insert((index, start), None).is_none()
                {
                    queue.push_back((index, start));
                }
            }
        }
        let mut resolved: HashMap<String, Option<Place>> = HashMap::new();
        while let Some(place) = queue.pop_front() {
            let (index, address) = place;
            let Some((_, function)) = files[index].code.at(address) else {
                continue;
            };
            for number in &function.numbers {
                this.numbers.entry(*number).or_default().push(place);
            }
            let mut targets: Vec<Place> = Vec::new();
            for call in &function.calls {
                targets.extend(
                    files[index]
                        .code
                        .at(call.target)
                        .map(|(start, _)| (index, start)),
                );
            }
            for (symbol, constant) in &function.symbols {
                let target = *resolved
                    .entry(symbol.clone())
                    .or_insert_with(|| lookup(files, symbol));
                let Some(target) = target else { continue };
                if target.0 != index {
                    this.symbols.entry(symbol.clone()).or_insert(place);
                }
                if let (Some(number), Some((_, callee))) =
                    (constant, files[target.0].code.at(target.1))
                    && callee.is_wrapper
                {
                    this.numbers.entry(*number).or_default().push(place);
                }
                targets.push(target);
            }
            for target in targets {
                this.from.entry(target).or_insert_with(|| {
                    queue.push_back(target);
                    Some(place)
                });
            }
        }
        this
    }

    /// Who reaches the function of that name: another file by name, or the file that has it itself.
    pub(crate) fn caller(&self, files: &[Loaded], name: &str) -> Option<Place> {
        if let Some(place) = self.symbols.get(name) {
            return Some(*place);
        }
        // Linked into the program.
        let address = *files.first()?.object.exports.get(name)?;
        self.from
            .contains_key(&(0, address))
            .then_some((0, address))
    }

    /// The way to a function, from the outermost caller on.
    pub(crate) fn way(&self, files: &[Loaded], place: Place) -> Vec<String> {
        let mut way = Vec::new();
        let mut at = Some(place);
        while let Some(place) = at {
            way.push(files[place.0].describe(place.1));
            at = self.from.get(&place).copied().flatten();
        }
        way.reverse();
        way
    }
}

fn lookup(files: &[Loaded], symbol: &str) -> Option<Place> {
    files.iter().enumerate().find_map(|(index, file)| {
        let address = *file.object.exports.get(symbol)?;
        Some((index, address))
    })
}

/// Words in data that are addresses of functions, for programs without relocations.
fn pointers_in_data(file: &Loaded) -> Vec<u64> {
    let starts: std::collections::HashSet<u64> = file.code.starts().collect();
    let words = file
        .object
        .segments
        .iter()
        .filter(|s| !s.executable)
        .flat_map(|s| s.bytes.as_chunks::<8>().0);
    words
        .map(|word| u64::from_le_bytes(*word))
        .filter(|word| starts.contains(word))
        .collect()
}
